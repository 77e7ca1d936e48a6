"""Draw outputs that join and leave while others go on."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from headwise.config import Vocab
from headwise.decoding.best import largest
from headwise.decoding.drawing import draw
from headwise.decoding.settings import S, Step, forbidden_ids
from headwise.seeding import keyed_generator

_MOST_IDLE = 0.25
"""The share of rows that may be idle, as in `BeamSearch`."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How to draw one output."""

    key: tuple[int, ...]
    """What is drawn depends on it and on the model, not on other outputs."""
    limit: int
    """After so many tokens it ends, even if eos was not drawn."""
    temperature: float = 1.0
    """0: the most probable token is taken each time."""
    top_k: int = 0
    top_p: float = 1.0
    num_best: int = 0
    """How many of the most probable tokens to return beside each token drawn."""


class DrawnToken(NamedTuple):
    """The next token of one output."""

    number: int
    """Which output."""
    id: int
    log_prob: float
    """The model's own, before temperature, top_k and top_p; NaN if the logits were."""
    is_last: bool
    best: tuple[tuple[int, float], ...]
    """The most probable tokens and their log-probabilities, as many as were asked for."""


class _Row:
    """An output that is being drawn."""

    def __init__(self, number: int, drawing: Drawing) -> None:
        self.number, self.drawing, self.length = number, drawing, 0
        self.generator = keyed_generator("sample", drawing.key)


class DrawSearch(Generic[S]):
    """Draw any number of outputs, a token of each at a time; some may be added later.

    Each has settings of its own. As in `BeamSearch`, the row of one that has ended stays, idle,
    until another takes it over or too many are idle.
    """

    def __init__(self, step: Step[S], vocab: Vocab) -> None:
        self._step, self._vocab = step, vocab
        self._state: S | None = None
        self._ids = torch.empty(0, dtype=torch.long)
        self._rows: list[_Row | None] = []
        """The output of each row of the state; None: idle."""
        self.close_draws = 0
        """Draws that rounding could have decided: other neighbours could change them."""

    def __len__(self) -> int:
        """Return how many outputs have not ended."""
        return sum(row is not None for row in self._rows)

    def add(self, state: S, first_ids: Tensor, drawings: Mapping[int, Drawing]) -> None:
        """Begin outputs, by their numbers.

        `state` has a row for each, in their order, and `first_ids` [R] are what its first step
        takes.
        """
        rows = [_Row(*each) for each in drawings.items()]
        if self._state is None:
            self._state, self._ids, self._rows = state, first_ids, list(rows)
            return
        self._make_room(len(rows))
        idle = [place for place, row in enumerate(self._rows) if row is None][: len(rows)]
        places = torch.tensor(idle, device=first_ids.device)
        self._state = self._state.replace(places, state)
        self._ids = self._ids.index_copy(0, places, first_ids)
        for place, row in zip(idle, rows, strict=True):
            self._rows[place] = row

    def advance(self) -> list[DrawnToken]:
        """Draw the next token of each output."""
        if self._state is None:
            return []
        logits, self._state = self._step(self._ids, self._state)
        busy = {place: row for place, row in enumerate(self._rows) if row is not None}
        places = torch.tensor(list(busy), device=logits.device)
        if len(busy) < len(self._rows):
            logits = logits[places]
        rows = list(busy.values())
        log_probs = logits.log_softmax(1)
        ids = self._drawn(logits, rows)
        chosen = log_probs.gather(1, ids[:, None]).flatten().tolist()
        best = _best(log_probs, rows)
        self._ids = self._ids.index_copy(0, places, ids)
        found = []
        for row, token, log_prob, others in zip(rows, ids.tolist(), chosen, best, strict=True):
            row.length += 1
            is_last = (
                token == self._vocab.eos or row.length >= row.drawing.limit or math.isnan(log_prob)
            )
            found.append(DrawnToken(row.number, token, log_prob, is_last, others))
        if ended := {each.number for each in found if each.is_last}:
            # As in `BeamSearch`: masking does not hide NaN in a cache from who takes over the row.
            self._remove(ended, has_nan=any(map(math.isnan, chosen)))
        return found

    def drop(self, numbers: Collection[int]) -> None:
        """Remove some outputs."""
        self._remove(numbers)

    def _drawn(self, logits: Tensor, rows: Sequence[_Row]) -> Tensor:
        """Draw a token for each row [R, V] of logits, which are written to."""
        logits[:, forbidden_ids(self._vocab)] = -math.inf
        ids = torch.empty(len(rows), dtype=torch.long, device=logits.device)
        # Rows with equal settings are drawn at once: what is drawn for one depends on no other.
        alike: defaultdict[tuple[float, int, float], list[int]] = defaultdict(list)
        for number, row in enumerate(rows):
            drawing = row.drawing
            alike[drawing.temperature, drawing.top_k, drawing.top_p].append(number)
        for (temperature, top_k, top_p), numbers in alike.items():
            index = torch.tensor(numbers, device=logits.device)
            part = logits if len(numbers) == len(rows) else logits[index]
            if temperature == 0:
                _, ids[index] = largest(part)
                continue
            uniforms = torch.tensor([rows[number].generator.random() for number in numbers])
            ids[index], is_close = draw(
                part / temperature, uniforms.to(logits.device), top_k, top_p
            )
            self.close_draws += int(is_close.sum())
        return ids

    def _make_room(self, wanted: int) -> None:
        """Have at least so many idle rows."""
        assert self._state is not None
        missing = wanted - self._rows.count(None)
        if missing > 0:
            # Copies of the first row, idle.
            self._select(pad(torch.arange(len(self._rows), device=self._ids.device), (0, missing)))
            self._rows[-missing:] = [None] * missing
            self._reset()

    def _remove(self, numbers: Collection[int], *, has_nan: bool = False) -> None:
        self._rows = [None if row and row.number in numbers else row for row in self._rows]
        idle = self._rows.count(None)
        if self._state is None or not idle:
            return
        if idle == len(self._rows):
            self._state, self._ids, self._rows = None, self._ids[:0], []
        elif has_nan or idle > _MOST_IDLE * len(self._rows):
            busy = [place for place, row in enumerate(self._rows) if row is not None]
            self._select(torch.tensor(busy, device=self._ids.device))
        else:
            self._reset()

    def _select(self, places: Tensor) -> None:
        assert self._state is not None
        self._state, self._ids = self._state.select(places), self._ids[places]
        self._rows = [self._rows[place] for place in places.tolist()]

    def _reset(self) -> None:
        """Hide the past of idle rows: else they would become the longest of all."""
        assert self._state is not None
        idle = [place for place, row in enumerate(self._rows) if row is None]
        self._state = self._state.reset(torch.tensor(idle, device=self._ids.device))


def _best(log_probs: Tensor, rows: Sequence[_Row]) -> list[tuple[tuple[int, float], ...]]:
    """Return the most probable tokens of each row [R, V], as many as it asks for."""
    most = min(max(row.drawing.num_best for row in rows), log_probs.shape[1])
    if not most:
        return [()] * len(rows)
    values, ids = log_probs.topk(most, dim=1)
    pairs = zip(rows, ids.tolist(), values.tolist(), strict=True)
    return [
        tuple(zip(tokens, found, strict=True))[: row.drawing.num_best]
        for row, tokens, found in pairs
    ]
