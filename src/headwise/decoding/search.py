"""A beam search that sentences join and leave while others go on."""

from collections.abc import Collection
from typing import Generic

import torch
from torch import Tensor
from torch.nn.functional import pad

from headwise.config import Vocab
from headwise.decoding.beam import Beams, Hypothesis, advance, finished, is_done, start
from headwise.decoding.settings import S, SearchSettings, Step

Found = list[tuple[int, list[Hypothesis]]]
"""Sentences that are done, by their numbers, each with its best outputs, best first."""


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
    ) -> Found:
        """Take the first step of new sentences, which from then on go with the others.

        `state` is the model's, before its first step, with one row for each sentence. `limits` are
        the most tokens of each output, its end not counted; an output that reaches its limit is
        ended there. With `prefixes`, outputs begin with those; pad is where they may choose.
        """
        beams = start(sentences, limits, self._settings, prefixes)
        beams, state, found = self._after_step(beams, state, torch.full_like(limits, Vocab.bos))
        newcomers = self._with_few_idle(beams, state, most=0.0)
        if newcomers is None:
            return found
        size = newcomers[0].sentences.shape[0]
        self._size += size
        if self._under_way is None:
            self._under_way = newcomers
            return found
        beams, state = self._with_places(*self._under_way, size)
        places = torch.nonzero(beams.idle).flatten()[:size]
        self._under_way = beams.replace(places, newcomers[0]), state.replace(places, newcomers[1])
        return found

    def advance(self) -> Found:
        """Take one step in all sentences; those that are done by it leave."""
        if self._under_way is None:
            return []
        beams, state = self._under_way
        beams, state, found = self._after_step(beams, state, beams.tokens[:, :, -1].flatten())
        self._under_way = beams, state
        if found:
            self._under_way = self._with_few_idle(beams, state, _MOST_IDLE)
            self._size -= len(found)
        return found

    def drop(self, sentences: Collection[int]) -> None:
        """Give up some sentences, with what has been found for them."""
        if self._under_way is None or not sentences:
            return
        beams, state = self._under_way
        unwanted = torch.isin(beams.sentences, beams.sentences.new_tensor(list(sentences)))
        beams, state = _rest(beams, state, unwanted)
        self._under_way = self._with_few_idle(beams, state, _MOST_IDLE)
        self._size = int((~beams.idle).sum())

    def _after_step(self, beams: Beams, state: S, ids: Tensor) -> tuple[Beams, S, Found]:
        """Return where the search stands after a step, and what is done."""
        logits, state = self._step(ids, state)
        beams, parents = advance(beams, logits, self._settings)
        state = state.select(parents.flatten(), self._settings.beam)
        done = is_done(beams, self._settings) & ~beams.idle
        if not bool(done.any()):
            return beams, state, []
        found = [
            (int(beams.sentences[row]), finished(beams, row, self._settings))
            for row in torch.nonzero(done).flatten().tolist()
        ]
        return *_rest(beams, state, done), found

    def _with_few_idle(self, beams: Beams, state: S, most: float) -> tuple[Beams, S] | None:
        """Return the search with at most that part of its rows idle; None where all are."""
        size, rest = beams.sentences.shape[0], torch.nonzero(~beams.idle).flatten()
        if not rest.shape[0]:
            return None
        if size - rest.shape[0] <= most * size:
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
    found = search.add(state, numbers, limits, prefixes)
    while search:
        found += search.advance()
    return [hypotheses for _, hypotheses in sorted(found, key=lambda each: each[0])]
