"""From text files towards batches of token ids: so far, reading parallel text."""

from headwise.data.text import (
    Block,
    LineReport,
    ParallelFiles,
    TsvFile,
    decode_block,
    read_blocks,
)

__all__ = ["Block", "LineReport", "ParallelFiles", "TsvFile", "decode_block", "read_blocks"]
