"""From text files to batches of token ids: read, cut into subwords, store, batch."""

from headwise.data.prepare import PreparedReport, Text, prepare
from headwise.data.shards import ShardWriter, TokenShards
from headwise.data.subwords import Subwords, sample_pairs
from headwise.data.text import (
    Block,
    LineReport,
    ParallelFiles,
    TsvFile,
    decode_block,
    read_blocks,
    read_lines,
)
from headwise.data.tokenizer import load_subwords, save_subwords

__all__ = [
    "Block",
    "LineReport",
    "ParallelFiles",
    "PreparedReport",
    "ShardWriter",
    "Subwords",
    "Text",
    "TokenShards",
    "TsvFile",
    "decode_block",
    "load_subwords",
    "prepare",
    "read_blocks",
    "read_lines",
    "sample_pairs",
    "save_subwords",
]
