"""Beam search as pure functions over a dataclass.

Paper: §6.1: a beam of 4, length penalty alpha = 0.6, outputs of at most input length + 50.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from headwise.config import Vocab
from headwise.decoding.best import log_normalisers, top_sums
from headwise.decoding.settings import SearchSettings, forbidden_ids
from headwise.errors import CheckpointError


@dataclass(frozen=True)
class Hypothesis:
    """One finished output."""

    ids: tuple[int, ...]
    """Its tokens, without the end of the sentence."""
    log_prob: float
    """The sum of its tokens' log-probabilities, the end of the sentence included."""
    score: float
    """That sum divided by the length penalty: what hypotheses are compared by."""


_IDLE = -1
"""The number of a sentence whose rows are not in use."""
_NO_TOKEN = -1
_NO_LIMIT = 2**31


@dataclass(frozen=True)
class Beams:
    """The hypotheses of all unfinished sentences."""

    sentences: Tensor  # [B] the numbers of the sentences; _IDLE: the rows are not in use
    first_ids: Tensor  # [B] the id that the first step of each takes
    lengths: Tensor  # [B] how many tokens each open hypothesis has
    limits: Tensor  # [B] most tokens of each output, its end not counted
    prefixes: Tensor  # [B, P] tokens that outputs must begin with; _NO_TOKEN: any
    tokens: Tensor  # [B, W, T], right-aligned, with _NO_TOKEN before the first
    log_probs: Tensor  # [B, W]; -inf: no such hypothesis
    finished_tokens: Tensor  # [B, W, T], in the columns they were found in, else _NO_TOKEN
    finished_log_probs: Tensor  # [B, W]
    finished_scores: Tensor  # [B, W], best first; -inf: no such hypothesis
    num_finished: Tensor  # [B] how many have finished in all

    def select(self, rows: Tensor) -> "Beams":
        """Return the search for some of the sentences."""
        return Beams(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))._trimmed()

    @property
    def idle(self) -> Tensor:
        """Which rows are not in use [B]."""
        return self.sentences == _IDLE

    @property
    def last(self) -> Tensor:
        """The last token of each open hypothesis [B, W]; of an empty one, its first id."""
        first_ids = self.first_ids[:, None].expand_as(self.log_probs)
        if not self.tokens.shape[2]:
            return first_ids
        return torch.where(self.lengths[:, None] == 0, first_ids, self.tokens[:, :, -1])

    def mark_idle(self, rows: Tensor) -> "Beams":
        """Return the search without some sentences, given by a mask [B]; their rows stay."""
        return replace(
            self,
            sentences=self.sentences.masked_fill(rows, _IDLE),
            lengths=self.lengths.masked_fill(rows, 0),
            limits=self.limits.masked_fill(rows, _NO_LIMIT),
            prefixes=self.prefixes.masked_fill(rows[:, None], _NO_TOKEN),
            log_probs=self.log_probs.masked_fill(rows[:, None], -math.inf),
        )

    def replace(self, rows: Tensor, other: "Beams") -> "Beams":
        """Return the search with the sentences of a new one in the place of some."""
        longest = max(beams.prefixes.shape[1] for beams in (self, other))
        ours, theirs = (beams._padded(self.tokens.shape[2], longest) for beams in (self, other))
        fields = {}
        for name in self.__dataclass_fields__:
            before, after = getattr(ours, name), getattr(theirs, name)
            # The dtype of log-probabilities is the model's only after a first step.
            fields[name] = before.index_copy(0, rows, after.to(before.dtype))
        return Beams(**fields)._trimmed()

    def _trimmed(self) -> "Beams":
        """Return the same without the columns before the first token of the longest."""
        longest = int(self.lengths.max()) if self.lengths.shape[0] else self.tokens.shape[2]
        unused = self.tokens.shape[2] - longest
        return replace(
            self,
            tokens=self.tokens[..., unused:],
            finished_tokens=self.finished_tokens[..., unused:],
        )

    def _padded(self, width: int, prefix_width: int) -> "Beams":
        """Return the same with tokens and prefixes padded to the given widths."""
        missing = width - self.tokens.shape[2]
        finished = _pad(self.finished_tokens, missing, 0)
        return replace(
            self,
            tokens=_pad(self.tokens, missing, 0),
            finished_tokens=_pad(finished, 0, width - finished.shape[2]),
            prefixes=_pad(self.prefixes, 0, prefix_width - self.prefixes.shape[1]),
        )


def _pad(tokens: Tensor, before: int, after: int) -> Tensor:
    return pad(tokens, (before, after), value=_NO_TOKEN)


def start(
    sentences: Tensor,  # [B]
    first_ids: Tensor,  # [B]
    limits: Tensor,  # [B]
    settings: SearchSettings,
    prefixes: list[list[int]] | None = None,
) -> Beams:
    """Begin with one empty hypothesis for each sentence."""
    size, width = limits.shape[0], settings.beam
    impossible = torch.full((size, width), -math.inf, device=limits.device)
    log_probs = impossible.clone()
    log_probs[:, 0] = 0.0
    no_tokens = limits.new_zeros(size, width, 0)
    return Beams(
        sentences=sentences,
        first_ids=first_ids,
        lengths=torch.zeros_like(limits),
        limits=limits,
        prefixes=_prefix_table(prefixes or [[]] * size, limits),
        tokens=no_tokens,
        log_probs=log_probs,
        finished_tokens=no_tokens,
        finished_log_probs=impossible,
        finished_scores=impossible,
        num_finished=torch.zeros_like(limits),
    )


def _prefix_table(prefixes: list[list[int]], like: Tensor) -> Tensor:
    """Return prefixes as rows of one tensor [B, P]."""
    longest = max(map(len, prefixes), default=0)
    rows = [ids + [_NO_TOKEN] * (longest - len(ids)) for ids in prefixes]
    return like.new_tensor(rows).view(len(prefixes), longest)


def advance(
    beams: Beams,
    logits: Tensor,  # [R, V]
    settings: SearchSettings,
    vocab: Vocab,
    allowed: Tensor | None = None,  # [R, V]
) -> tuple[Beams, Tensor]:
    """Take one step: return the search after it and, for each hypothesis, the row it came from.

    Logits have one row for each sentence at the first step, and W for each after it. `allowed` says
    which tokens may come next, besides the search's own rules; None: any. Each hypothesis can end
    in one way only, so at most W of the 2W best continuations end, and W stay open.
    """
    size, width = beams.log_probs.shape
    num_rows = logits.shape[0] // size  # of each sentence: 1 at the first step, then W
    count = min(2 * width, num_rows * logits.shape[1])
    # Normalised over all tokens, including those that are not allowed.
    log_probs = beams.log_probs[:, :num_rows] - log_normalisers(logits).view(size, num_rows)
    if allowed is not None:
        logits = logits.masked_fill_(~allowed, -math.inf)
    logits = _masked(beams, logits.view(size, num_rows, -1), settings, vocab)
    best, places = top_sums(logits, log_probs, count)  # [B, C], best first
    parents, ids = places // logits.shape[2], places % logits.shape[2]  # within the sentence
    ends = ids == vocab.eos

    beams = _finish(beams, best, parents, ends, settings)
    open_log_probs, chosen = best.masked_fill(ends, -math.inf).topk(min(width, count), dim=1)
    if count < width:  # A vocabulary smaller than the beam, at the first step.
        missing = width - count
        open_log_probs = pad(open_log_probs, (0, missing), value=-math.inf)
        chosen = pad(chosen, (0, missing))
    parents, ids = parents.gather(1, chosen), ids.gather(1, chosen)  # [B, W]
    before = beams.tokens.gather(1, parents[:, :, None].expand(-1, -1, beams.tokens.shape[2]))
    beams = replace(
        beams,
        lengths=beams.lengths + 1,
        tokens=torch.cat((before, ids[:, :, None]), 2),
        log_probs=open_log_probs,
    )
    first_rows = torch.arange(size, device=logits.device)[:, None] * num_rows
    return beams, first_rows + parents


def is_done(beams: Beams, settings: SearchSettings) -> Tensor:
    """Return for which sentences [B] the search is over.

    "count": once W hypotheses have finished. "bound": once no open hypothesis can still be among
    the `nbest`. As a hypothesis grows, its log-probability falls and its penalty rises: so its
    score is at most its log-probability now, divided by the penalty of the longest output allowed.
    """
    best_open = beams.log_probs.amax(1)
    if settings.stop == "count":
        over = beams.num_finished >= settings.beam
    else:
        # The longest output, with its end.
        bound = best_open / settings.length_penalty((beams.limits + 1).to(best_open.dtype))
        over = beams.finished_scores[:, settings.nbest - 1] >= bound
    return over | ~(best_open > -math.inf)  # No open hypothesis is left, or all are NaN.


def finished(beams: Beams, row: int, settings: SearchSettings) -> list[Hypothesis]:
    """Return the best finished hypotheses of a sentence.

    There are none if the logits were NaN, or if a constraint left it no way to end.
    """
    found = []
    for rank in range(settings.nbest):
        score = float(beams.finished_scores[row, rank])
        if score == -math.inf:
            break
        tokens = beams.finished_tokens[row, rank].tolist()
        ids = tuple(token for token in tokens if token != _NO_TOKEN)
        found.append(Hypothesis(ids, float(beams.finished_log_probs[row, rank]), score))
    return found


def nan_logits() -> CheckpointError:
    """Return the error for NaN logits."""
    return CheckpointError(
        "the model's logits are NaN: its weights are damaged or its training has diverged: "
        "use another checkpoint"
    )


def _masked(beams: Beams, logits: Tensor, settings: SearchSettings, vocab: Vocab) -> Tensor:
    """Return the logits [B, N, V], minus infinity where a token may not come next.

    Those passed in are written to.
    """
    for forbidden in forbidden_ids(vocab):
        logits[:, :, forbidden] = -math.inf
    at_limit = beams.limits <= beams.lengths
    if settings.min_length:
        # Unless the limit comes first.
        too_short = (beams.lengths < settings.min_length) & ~at_limit
        logits[too_short, :, vocab.eos] = -math.inf
    forced = torch.where(at_limit, vocab.eos, _NO_TOKEN)  # [B]
    if width := beams.prefixes.shape[1]:
        places = beams.lengths.clamp(max=width - 1)[:, None]
        next_ids = beams.prefixes.gather(1, places).flatten()
        next_ids = next_ids.masked_fill(beams.lengths >= width, _NO_TOKEN)
        forced = torch.where(at_limit, vocab.eos, next_ids)
    is_forced = forced != _NO_TOKEN
    if bool(is_forced.any()):
        only = forced.clamp(min=0)[:, None, None].expand(-1, logits.shape[1], 1)
        kept = torch.full_like(logits, -math.inf).scatter_(2, only, logits.gather(2, only))
        logits = torch.where(is_forced[:, None, None], kept, logits)
    return logits


def _finish(
    beams: Beams, log_probs: Tensor, parents: Tensor, ends: Tensor, settings: SearchSettings
) -> Beams:
    """Add the candidates that have ended to the finished hypotheses, and keep the best W."""
    width = settings.beam
    if settings.stop == "count":
        # An end counts only if it is among the W best continuations.
        ends = ends & (torch.arange(ends.shape[1], device=ends.device) < width)
    ends = ends & (log_probs > -math.inf)
    # The first step shows the dtype of the model.
    beams = replace(
        beams,
        finished_log_probs=beams.finished_log_probs.to(log_probs.dtype),
        finished_scores=beams.finished_scores.to(log_probs.dtype),
    )
    width_now = beams.tokens.shape[2]
    tokens = _pad(beams.finished_tokens, 0, width_now - beams.finished_tokens.shape[2])
    if not bool(ends.any()):
        return replace(beams, finished_tokens=tokens)
    penalties = settings.length_penalty((beams.lengths + 1).to(log_probs.dtype))
    scores = (log_probs / penalties[:, None]).masked_fill(~ends, -math.inf)
    all_scores = torch.cat((beams.finished_scores, scores), 1)  # [B, W+C]
    best, chosen = all_scores.topk(width, dim=1)
    all_log_probs = torch.cat((beams.finished_log_probs, log_probs), 1)
    ended = beams.tokens.gather(1, parents[:, :, None].expand(-1, -1, width_now))  # [B, C, T]
    all_tokens = torch.cat((tokens, ended), 1)
    return replace(
        beams,
        finished_tokens=all_tokens.gather(1, chosen[:, :, None].expand(-1, -1, width_now)),
        finished_log_probs=all_log_probs.gather(1, chosen),
        finished_scores=best,
        num_finished=beams.num_finished + ends.sum(1),
    )
