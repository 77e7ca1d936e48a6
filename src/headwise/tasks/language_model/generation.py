"""Tokens one after the other: the most probable, drawn at random, or by a beam search."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.decoding import Drawn, SamplingSettings, SearchSettings, beam_search, sample_steps
from headwise.decoding.beam import nan_logits
from headwise.decoding.best import largest
from headwise.decoding.settings import forbidden_ids
from headwise.tasks.language_model.context import ContextModel, ContextState

_NO_LIMIT = 2**31


@dataclass(frozen=True, kw_only=True)
class GenerationSettings:
    """How to continue a text: the `decode` section of a config, with what a request changes."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1
    beam: int = 0
    alpha: float = 0.6
    max_tokens: int = 256
    count: int = 1
    """Continuations of each prompt."""
    stop_at_end: bool = True
    """Whether a continuation ends with its document; otherwise its document does not end."""

    @property
    def min_tokens(self) -> int:
        """Tokens before which no document ends."""
        return 0 if self.stop_at_end else self.max_tokens


@dataclass(frozen=True)
class Continuation:
    """The tokens that follow a prompt."""

    ids: tuple[int, ...]
    log_prob: float
    """The sum of their log-probabilities, that of the document's end included if it ended."""
    is_ended: bool
    """Whether the document ended, not the tokens that were allowed."""


def draw_steps(
    model: ContextModel,
    prompts: Sequence[Sequence[int]],
    keys: list[tuple[int, ...]],
    settings: GenerationSettings,
) -> Iterator[list[Drawn]]:
    """Yield the next token of every unfinished row, `max_tokens` times at most.

    There are `count` adjacent rows for each prompt, each with a key. A document's end is eos. What
    is drawn for a row depends on its key, not on other rows.
    """
    assert len(keys) == len(prompts) * settings.count
    state, first_ids = _start(model, prompts, settings.count)
    if settings.temperature == 0:
        steps = _greedy_steps(model, state, first_ids, settings.min_tokens)
    else:
        steps = sample_steps(
            model.step,
            state,
            first_ids,
            torch.full_like(first_ids, _NO_LIMIT),
            keys,
            SamplingSettings(
                temperature=settings.temperature,
                top_k=settings.top_k,
                top_p=settings.top_p,
                seed=settings.seed,
            ),
            model.vocab,
            min_length=settings.min_tokens,
        )
    # Not `zip(range(...), steps)`, which would compute a step more than it yields.
    for count, drawn in enumerate(steps, start=1):
        yield drawn
        if count == settings.max_tokens:
            return


def draw(
    model: ContextModel,
    prompts: Sequence[Sequence[int]],
    keys: list[tuple[int, ...]],
    settings: GenerationSettings,
) -> list[Continuation]:
    """Return a continuation for each key; the arguments are those of `draw_steps`."""
    ids: list[list[int]] = [[] for _ in keys]
    log_probs, ended = [0.0] * len(keys), [False] * len(keys)
    for drawn in draw_steps(model, prompts, keys, settings):
        for row, token, log_prob in drawn:
            log_probs[row] += log_prob
            if token == model.vocab.eos:
                ended[row] = True
            else:
                ids[row].append(token)
    return [
        Continuation(tuple(each), log_prob, is_ended)
        for each, log_prob, is_ended in zip(ids, log_probs, ended, strict=True)
    ]


def search(
    model: ContextModel, prompts: Sequence[Sequence[int]], settings: GenerationSettings
) -> list[list[Continuation]]:
    """Return the `count` best continuations of each prompt, best first.

    One that has `max_tokens` tokens is ended there.
    """
    state, first_ids = _start(model, prompts, 1)
    found = beam_search(
        model.step,
        state,
        first_ids,
        torch.full_like(first_ids, settings.max_tokens),
        SearchSettings(
            beam=settings.beam,
            alpha=settings.alpha,
            nbest=settings.count,
            min_length=settings.min_tokens,
        ),
        model.vocab,
    )
    return [
        [Continuation(h.ids, h.log_prob, len(h.ids) < settings.max_tokens) for h in hypotheses]
        for hypotheses in found
    ]


def _start(
    model: ContextModel, prompts: Sequence[Sequence[int]], count: int
) -> tuple[ContextState, Tensor]:
    """Read the prompts, each once; return `count` rows for each."""
    state, first_ids = model.start(prompts)
    if count == 1:
        return state, first_ids
    rows = torch.arange(len(prompts), device=first_ids.device).repeat_interleave(count)
    return state.select(rows), first_ids[rows]


def _greedy_steps(
    model: ContextModel, state: ContextState, ids: Tensor, min_length: int
) -> Iterator[list[Drawn]]:
    """Yield the most probable next token of every unfinished row."""
    forbidden = torch.tensor(forbidden_ids(model.vocab), device=ids.device)
    forbidden_early = torch.cat((forbidden, forbidden.new_tensor([model.vocab.eos])))
    unfinished = list(range(len(ids)))
    length = 0
    while unfinished:
        logits, state = model.step(ids, state)
        # In place: a matrix of another hundred thousand numbers would not be in the cache. The most
        # probable token has a probability that is far from underflow.
        probs = torch.softmax(logits, 1, out=logits)
        probs.index_fill_(1, forbidden_early if length < min_length else forbidden, 0.0)
        best, ids = largest(probs)
        log_probs = best.log().tolist()
        if any(map(math.isnan, log_probs)):
            raise nan_logits()
        tokens = ids.tolist()
        yield [Drawn(*each) for each in zip(unfinished, tokens, log_probs, strict=True)]
        length += 1
        if model.vocab.eos in tokens:
            kept = [row for row, token in enumerate(tokens) if token != model.vocab.eos]
            unfinished = [unfinished[row] for row in kept]
            if kept:
                rows = torch.tensor(kept, device=ids.device)
                state, ids = state.select(rows), ids[rows]
