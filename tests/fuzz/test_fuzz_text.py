"""Text files, plain and compressed."""

import gzip
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st

from headwise.data.text import ParallelFiles, TsvFile, decode_block, read_blocks, read_lines
from tests.fuzz.conftest import Fuzz
from tests.fuzz.contract import result_or_refusal
from tests.fuzz.mutations import mutated

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = "\ufeffa b\tc d\r\né ü\tß\n\n\u2028\t\0\nlast\tline".encode()

PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".txt": bytes,
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}


def use_text(path: Path) -> None:
    """Read a file in every way there is."""
    result_or_refusal(lambda: list(read_lines(path)))
    for text in (TsvFile(path=path), ParallelFiles.of(path, path)):
        for lenient in (False, True):
            result_or_refusal(
                lambda: [decode_block(block, lenient=lenient) for block in read_blocks(text, 2)]  # noqa: B023
            )


@pytest.mark.parametrize("suffix", PACKED)
def test_text_files(fuzz: Fuzz, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"text{suffix}"
    pack = PACKED[suffix]

    def read(content: bytes) -> None:
        path.write_bytes(content)
        use_text(path)

    two_streams = pack(TEXT) + pack(b"more\n")
    fuzz(
        mutated(pack(TEXT)) | mutated(two_streams) | mutated(TEXT).map(pack) | st.binary(),
        read,
    )
