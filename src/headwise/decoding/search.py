"""A beam search that sentences join and leave while others go on."""

from collections.abc import Collection
from typing import Generic

import torch
from torch import Tensor
from torch.nn.functional import pad

from headwise.decoding.beam import (
    Beams,
    Hypothesis,
    advance,
    finished,
    is_done,
    nan_logits,
    start,
)
from headwise.decoding.settings import S, SearchSettings, Step

Found = list[tuple[int, list[Hypothesis]]]
"""Sentences that are done, by their numbers, each with its best outputs, best first.

One without outputs is one for which the model computed NaN.
"""


_MOST_IDLE = 0.25
"""The part of the rows that may belong to nobody: they are computed for nothing, but to take them
out, all others must be copied."""


class BeamSearch(Generic[S]):
    """Search for the outputs of any number of sentences, some of which may come later.

    The rows of a sentence that is done stay, idle, until another takes them over or there are too
    many of them.
    """

    def __init__(self, step: Step[S], settings: SearchSettings) -> None:
        self._step, self._settings = step, settings
        self._under_way: tuple[Beams, S] | None = None
        self._is_fresh = True
        """Whether nobody has taken a step yet: then the state has one row for each sentence."""
        self._size = 0

    def __len__(self) -> int:
        """Return how many sentences are under way."""
        return self._size

    def add(
        self,
        state: S,
        sentences: Tensor,  # [B]
        limits: Tensor,  # [B]
        prefixes: Tensor | None = None,  # [B, P]
    ) -> None:
        """Take in new sentences, which from now on go with the others.

        `state` is the model's, before its first step, with one row for each sentence. `limits` are
        the most tokens of each output, its end not counted; an output that reaches its limit is
        ended there. With `prefixes`, outputs begin with those; pad is where they may choose.
        """
        size = sentences.shape[0]
        beams = start(sentences, limits, self._settings, prefixes)
        if self._under_way is None:
            self._under_way, self._is_fresh, self._size = (beams, state), True, size
            return
        state = self._with_all_rows(state, sentences)
        older, older_state = self._with_places(*self._in_full(self._under_way), size)
        places = torch.nonzero(older.idle).flatten()[:size]
        self._under_way = older.replace(places, beams), older_state.replace(places, state)
        self._size += size

    def advance(self) -> Found:
        """Take one step in all sentences; those that are done by it leave."""
        if self._under_way is None:
            return []
        beams, state = self._under_way
        # The hypotheses of a sentence that has none yet are all alike: one is enough.
        ids = beams.last[:, :1] if self._is_fresh else beams.last
        logits, state = self._step(ids.flatten(), state)
        beams, parents = advance(beams, logits, self._settings)
        state = state.select(parents.flatten(), self._settings.beam)
        self._under_way, self._is_fresh = (beams, state), False
        done = is_done(beams, self._settings) & ~beams.idle
        if not bool(done.any()):
            return []
        found = [
            (int(beams.sentences[row]), finished(beams, row, self._settings))
            for row in torch.nonzero(done).flatten().tolist()
        ]
        # The caches of a NaN sentence must leave with it: a masked NaN is still NaN, and a sentence
        # that takes over the row would compute with it.
        has_nan = bool(beams.log_probs[done].isnan().any())
        most_idle = 0.0 if has_nan else _MOST_IDLE
        self._under_way = self._with_few_idle(*_rest(beams, state, done), most_idle)
        self._size -= len(found)
        return found

    def drop(self, sentences: Collection[int]) -> None:
        """Give up some sentences, with what has been found for them."""
        if self._under_way is None or not sentences:
            return
        beams, state = self._in_full(self._under_way)
        unwanted = torch.isin(beams.sentences, beams.sentences.new_tensor(list(sentences)))
        beams, state = _rest(beams, state, unwanted)
        self._under_way = self._with_few_idle(beams, state)
        self._size = int((~beams.idle).sum())

    def _in_full(self, under_way: tuple[Beams, S]) -> tuple[Beams, S]:
        """Return the search with a row in the state for each hypothesis, from now on."""
        beams, state = under_way
        if self._is_fresh:
            state, self._is_fresh = self._with_all_rows(state, beams.sentences), False
        return beams, state

    def _with_all_rows(self, state: S, sentences: Tensor) -> S:
        """Return a state that has one row for each sentence with one for each hypothesis."""
        width = self._settings.beam
        rows = torch.arange(sentences.shape[0], device=sentences.device)
        return state.select(rows.repeat_interleave(width), width)

    def _with_few_idle(
        self, beams: Beams, state: S, most_idle: float = _MOST_IDLE
    ) -> tuple[Beams, S] | None:
        """Return the search with few of its rows idle; None where all are."""
        size, rest = beams.sentences.shape[0], torch.nonzero(~beams.idle).flatten()
        if not rest.shape[0]:
            return None
        if size - rest.shape[0] <= most_idle * size:
            return beams, state
        return beams.select(rest), state.select(self._rows_of(rest), self._settings.beam)

    def _with_places(self, beams: Beams, state: S, wanted: int) -> tuple[Beams, S]:
        """Return the search with at least so many places for others."""
        size = beams.sentences.shape[0]
        missing = wanted - int(beams.idle.sum())
        if missing <= 0:
            return beams, state
        # Copies of the first, which are idle at once.
        sources = pad(torch.arange(size, device=beams.sentences.device), (0, missing))
        beams = beams.select(sources)
        state = state.select(self._rows_of(sources), self._settings.beam)
        added = torch.arange(size + missing, device=sources.device) >= size
        return _rest(beams, state, added)

    def _rows_of(self, sources: Tensor) -> Tensor:
        """Return the rows of all hypotheses of some sentences."""
        width = self._settings.beam
        rows = sources[:, None] * width + torch.arange(width, device=sources.device)
        return rows.flatten()


def _rest(beams: Beams, state: S, rows: Tensor) -> tuple[Beams, S]:
    """Return the search when nobody wants some sentences, given by a mask [B], any more.

    Those who are idle already rest anew: else their outputs would become the longest of all.
    """
    rows = rows | beams.idle
    return beams.rest(rows), state.rest(torch.nonzero(rows).flatten())


def beam_search(
    step: Step[S],
    state: S,
    limits: Tensor,  # [B]
    settings: SearchSettings,
    prefixes: Tensor | None = None,  # [B, P]
) -> list[list[Hypothesis]]:
    """Return the `nbest` best outputs of each sentence, best first.

    The arguments are those of `BeamSearch.add`. Sentences that are done leave the batch.

    Paper: §6.1.
    """
    search = BeamSearch(step, settings)
    numbers = torch.arange(limits.shape[0], device=limits.device)
    search.add(state, numbers, limits, prefixes)
    found: Found = []
    while search:
        found += search.advance()
    if not all(hypotheses for _, hypotheses in found):
        raise nan_logits()
    return [hypotheses for _, hypotheses in sorted(found, key=lambda each: each[0])]
