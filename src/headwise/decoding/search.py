"""A beam search that sentences join and leave while it runs."""

from collections.abc import Collection
from typing import Generic

import torch
from torch import Tensor
from torch.nn.functional import pad

from headwise.config import Vocab
from headwise.decoding.beam import (
    Beams,
    Hypothesis,
    advance,
    finished,
    is_done,
    nan_logits,
    start,
)
from headwise.decoding.settings import Constraint, S, SearchSettings, Step

Found = list[tuple[int, list[Hypothesis]]]
"""Sentences that are done, by their numbers, each with its best outputs, best first.

A sentence without outputs had NaN logits, or its constraint allowed no output.
"""


_MOST_IDLE = 0.25
"""The share of rows that may be idle: computing them is wasted, but removing them copies all
others."""


class BeamSearch(Generic[S]):
    """Search for the outputs of any number of sentences, some of which may be added later.

    The rows of a finished sentence stay, idle, until another takes them over or too many are idle.
    """

    def __init__(
        self,
        step: Step[S],
        settings: SearchSettings,
        vocab: Vocab,
        allowed: Constraint[S] | None = None,
    ) -> None:
        """Search with a model's step; outputs have only tokens that `allowed` allows, if given.

        Scores stay the model's: probabilities are normalised over all tokens. A hypothesis that
        nothing may follow is dropped. At a sentence's limit every hypothesis is ended, so that a
        constraint must allow eos there; what it allows before must lead to such an end.
        """
        self._step, self._settings, self._vocab = step, settings, vocab
        self._allowed = allowed
        self.has_nan = False
        """Whether the logits of a sentence were NaN."""
        self._running: tuple[Beams, S] | None = None
        self._is_fresh = True
        """Whether no step was taken yet: then the state has one row for each sentence."""
        self._size = 0

    def __len__(self) -> int:
        """Return how many sentences are unfinished."""
        return self._size

    def add(
        self,
        state: S,
        sentences: Tensor,  # [B]
        first_ids: Tensor,  # [B]
        limits: Tensor,  # [B]
        prefixes: list[list[int]] | None = None,
    ) -> None:
        """Add new sentences, known by their numbers.

        `state` is the model's, as its `start` returns it, with one row for each sentence, and
        `first_ids` are what its first step takes. `limits` are the most tokens of each output, its
        end not counted; an output that reaches its limit is ended there. With `prefixes`, each
        output begins with its prefix.
        """
        size = sentences.shape[0]
        beams = start(sentences, first_ids, limits, self._settings, prefixes)
        if self._running is None:
            self._running, self._is_fresh, self._size = (beams, state), True, size
            return
        state = self._with_all_rows(state, sentences)
        older, older_state = self._with_places(*self._in_full(self._running), size)
        places = torch.nonzero(older.idle).flatten()[:size]
        self._running = older.replace(places, beams), older_state.replace(places, state)
        self._size += size

    def advance(self) -> Found:
        """Take one step in all sentences; return those that are done after it."""
        if self._running is None:
            return []
        beams, state = self._running
        # Before the first step all hypotheses of a sentence are the same: one row is enough.
        ids = beams.last[:, :1] if self._is_fresh else beams.last
        logits, state = self._step(ids.flatten(), state)
        allowed = None if self._allowed is None else self._allowed(state)
        beams, parents = advance(beams, logits, self._settings, self._vocab, allowed)
        state = state.select(parents.flatten(), self._settings.beam)
        self._running, self._is_fresh = (beams, state), False
        done = is_done(beams, self._settings) & ~beams.idle
        if not bool(done.any()):
            return []
        found = [
            (int(beams.sentences[row]), finished(beams, row, self._settings))
            for row in torch.nonzero(done).flatten().tolist()
        ]
        # A sentence with NaN must not stay as an idle row: its caches hold NaN, which masking does
        # not hide from the sentence that takes over the row.
        has_nan = bool(beams.log_probs[done].isnan().any())
        self.has_nan = self.has_nan or has_nan
        most_idle = 0.0 if has_nan else _MOST_IDLE
        self._running = self._with_few_idle(*_mark_idle(beams, state, done), most_idle)
        self._size -= len(found)
        return found

    def drop(self, sentences: Collection[int]) -> None:
        """Remove some sentences, with what was found for them."""
        if self._running is None or not sentences:
            return
        beams, state = self._in_full(self._running)
        unwanted = torch.isin(beams.sentences, beams.sentences.new_tensor(list(sentences)))
        beams, state = _mark_idle(beams, state, unwanted)
        self._running = self._with_few_idle(beams, state)
        self._size = int((~beams.idle).sum())

    def _in_full(self, running: tuple[Beams, S]) -> tuple[Beams, S]:
        """Return the search with a row in the state for each hypothesis, from now on."""
        beams, state = running
        if self._is_fresh:
            state, self._is_fresh = self._with_all_rows(state, beams.sentences), False
        return beams, state

    def _with_all_rows(self, state: S, sentences: Tensor) -> S:
        """Return a state with one row for each sentence as one with a row for each hypothesis."""
        width = self._settings.beam
        rows = torch.arange(sentences.shape[0], device=sentences.device)
        return state.select(rows.repeat_interleave(width), width)

    def _with_few_idle(
        self, beams: Beams, state: S, most_idle: float = _MOST_IDLE
    ) -> tuple[Beams, S] | None:
        """Return the search without its idle rows, if these are too many; None if all are."""
        size, busy = beams.sentences.shape[0], torch.nonzero(~beams.idle).flatten()
        if not busy.shape[0]:
            return None
        if size - busy.shape[0] <= most_idle * size:
            return beams, state
        return beams.select(busy), state.select(self._rows_of(busy), self._settings.beam)

    def _with_places(self, beams: Beams, state: S, wanted: int) -> tuple[Beams, S]:
        """Return the search with idle rows for at least `wanted` sentences."""
        size = beams.sentences.shape[0]
        missing = wanted - int(beams.idle.sum())
        if missing <= 0:
            return beams, state
        # Copies of the first sentence, marked as idle.
        sources = pad(torch.arange(size, device=beams.sentences.device), (0, missing))
        beams = beams.select(sources)
        state = state.select(self._rows_of(sources), self._settings.beam)
        added = torch.arange(size + missing, device=sources.device) >= size
        return _mark_idle(beams, state, added)

    def _rows_of(self, sources: Tensor) -> Tensor:
        """Return the rows of all hypotheses of some sentences."""
        width = self._settings.beam
        rows = sources[:, None] * width + torch.arange(width, device=sources.device)
        return rows.flatten()


def _mark_idle(beams: Beams, state: S, rows: Tensor) -> tuple[Beams, S]:
    """Return the search with some sentences, given by a mask [B], removed; their rows stay.

    Rows that are idle already are reset as well: else they would become the longest of all.
    """
    rows = rows | beams.idle
    return beams.mark_idle(rows), state.reset(torch.nonzero(rows).flatten())


def beam_search(
    step: Step[S],
    state: S,
    first_ids: Tensor,  # [B]
    limits: Tensor,  # [B]
    settings: SearchSettings,
    vocab: Vocab,
    prefixes: list[list[int]] | None = None,
    allowed: Constraint[S] | None = None,
) -> list[list[Hypothesis]]:
    """Return the `nbest` best outputs of each sentence, best first.

    The arguments are those of `BeamSearch` and its `add`. Finished sentences leave the batch. A
    sentence for which `allowed` allows no output has none.

    Paper: §6.1.
    """
    search = BeamSearch(step, settings, vocab, allowed)
    numbers = torch.arange(limits.shape[0], device=limits.device)
    search.add(state, numbers, first_ids, limits, prefixes)
    found: Found = []
    while search:
        found += search.advance()
    if search.has_nan and not all(hypotheses for _, hypotheses in found):
        raise nan_logits()
    return [hypotheses for _, hypotheses in sorted(found, key=lambda each: each[0])]
