"""Pairs of a source and a target as batches."""

from typing import NamedTuple

from torch import Tensor

from headwise.config import Vocab
from headwise.data.batches import Field, Rows, padded

PAIR_FIELDS: tuple[Field, ...] = (
    Field("source", extra=1, vocab="source"),
    Field("target", extra=1, vocab="target"),
)
"""Each side has one more position than tokens: its eos, or bos before and eos after."""


class PairBatch(NamedTuple):
    """Padded ids, as `headwise.model.check_batch` wants them."""

    src: Tensor  # [B, S]
    tgt_in: Tensor  # [B, T]
    tgt_out: Tensor  # [B, T]


def collate_pairs(rows: Rows, vocab: Vocab) -> PairBatch:
    """Pad pairs: sources end in eos, targets start from `vocab.start` and end in eos."""
    return PairBatch(
        src=padded(rows["source"], pad=vocab.pad, after=vocab.eos),
        tgt_in=padded(rows["target"], pad=vocab.pad, before=vocab.start),
        tgt_out=padded(rows["target"], pad=vocab.pad, after=vocab.eos),
    )
