"""Batches: examples of about the same length, under a budget of tokens for each of their fields.

Paper: §5.1. The order is keyed, not carried: it depends on (seed, epoch) and on nothing else, so
that there is no state to save and any epoch can be entered anywhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.data.shards import Packed, TokenShards
from headwise.seeding import keyed_generator

_POOL_EXAMPLES = 200_000
"""Examples ordered by length together: enough to find neighbours, few enough to start at once."""

_SMALLEST_SHARE = (0.1, 0.3)
"""Bounds of the share of its examples that a half may have at least when a pool is halved."""

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Field:
    """One stream of an example: what it is called in the shards, and how long its rows become."""

    name: str
    extra: int = 0
    """Positions that a row of a batch has beyond what is stored: 1 where collating adds an id."""
    vocab: Literal["source", "target", ""] = ""
    """Whose ids it has; empty for floats."""
    in_budget: bool = True
    """Whether its positions count towards `train.batch_tokens`, and as tokens where those are
    reported."""


class Batches:
    """Cut stored examples into batches of at most `batch_tokens` positions of each field.

    Positions count padding too, so that the budget bounds memory. Examples that are longer than
    the budget, or than `longest`, fit no batch; `too_long` lists them. What a batch predicts, and
    what training counts, are the tokens of the last field.

    Paper: §5.1.
    """

    def __init__(
        self,
        shards: TokenShards,
        fields: Sequence[Field],
        *,
        batch_tokens: int,
        seed: int,
        longest: int | None = None,
    ) -> None:
        self._shards, self.fields = shards, tuple(fields)
        self._budget, self._seed = batch_tokens, seed
        lengths = {f.name: shards.lengths(f.name) + f.extra for f in fields}
        self._lengths = [lengths[f.name] for f in fields if f.in_budget]
        longer = np.maximum.reduce(self._lengths)
        fits = longer <= min(batch_tokens, longest or batch_tokens)
        self.too_long: Indices = np.flatnonzero(~fits)
        self._usable: Indices = np.flatnonzero(fits)
        self._targets = lengths[fields[-1].name]
        counted = {f.name: lengths[f.name] for f in fields[:-1] if f.in_budget}
        self._all_lengths = {**counted, "target": self._targets}
        self.target_tokens = int(self._targets[self._usable].sum())
        """Tokens to predict in an epoch."""

    def epoch(self, number: int) -> Iterator[Indices]:
        """Yield the examples of each batch of an epoch, every usable example once."""
        generator = keyed_generator("batches", self._seed, number)
        shuffled = generator.permutation(self._usable)
        for start in range(0, len(shuffled), _POOL_EXAMPLES):
            pool = shuffled[start : start + _POOL_EXAMPLES]
            ordered = self._neighbours(pool, generator.uniform(*_SMALLEST_SHARE))
            batches = list(self._cut(ordered))
            for position in generator.permutation(len(batches)):
                yield batches[position]

    def read(self, examples: Indices) -> dict[str, Packed]:
        """Read the fields of some examples, to be collated."""
        return {f.name: self._shards.sequences(f.name, examples) for f in self.fields}

    def tokens(self, examples: Indices) -> dict[str, int]:
        """Count the tokens of a batch by field, without padding; the last is called "target"."""
        return {name: int(lengths[examples].sum()) for name, lengths in self._all_lengths.items()}

    def targets(self, examples: Indices) -> int:
        """Count the tokens that a batch predicts."""
        return int(self._targets[examples].sum())

    def positions(self, examples: Indices) -> int:
        """Count the positions of a batch, with padding."""
        lengths = self._all_lengths.values()
        return sum(len(examples) * int(each[examples].max()) for each in lengths)

    def padding(self) -> float:
        """Return the share of the first epoch's positions that hold padding."""
        positions = filled = 0
        for examples in self.epoch(0):
            positions += self.positions(examples)
            filled += sum(self.tokens(examples).values())
        return 1 - filled / positions

    def targets_each(self) -> float:
        """Return how many targets there are for each position that counts in the budget."""
        if self.fields[-1].in_budget:
            return 1.0
        longest = np.maximum.reduce(self._lengths)
        return self.target_tokens / max(1, int(longest[self._usable].sum()))

    def __len__(self) -> int:
        """Return the number of usable examples."""
        return len(self._usable)

    def _neighbours(self, pool: Indices, smallest_share: float) -> Indices:
        """Order a pool so that neighbours are alike in every field.

        Sorted by one field alone, a batch would span all lengths of another. So the pool is cut in
        two where that saves most padding, by the length of one of the fields, and so are its parts
        until each fits a batch; of two parts, the one more like what came before comes first. No
        part may be too small, or the work would grow with the square of the pool. How small is
        drawn anew each epoch, and with it where all cuts fall, so that other examples meet.
        """
        done: list[Indices] = []
        ahead = [pool]
        before: Sequence[int] = [0] * len(self._lengths)  # the longest of the last part
        while ahead:
            part = ahead.pop()
            longest = self._longest(part)
            if len(part) * max(longest) <= self._budget:
                done.append(part)
                before = longest
                continue
            halves = self._halves(part, smallest_share)
            far = [
                sum(abs(length - last) for length, last in zip(lengths, before, strict=True))
                for lengths in map(self._longest, halves)
            ]
            ahead += halves if far[0] > far[1] else halves[::-1]
        return np.concatenate(done)

    def _halves(self, part: Indices, smallest_share: float) -> list[Indices]:
        """Cut examples by the length of one field so that padding both halves takes least room."""
        fields = [lengths[part] for lengths in self._lengths]
        fewest = max(1, int(len(part) * smallest_share))
        rows = np.arange(fewest, len(part) - fewest + 1)
        best: tuple[int, list[Indices]] | None = None
        for number, sorted_field in enumerate(fields):
            # Stable, on a shuffled pool: examples of equal lengths stay in random order.
            order = np.argsort(sorted_field, kind="stable")
            along = sorted_field[order]
            first, second = along[rows - 1], along[-1]
            for other in fields[:number] + fields[number + 1 :]:
                across = other[order]
                first = first + np.maximum.accumulate(across)[rows - 1]
                second = second + np.maximum.accumulate(across[::-1])[::-1][rows]
            room = rows * first + (len(part) - rows) * second
            least = int(np.argmin(room))
            if best is None or room[least] < best[0]:
                cut = rows[least]
                best = int(room[least]), [part[order[:cut]], part[order[cut:]]]
        assert best is not None
        return best[1]

    def _longest(self, examples: Indices) -> list[int]:
        return [int(lengths[examples].max()) for lengths in self._lengths]

    def _cut(self, examples: Indices) -> Iterator[Indices]:
        """Cut examples, ordered by length, into the longest runs that fit the budget padded."""
        longest = np.maximum.reduce([lengths[examples] for lengths in self._lengths]).tolist()
        start = width = 0
        for end, length in enumerate(longest):
            width = max(width, length)
            if (end + 1 - start) * width > self._budget:
                yield examples[start:end]
                start, width = end, length
        if start < len(examples):
            yield examples[start:]


def padded(
    packed: Packed, *, pad: int, before: int | None = None, after: int | None = None
) -> Tensor:
    """Lay sequences of ids out in rows [B, T], each with special ids before and after it."""
    ids, lengths = packed
    lead, trail = int(before is not None), int(after is not None)
    rows = np.full((len(lengths), lengths.max() + lead + trail), pad, dtype=np.int64)
    taken = np.arange(lengths.max()) < lengths[:, None]
    rows[:, lead : lead + lengths.max()][taken] = ids
    if before is not None:
        rows[:, 0] = before
    if after is not None:
        rows[np.arange(len(lengths)), lead + lengths] = after
    return torch.from_numpy(rows)


def on_device(batch: tuple[Tensor, ...], device: torch.device) -> tuple[Tensor, ...]:
    """Return a batch on a device."""
    return tuple(tensor.to(device) for tensor in batch)


Rows = Mapping[str, Packed]
"""The fields of the examples of a batch, as `Batches.read` returns them."""
