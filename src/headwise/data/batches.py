"""Batches: pairs of about the same length, under a budget of tokens for each side.

Paper: §5.1. The order is keyed, not carried: it depends on (seed, epoch) and on nothing else, so
that there is no state to save and any epoch can be entered anywhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.config import Vocab
from headwise.data.shards import Packed, TokenShards
from headwise.seeding import keyed_generator

_POOL_PAIRS = 200_000
"""Pairs ordered by length together: enough to find neighbours, few enough to start at once."""

_SMALLEST_SHARE = (0.1, 0.3)
"""Bounds of the share of its pairs that a half may have at least when a pool is halved."""

Indices = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Padded ids, as `headwise.model.check_batch` wants them."""

    src: Tensor  # [B, S]
    tgt_in: Tensor  # [B, T]
    tgt_out: Tensor  # [B, T]

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        return Batch(
            src=self.src.to(device), tgt_in=self.tgt_in.to(device), tgt_out=self.tgt_out.to(device)
        )

    def padding(self) -> float:
        """Return the share of positions that hold padding."""
        cells = self.src.numel() + self.tgt_out.numel()
        pads = (self.src == Vocab.pad).sum() + (self.tgt_out == Vocab.pad).sum()
        return int(pads) / cells


class Batches:
    """Cut stored pairs into batches of at most `batch_tokens` positions on each side.

    Positions count padding too, so that the budget bounds memory. Pairs that are longer than the
    budget on either side, or than `longest`, fit no batch; `too_long` lists them.

    Paper: §5.1.
    """

    def __init__(
        self, shards: TokenShards, *, batch_tokens: int, seed: int, longest: int | None = None
    ) -> None:
        self._shards = shards
        self._budget = batch_tokens
        self._seed = seed
        # Each side has one more position than tokens: eos, or bos before and eos after.
        self._source_lengths = shards.lengths("source") + 1
        self._target_lengths = shards.lengths("target") + 1
        longer = np.maximum(self._source_lengths, self._target_lengths)
        fits = longer <= min(batch_tokens, longest or batch_tokens)
        self.too_long: Indices = np.flatnonzero(~fits)
        self._usable: Indices = np.flatnonzero(fits)
        self.target_tokens = int(self._target_lengths[self._usable].sum())
        """Target tokens of an epoch, ends of sentences included."""

    def epoch(self, number: int) -> Iterator[Indices]:
        """Yield the pairs of each batch of an epoch, every usable pair once."""
        generator = keyed_generator("batches", self._seed, number)
        shuffled = generator.permutation(self._usable)
        for start in range(0, len(shuffled), _POOL_PAIRS):
            pool = shuffled[start : start + _POOL_PAIRS]
            ordered = self._neighbours(pool, generator.uniform(*_SMALLEST_SHARE))
            batches = list(self._cut(ordered))
            for position in generator.permutation(len(batches)):
                yield batches[position]

    def collate(self, pairs: Indices) -> Batch:
        """Read the pairs of a batch and pad them."""
        source, target = (self._shards.sequences(side, pairs) for side in ("source", "target"))
        return Batch(
            src=_padded(source, after=Vocab.eos),
            tgt_in=_padded(target, before=Vocab.bos),
            tgt_out=_padded(target, after=Vocab.eos),
        )

    def tokens(self, pairs: Indices) -> tuple[int, int]:
        """Count the source and target tokens of a batch, ends of sentences included."""
        return int(self._source_lengths[pairs].sum()), int(self._target_lengths[pairs].sum())

    def padding(self) -> float:
        """Return the share of the first epoch's positions that hold padding."""
        cells = filled = 0
        for pairs in self.epoch(0):
            cells += len(pairs) * sum(self._longest(pairs))
            filled += sum(self.tokens(pairs))
        return 1 - filled / cells

    def __len__(self) -> int:
        """Return the number of usable pairs."""
        return len(self._usable)

    def _neighbours(self, pool: Indices, smallest_share: float) -> Indices:
        """Order a pool so that neighbours are alike on both sides.

        Sorted by one side alone, a batch would span all lengths of the other. So the pool is cut
        in two where that saves most padding, by source or by target length, and so are its parts
        until each fits a batch; of two parts, the one more like what came before comes first.
        No part may be too small, or the work would grow with the square of the pool. How small
        is drawn anew each epoch, and with it where all cuts fall, so that other pairs meet.
        """
        done: list[Indices] = []
        ahead = [pool]
        source = target = 0  # the longest of the part that was last done
        while ahead:
            part = ahead.pop()
            longest = self._longest(part)
            if len(part) * max(longest) <= self._budget:
                done.append(part)
                source, target = longest
                continue
            halves = self._halves(part, smallest_share)
            far = [abs(s - source) + abs(t - target) for s, t in map(self._longest, halves)]
            ahead += halves if far[0] > far[1] else halves[::-1]
        return np.concatenate(done)

    def _halves(self, part: Indices, smallest_share: float) -> list[Indices]:
        """Cut pairs by the length of one side so that padding both halves takes least room."""
        sides = self._source_lengths[part], self._target_lengths[part]
        fewest = max(1, int(len(part) * smallest_share))
        rows = np.arange(fewest, len(part) - fewest + 1)
        best: tuple[int, list[Indices]] | None = None
        for sorted_side, other_side in (sides, sides[::-1]):
            # Stable, on a shuffled pool: pairs of equal lengths stay in random order.
            order = np.argsort(sorted_side, kind="stable")
            along, across = sorted_side[order], other_side[order]
            below, above = (
                np.maximum.accumulate(across)[rows - 1],
                np.maximum.accumulate(across[::-1])[::-1][rows],
            )
            room = rows * (along[rows - 1] + below) + (len(part) - rows) * (along[-1] + above)
            least = int(np.argmin(room))
            if best is None or room[least] < best[0]:
                cut = rows[least]
                best = int(room[least]), [part[order[:cut]], part[order[cut:]]]
        assert best is not None
        return best[1]

    def _longest(self, pairs: Indices) -> tuple[int, int]:
        return int(self._source_lengths[pairs].max()), int(self._target_lengths[pairs].max())

    def _cut(self, pairs: Indices) -> Iterator[Indices]:
        """Cut pairs, ordered by length, into the longest runs that fit the budget padded."""
        sources, targets = (
            self._source_lengths[pairs].tolist(),
            self._target_lengths[pairs].tolist(),
        )
        start = longest_source = longest_target = 0
        for end, (source, target) in enumerate(zip(sources, targets, strict=True)):
            longest_source, longest_target = (
                max(longest_source, source),
                max(longest_target, target),
            )
            if (end + 1 - start) * max(longest_source, longest_target) > self._budget:
                yield pairs[start:end]
                start, longest_source, longest_target = end, source, target
        if start < len(pairs):
            yield pairs[start:]


def _padded(packed: Packed, *, before: int | None = None, after: int | None = None) -> Tensor:
    """Lay sequences out in rows, each with one special id before it or after it."""
    ids, lengths = packed
    rows = np.full((len(lengths), lengths.max() + 1), Vocab.pad, dtype=np.int64)
    taken = np.arange(lengths.max()) < lengths[:, None]
    if before is not None:
        rows[:, 0] = before
        rows[:, 1:][taken] = ids
    if after is not None:
        rows[:, :-1][taken] = ids
        rows[np.arange(len(lengths)), lengths] = after
    return torch.from_numpy(rows)
