"""From text files towards batches of token ids: so far, reading it and learning subwords."""

from headwise.data.subwords import Subwords, sample_pairs
from headwise.data.text import (
    Block,
    LineReport,
    ParallelFiles,
    TsvFile,
    decode_block,
    read_blocks,
)

__all__ = [
    "Block",
    "LineReport",
    "ParallelFiles",
    "Subwords",
    "TsvFile",
    "decode_block",
    "read_blocks",
    "sample_pairs",
]
