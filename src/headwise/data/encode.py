"""From raw pairs to token ids: what one process does with one block of lines."""

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from headwise.config import DataConfig
from headwise.data.shards import Packed
from headwise.data.subwords import Subwords
from headwise.data.text import Block, LineReport, decode_block
from headwise.seeding import hashed


@dataclass(frozen=True, kw_only=True)
class EncodedBlock:
    """The pairs of a block that are to be trained on, and those held out of it."""

    train: dict[str, Packed]
    held_out: dict[str, Packed]
    fingerprints: NDArray[np.uint64]
    """64 bits of each training pair's text, to know a duplicate by; none if none is looked for."""
    report: LineReport


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """Encode blocks; whatever it holds can be handed to another process."""

    source: Subwords
    target: Subwords
    data: DataConfig
    lenient: bool = False
    holdout_share: float = 0.0
    seed: int = 1

    def encode(self, block: Block) -> EncodedBlock:
        """Decode, clean and encode a block, counting whatever is left out."""
        pairs, report = decode_block(block, lenient=self.lenient)
        sources, targets = (
            subwords.encode_all([pair[side] for pair in pairs])
            for side, subwords in enumerate((self.source, self.target))
        )
        kept: dict[bool, list[tuple[list[int], list[int]]]] = {True: [], False: []}
        fingerprints: list[int] = []
        for (source, target), *ids in zip(pairs, sources, targets, strict=True):
            if reason := self._objection(source, target, *map(len, ids)):
                report.dropped[reason] += 1
                report.kept -= 1
                continue
            held_out = self._is_held_out(source)
            kept[held_out].append((ids[0], ids[1]))
            if self.data.drop_duplicates and not held_out:
                fingerprints.append(hashed(f"{source}\0{target}"))
        return EncodedBlock(
            train=_packed(kept[False]),
            held_out=_packed(kept[True]),
            fingerprints=np.array(fingerprints, dtype=np.uint64),
            report=report,
        )

    def _objection(self, source: str, target: str, source_tokens: int, target_tokens: int) -> str:
        """Return why a pair is not wanted, or nothing."""
        data = self.data
        longer, shorter = max(source_tokens, target_tokens), min(source_tokens, target_tokens)
        if data.drop_copies and source == target:
            return "target equal to its source"
        if 0 < data.max_tokens < longer:
            return "longer than data.max_tokens"
        if data.max_ratio > 0 and longer > data.max_ratio * shorter:
            return "beyond data.max_ratio"
        return ""

    def _is_held_out(self, source: str) -> bool:
        """Decide by the source alone, so that no sentence is in both parts in any translation."""
        if not self.holdout_share:
            return False
        return hashed(f"holdout {self.seed} {source}") < self.holdout_share * 2**64


def _packed(pairs: list[tuple[list[int], list[int]]]) -> dict[str, Packed]:
    return {
        stream: (
            np.fromiter(chain.from_iterable(pair[side] for pair in pairs), dtype=np.int64),
            np.fromiter((len(pair[side]) for pair in pairs), dtype=np.int64),
        )
        for side, stream in enumerate(("source", "target"))
    }
