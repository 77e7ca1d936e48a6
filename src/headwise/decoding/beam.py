"""Beam search as functions over a state.

Paper: §6.1: a beam of 4, length penalty alpha = 0.6, outputs of at most input length + 50.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from headwise.config import Vocab
from headwise.decoding.best import log_normalisers, top_sums
from headwise.decoding.settings import SearchSettings
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


NOBODY = -1
_NO_LIMIT = 2**31


@dataclass(frozen=True)
class Beams:
    """Where the search stands in the sentences that are not done."""

    sentences: Tensor  # [B] the numbers of the sentences; NOBODY where there is none any more
    lengths: Tensor  # [B] how many tokens each open hypothesis has
    limits: Tensor  # [B] most tokens of each output, its end not counted
    prefixes: Tensor  # [B, P] tokens that outputs must begin with, pad where they may choose
    tokens: Tensor  # [B, W, T], flush right: those who came later have pad before their first
    log_probs: Tensor  # [B, W]; -inf: no such hypothesis
    finished_tokens: Tensor  # [B, W, T], each where it stood when it ended, with pad after it
    finished_log_probs: Tensor  # [B, W]
    finished_scores: Tensor  # [B, W], best first; -inf: no such hypothesis
    num_finished: Tensor  # [B] how many have finished in all

    def select(self, rows: Tensor) -> "Beams":
        """Return the search in some of the sentences."""
        return Beams(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))._trimmed()

    @property
    def idle(self) -> Tensor:
        """Where there is no sentence [B]."""
        return self.sentences == NOBODY

    @property
    def last(self) -> Tensor:
        """The last token of each open hypothesis [B, W]; of one that is empty, the start."""
        if not self.tokens.shape[2]:
            return self.tokens.new_full(self.log_probs.shape, Vocab.bos)
        return self.tokens[:, :, -1].masked_fill(self.lengths[:, None] == 0, Vocab.bos)

    def rest(self, rows: Tensor) -> "Beams":
        """Return the search without some of the sentences, whose rows stay; rows [B] are masked."""
        return replace(
            self,
            sentences=self.sentences.masked_fill(rows, NOBODY),
            lengths=self.lengths.masked_fill(rows, 0),
            limits=self.limits.masked_fill(rows, _NO_LIMIT),
            prefixes=self.prefixes.masked_fill(rows[:, None], Vocab.pad),
            log_probs=self.log_probs.masked_fill(rows[:, None], -math.inf),
        )

    def replace(self, rows: Tensor, other: "Beams") -> "Beams":
        """Return the search with the sentences of another, who came later, in the place of some."""
        begun = max(beams.prefixes.shape[1] for beams in (self, other))
        ours, theirs = (beams._within(self.tokens.shape[2], begun) for beams in (self, other))
        fields = {}
        for name in self.__dataclass_fields__:
            before, after = getattr(ours, name), getattr(theirs, name)
            # Those who have not begun do not know yet how exactly the model computes.
            fields[name] = before.index_copy(0, rows, after.to(before.dtype))
        return Beams(**fields)._trimmed()

    def _trimmed(self) -> "Beams":
        """Return the same without what lies before the tokens of the longest."""
        longest = int(self.lengths.max()) if self.lengths.shape[0] else self.tokens.shape[2]
        unused = self.tokens.shape[2] - longest
        return replace(
            self,
            tokens=self.tokens[..., unused:],
            finished_tokens=self.finished_tokens[..., unused:],
        )

    def _within(self, width: int, begun: int) -> "Beams":
        """Return the same with tokens and prefixes of other widths."""
        missing = width - self.tokens.shape[2]
        finished = pad(self.finished_tokens, (missing, 0))
        return replace(
            self,
            tokens=pad(self.tokens, (missing, 0)),
            finished_tokens=pad(finished, (0, width - finished.shape[2])),
            prefixes=pad(self.prefixes, (0, begun - self.prefixes.shape[1])),
        )


def start(
    sentences: Tensor, limits: Tensor, settings: SearchSettings, prefixes: Tensor | None = None
) -> Beams:
    """Begin with one empty hypothesis for each sentence."""
    size, width = limits.shape[0], settings.beam
    impossible = torch.full((size, width), -math.inf, device=limits.device)
    log_probs = impossible.clone()
    log_probs[:, 0] = 0.0
    nothing = limits.new_zeros(size, width, 0)
    return Beams(
        sentences=sentences,
        lengths=torch.zeros_like(limits),
        limits=limits,
        prefixes=limits.new_zeros(size, 0) if prefixes is None else prefixes,
        tokens=nothing,
        log_probs=log_probs,
        finished_tokens=nothing,
        finished_log_probs=impossible,
        finished_scores=impossible,
        num_finished=torch.zeros_like(limits),
    )


def advance(beams: Beams, logits: Tensor, settings: SearchSettings) -> tuple[Beams, Tensor]:
    """Take one step: return the search after it and, for each hypothesis, the row it came from.

    `logits` [R, V] has one row for each sentence at the first step, and W for each after it. Of the
    2W best continuations at most W end, since each hypothesis can end in one way: so W stay open.
    """
    size, width = beams.log_probs.shape
    rows_each = logits.shape[0] // size  # 1 at the first step, then W
    count = min(2 * width, rows_each * logits.shape[1])
    # Of all tokens, those not allowed included.
    log_probs = beams.log_probs[:, :rows_each] - log_normalisers(logits).view(size, rows_each)
    logits = _allowed(beams, logits.view(size, rows_each, -1), settings)
    best, places = top_sums(logits, log_probs, count)  # [B, C], best first
    parents, ids = places // logits.shape[2], places % logits.shape[2]  # within the sentence
    ends = ids == Vocab.eos

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
    first_rows = torch.arange(size, device=logits.device)[:, None] * rows_each
    return beams, first_rows + parents


def is_done(beams: Beams, settings: SearchSettings) -> Tensor:
    """Return for which sentences [B] the search is over.

    "count": once W hypotheses have finished. "bound": once no open hypothesis can still be among
    the `nbest`. A longer hypothesis is less probable and its penalty larger, so that none scores
    better than its log-probability now, divided by the penalty of the longest output allowed.
    """
    best_open = beams.log_probs.amax(1)
    if settings.stop == "count":
        over = beams.num_finished >= settings.beam
    else:
        # Its length then, with its end.
        bound = best_open / settings.length_penalty((beams.limits + 1).to(best_open.dtype))
        over = beams.finished_scores[:, settings.nbest - 1] >= bound
    return over | ~(best_open > -math.inf)  # Nor does anything come after what is no number.


def finished(beams: Beams, row: int, settings: SearchSettings) -> list[Hypothesis]:
    """Return the best finished hypotheses of a sentence; none where the model computed NaN."""
    found = []
    for rank in range(settings.nbest):
        score = float(beams.finished_scores[row, rank])
        if score == -math.inf:
            break
        tokens = beams.finished_tokens[row, rank].tolist()
        ids = tuple(token for token in tokens if token != Vocab.pad)
        found.append(Hypothesis(ids, float(beams.finished_log_probs[row, rank]), score))
    return found


def nan_logits() -> CheckpointError:
    """Return the error for a model without any output."""
    return CheckpointError(
        "the model's logits are NaN: its weights are damaged or its training has diverged: "
        "use another checkpoint"
    )


def _allowed(beams: Beams, logits: Tensor, settings: SearchSettings) -> Tensor:
    """Return the logits [B, N, V], minus infinity where a token may not come next.

    Those passed in are written to.
    """
    logits[:, :, Vocab.pad] = -math.inf
    logits[:, :, Vocab.bos] = -math.inf
    at_limit = beams.limits <= beams.lengths
    if settings.min_length:
        # But not where the limit comes first.
        too_short = (beams.lengths < settings.min_length) & ~at_limit
        logits[too_short, :, Vocab.eos] = -math.inf
    forced = torch.where(at_limit, Vocab.eos, Vocab.pad)
    if num_begun := beams.prefixes.shape[1]:
        places = beams.lengths.clamp(max=num_begun - 1)[:, None]
        begun = beams.prefixes.gather(1, places).flatten()
        begun = begun.masked_fill(beams.lengths >= num_begun, Vocab.pad)
        forced = torch.where(at_limit, Vocab.eos, begun)
    if bool((forced != Vocab.pad).any()):
        only = forced[:, None, None].expand(-1, logits.shape[1], 1)
        kept = torch.full_like(logits, -math.inf).scatter_(2, only, logits.gather(2, only))
        logits = torch.where(only == Vocab.pad, logits, kept)
    return logits


def _finish(
    beams: Beams, log_probs: Tensor, parents: Tensor, ends: Tensor, settings: SearchSettings
) -> Beams:
    """Add the candidates that have ended to the finished hypotheses, and keep the best W."""
    width = settings.beam
    if settings.stop == "count":
        # Those that an open hypothesis of the beam would have been better than do not count.
        ends = ends & (torch.arange(ends.shape[1], device=ends.device) < width)
    ends = ends & (log_probs > -math.inf)
    # The first step tells how exactly the model computes.
    beams = replace(
        beams,
        finished_log_probs=beams.finished_log_probs.to(log_probs.dtype),
        finished_scores=beams.finished_scores.to(log_probs.dtype),
    )
    width_now = beams.tokens.shape[2]
    tokens = pad(beams.finished_tokens, (0, width_now - beams.finished_tokens.shape[2]))
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
