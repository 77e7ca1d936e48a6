"""Text files, plain and compressed."""

import gzip
import lzma
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from headwise.config import ClassificationDataConfig, ImageTranscriptionDataConfig
from headwise.data import LineReport
from headwise.data.images import png
from headwise.data.text import ParallelFiles, TsvFile, decode_block, read_blocks, read_lines
from headwise.tasks.classification.files import LabelledFiles, read_examples
from headwise.tasks.classification.text import TEXT as TEXT_KIND
from headwise.tasks.transcription.files import TranscribedFiles, read_texts
from headwise.tasks.transcription.files import read_examples as read_transcribed
from headwise.tasks.transcription.lines import LINES
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


TABLES: dict[str, bytes] = {
    ".csv": b'\xef\xbb\xbftext,label\r\n"a ""b"",\nc",x\r\nd,y|z\n,\n',
    ".tsv": b"label\ttext\nx\ta b\ny|z\tc\n\t\n",
    ".jsonl": b'{"text": "a \\ud83d\\ude42", "label": "x"}\n{"text": "b", "label": ["y", "z"]}\n',
    ".txt": b"__label__x a b\nc __label__y __label__z\n\n",
}


@pytest.mark.parametrize("suffix", TABLES)
def test_labelled_texts(fuzz: Fuzz, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"labelled{suffix}"
    columns: dict[str, Any] = (
        {} if suffix == ".txt" else {"column": "text", "label_column": "label"}
    )
    files = LabelledFiles.of(path, **columns)
    data = ClassificationDataConfig(multi_label=True, label_separator="|")

    def read(content: bytes) -> None:
        path.write_bytes(content)
        for lenient in (False, True):
            reading = read_examples(files, data, TEXT_KIND, lenient=lenient, report=LineReport())
            result_or_refusal(partial(list, reading))

    fuzz(mutated(TABLES[suffix]) | st.binary(), read)


TRANSCRIBED: dict[str, bytes] = {
    ".csv": b'\xef\xbb\xbfpath,text\r\n"a.png","b ""c"", d"\r\nb.png,e\r\na.png, \r\n',
    ".tsv": b"text\tpath\na b\ta.png\nc\tb.png\n\ta.png\n",
    ".jsonl": b'{"path": "a.png", "text": "a \\ud83d\\ude42"}\n{"path": "b.png", "text": 3}\n',
}


@pytest.mark.parametrize("suffix", TRANSCRIBED)
def test_transcribed_images(fuzz: Fuzz, suffix: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(np.zeros((3, 5, 1), np.uint8)))
    path = tmp_path / f"lines{suffix}"
    files = TranscribedFiles.of(path, input="images", column="path", text_column="text")
    data = ImageTranscriptionDataConfig(height=4, longest_width=8)

    def read(content: bytes) -> None:
        path.write_bytes(content)
        result_or_refusal(lambda: list(read_texts(files)))
        for lenient in (False, True):
            reading = read_transcribed(files, data, LINES, lenient=lenient, report=LineReport())
            result_or_refusal(partial(list, reading))

    fuzz(mutated(TRANSCRIBED[suffix]) | st.binary(), read)


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
