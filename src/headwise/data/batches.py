"""Batches: pairs of about the same length, under a budget of tokens for each side.

Paper: §5.1. The order is keyed, not carried: it depends on (seed, epoch) and on nothing else, so
that there is no state to save and any epoch can be entered anywhere.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.config import Vocab
from headwise.data.shards import TokenShards

_POOL_PAIRS = 200_000
"""Pairs sorted by length together: enough to find neighbours, few enough to start at once."""

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
    budget on either side fit no batch; `too_long` lists them.

    Paper: §5.1.
    """

    def __init__(self, shards: TokenShards, *, batch_tokens: int, seed: int) -> None:
        self._shards = shards
        self._budget = batch_tokens
        self._seed = seed
        # Each side has one more position than tokens: eos, or bos before and eos after.
        self._source_lengths = shards.lengths("source") + 1
        self._target_lengths = shards.lengths("target") + 1
        longest = np.maximum(self._source_lengths, self._target_lengths)
        self.too_long: Indices = np.flatnonzero(longest > batch_tokens)
        self._usable: Indices = np.flatnonzero(longest <= batch_tokens)
        self.target_tokens = int(self._target_lengths[self._usable].sum())
        """Target tokens of an epoch, ends of sentences included."""

    def epoch(self, number: int) -> Iterator[Indices]:
        """Yield the pairs of each batch of an epoch, every usable pair once."""
        generator = _keyed_generator("batches", self._seed, number)
        shuffled = generator.permutation(self._usable)
        for start in range(0, len(shuffled), _POOL_PAIRS):
            pool = shuffled[start : start + _POOL_PAIRS]
            batches = list(self._cut(self._sorted(pool)))
            for position in generator.permutation(len(batches)):
                yield batches[position]

    def collate(self, pairs: Indices) -> Batch:
        """Read the pairs of a batch and pad them."""
        sources = [self._shards.sequence("source", int(pair)) for pair in pairs]
        targets = [self._shards.sequence("target", int(pair)) for pair in pairs]
        return Batch(
            src=_padded(sources, before=None, after=Vocab.eos),
            tgt_in=_padded(targets, before=Vocab.bos, after=None),
            tgt_out=_padded(targets, before=None, after=Vocab.eos),
        )

    def tokens(self, pairs: Indices) -> tuple[int, int]:
        """Count the source and target tokens of a batch, ends of sentences included."""
        return int(self._source_lengths[pairs].sum()), int(self._target_lengths[pairs].sum())

    def __len__(self) -> int:
        """Return the number of usable pairs."""
        return len(self._usable)

    def _sorted(self, pool: Indices) -> Indices:
        """Sort a pool so that neighbours are alike on both sides.

        Sorted by one side alone, a batch would span all lengths of the other. So the pool is cut
        by target length into as many groups as there will be batches in each, and each group is
        sorted by source length, every other one backwards so that no batch joins two extremes.
        The sorts are stable on a shuffled pool: pairs of equal lengths stay in random order.
        """
        tokens = max(self._source_lengths[pool].sum(), self._target_lengths[pool].sum())
        num_groups = max(1, round(math.sqrt(tokens / self._budget)))
        by_target = pool[np.argsort(self._target_lengths[pool], kind="stable")]
        groups = np.array_split(by_target, num_groups)
        return np.concatenate(
            [
                group[np.argsort(self._source_lengths[group] * (-1) ** number, kind="stable")]
                for number, group in enumerate(groups)
            ]
        )

    def _cut(self, pairs: Indices) -> Iterator[Indices]:
        """Cut pairs, sorted by length, into the longest runs that fit the budget padded."""
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


def _padded(
    sequences: list[NDArray[np.unsignedinteger]], *, before: int | None, after: int | None
) -> Tensor:
    extra = (before is not None) + (after is not None)
    width = max(len(sequence) for sequence in sequences) + extra
    rows = np.full((len(sequences), width), Vocab.pad, dtype=np.int64)
    for row, sequence in zip(rows, sequences, strict=True):
        start = 0 if before is None else 1
        end = start + len(sequence)
        row[start:end] = sequence
        if before is not None:
            row[0] = before
        if after is not None:
            row[end] = after
    return torch.from_numpy(rows)


def _keyed_generator(*key: object) -> np.random.Generator:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
