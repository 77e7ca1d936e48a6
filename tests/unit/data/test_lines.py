"""Files made to exhaust memory or time: refused by file and line, in bounded memory."""

import gzip
import lzma
import os
import struct
import subprocess
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Callable
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from headwise.data import ParallelFiles, TsvFile, lines, read_blocks, read_lines, subwords, text
from headwise.data.lines import raw_lines, stream_lines
from headwise.errors import ConfigError, DataError, RequestError
from headwise.evaluation import corpus, read_corpus, read_tsv_corpus
from headwise.inspect import explain
from headwise.recipes import load_recipe
from headwise.workflows import line_filter

PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}

MEBIBYTE = 1 << 20


def consume(path: Path) -> int:
    return sum(1 for _ in raw_lines(path))


def write_packed(path: Path, content: bytes, times: int) -> Path:
    """Write a content repeated, compressed, without ever holding all of it."""
    packers: dict[str, Callable[[Path], Any]] = {
        ".gz": partial(gzip.open, mode="wb"),
        ".xz": partial(lzma.open, mode="wb", preset=0),
        ".zst": partial(zstd.open, mode="wb"),
    }
    with packers[path.suffix](path) as file:
        for _ in range(times):
            file.write(content)
    return path


@pytest.mark.parametrize("chunk", [1, 3, 10])
def test_the_longest_line_is_read_and_one_byte_more_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 10)
    monkeypatch.setattr(lines, "_CHUNK", chunk)
    path = tmp_path / "t.en"
    for content in (b"0123456789\n\n0123456789", b"0123456789\n\n0123456789\n"):
        path.write_bytes(content)
        assert list(raw_lines(path)) == [b"0123456789", b"", b"0123456789"]
    for content in (b"a\n\n0123456789X", b"a\n\n0123456789X\nb\n", b"a\n\n0123456789\r\n"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"t\.en:3: longer than the 10 bytes that a line may"):
            consume(path)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
def test_an_endless_line_is_refused_in_bounded_memory(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    if suffix:
        write_packed(path, bytes(MEBIBYTE), 64)
    else:
        with path.open("wb") as file:
            file.truncate(10 << 30)  # A sparse file: 10 GiB of zeros that take no disk.
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=rf"t{suffix}:1: longer than the 1,048,576 bytes"):
            consume(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * MEBIBYTE


@pytest.mark.parametrize("suffix", PACK)
def test_a_file_that_unpacks_to_far_more_than_text_does_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(lines, "_EXPANSION_FROM", MEBIBYTE)
    path = write_packed(tmp_path / f"bomb{suffix}", (b"x" * 999 + b"\n") * 1000, 20)
    with pytest.raises(
        DataError, match=rf"bomb{suffix}, after line [\d,]+: cannot be read: .*more than 200 times"
    ):
        consume(path)


@pytest.mark.parametrize("suffix", PACK)
def test_a_small_file_may_repeat_itself(tmp_path: Path, suffix: str) -> None:
    path = write_packed(tmp_path / f"t{suffix}", b"the same sentence again\n" * 1000, 100)
    assert path.stat().st_size * lines.MOST_EXPANSION < 100_000 * 24
    assert consume(path) == 100_000


@pytest.mark.parametrize("suffix", PACK)
def test_a_large_file_of_text_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(lines, "_EXPANSION_FROM", 1000)
    path = tmp_path / f"t{suffix}"
    path.write_bytes(PACK[suffix](b"".join(b"sentence %d\n" % n for n in range(50_000))))
    assert consume(path) == 50_000


def test_decoders_with_huge_windows_are_refused(tmp_path: Path) -> None:
    parameter = zstd.CompressionParameter
    window = tmp_path / "window.zst"
    # 2 GiB, as `zstd --long=31` writes: the header is enough, so the content need not be large.
    compressor = zstd.ZstdCompressor(options={parameter.window_log: 31})
    window.write_bytes(compressor.compress(b"a\n") + compressor.flush())
    dictionary = tmp_path / "dictionary.xz"
    dictionary.write_bytes(xz_that_asks_for(1 << 30))
    for path in (window, dictionary):
        with pytest.raises(
            DataError, match=rf"{path.name}: cannot be read: .* a window of over 128 MiB"
        ):
            consume(path)


def xz_that_asks_for(dictionary: int) -> bytes:
    """Pack a line with a filter whose dictionary size is changed afterwards, checksum included."""
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 4096}]
    packed = bytearray(lzma.compress(b"a\n", filters=filters))
    # After the 12 bytes of the stream's header: size, flags, filter id, size of its properties,
    # and the dictionary's size as a number of half powers of two; then padding and a checksum.
    assert packed[12:16] == bytes([2, 0, 0x21, 1])
    packed[16] = 2 * (dictionary.bit_length() - 1 - 12)
    packed[20:24] = struct.pack("<I", zlib.crc32(packed[12:20]))
    return bytes(packed)


def test_the_usual_strong_compression_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.xz").write_bytes(lzma.compress(b"a\n", preset=9 | lzma.PRESET_EXTREME))
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    (tmp_path / "t.zst").write_bytes(compressor.compress(b"a\n") + compressor.flush())
    assert consume(tmp_path / "t.xz") == consume(tmp_path / "t.zst") == 1


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
def test_a_named_pipe_is_read_as_a_file(tmp_path: Path, suffix: str) -> None:
    """Which is what a shell's <(command) is."""
    path = tmp_path / f"pipe{suffix}"
    os.mkfifo(path)
    content = b"a\nb\n"
    packed = PACK[suffix](content) if suffix else content
    writer = threading.Thread(target=path.write_bytes, args=(packed,))
    writer.start()
    try:
        assert list(read_lines(path)) == ["a", "b"]
    finally:
        writer.join()


def test_a_block_of_long_lines_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_BLOCK_BYTES", 100)
    path, short = tmp_path / "long", tmp_path / "short"
    path.write_bytes((b"x" * 60 + b"\n") * 5)
    short.write_bytes(b"y\n" * 5)
    for files in (
        ParallelFiles.of(path, short),
        ParallelFiles.of(short, path),
        TsvFile(path=path),
    ):
        blocks = list(read_blocks(files))
        assert [(block.first_line, len(block.sources)) for block in blocks] == [
            (1, 2),
            (3, 2),
            (5, 1),
        ]


def test_a_sample_too_large_for_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subwords, "_MOST_SAMPLED", 100)
    pairs = [("a" * 20, "b" * 20)] * 1000
    assert len(subwords.sample_pairs(pairs, 2, seed=1)) == 2
    with pytest.raises(DataError, match=r"\(after 3 pairs of text\): lower data\.sample_pairs"):
        subwords.sample_pairs(pairs, 3, seed=1)
    grown = islice(((n * "a", "") for n in range(1, 1000)), 999)
    with pytest.raises(DataError, match="more than 100 characters"):
        subwords.sample_pairs(grown, 3, seed=1)


@pytest.mark.parametrize("limit", ["_MOST_LINES", "_MOST_CHARACTERS"])
def test_a_test_set_too_large_for_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    path, large = tmp_path / "small", tmp_path / "large"
    path.write_text("a\tb\n" * 3)
    large.write_text("a\tb\n" * 4)
    monkeypatch.setattr(corpus, limit, {"_MOST_LINES": 3, "_MOST_CHARACTERS": 9}[limit])
    assert len(read_corpus(path, [path])[0]) == len(read_tsv_corpus(path)[0]) == 3
    reads: tuple[Callable[[], object], ...] = (
        lambda: read_corpus(large, [path]),
        lambda: read_corpus(path, [large]),
        lambda: read_tsv_corpus(large),
    )
    for read in reads:
        with pytest.raises(DataError, match=r"large:4: more than the .* a test set may have"):
            read()


def test_a_stream_is_answered_up_to_a_line_that_is_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 10)
    monkeypatch.setattr(lines, "_CHUNK", 5)
    written: list[bytes] = []
    for lenient in (False, True):
        with pytest.raises(DataError, match="stdin:3: longer than the 10 bytes"):
            line_filter.translate_lines(
                BytesIO(b"a\nb\n" + b"c" * 11),
                "stdin",
                lambda texts, _: [text.upper() for text in texts],
                written.append,
                lenient=lenient,
                on_progress=lambda _: None,
            )
    assert b"".join(written) == b"A\nB\nA\nB\n"


def test_a_stream_of_long_lines_is_read_one_window_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five lines fit into a window; the reader must stop there until one is taken."""
    monkeypatch.setattr(line_filter, "_WINDOW_BYTES", 100)
    monkeypatch.setattr(line_filter, "_WINDOW_LINES", 50)
    ahead = line_filter._LinesAhead()
    for _ in range(5):
        assert not ahead.full()
        ahead.put(b"x" * 20)
    assert ahead.full()
    ahead.get()
    assert not ahead.full()
    many = line_filter._LinesAhead()
    for _ in range(50):
        assert not many.full()
        many.put(b"")
    assert many.full()
    content = b"".join(b"%d" % n * 15 + b"\n" for n in range(300))
    found = list(line_filter.windows(BytesIO(content), "stdin"))
    assert b"".join(line + b"\n" for window in found for line in window) == content


def test_a_recipe_larger_than_any_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text("# long\n" * 4500)
    load_recipe(path)
    with path.open("ab") as file:
        file.truncate(10 << 30)
    with pytest.raises(ConfigError, match=r"large\.toml: larger than the 32,768 bytes"):
        load_recipe(path)


def test_a_recipe_with_deeply_nested_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(f"[model]\nd_model.{'a.' * 2000}a = 1\n")
    with pytest.raises(ConfigError, match=r"deep\.toml: a value is nested too deeply"):
        load_recipe(path)


def test_matrices_larger_than_any_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("ab") as file:
        file.truncate(10 << 30)
    with pytest.raises(RequestError, match=r"large\.json: larger than 4,194,304 bytes"):
        explain.load_head(path)


@pytest.mark.parametrize("chunk", [1, 2, 5, 1000])
def test_lines_of_a_stream_are_the_same_as_those_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(lines, "_CHUNK", chunk)
    content = b"a\r\n\n\x00b\n\xff"
    (tmp_path / "t").write_bytes(content)
    expected = [b"a\r", b"", b"\x00b", b"\xff"]
    assert list(stream_lines(BytesIO(content), "t")) == list(raw_lines(tmp_path / "t")) == expected


_FEW_MEGABYTES = """
import resource, sys
from pathlib import Path
from headwise.errors import DataError
from headwise.data.lines import raw_lines
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    for _ in raw_lines(Path(sys.argv[1])):
        pass
except DataError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("suffix", PACK)
def test_decoders_use_bounded_memory_too(tmp_path: Path, suffix: str) -> None:
    """What C libraries allocate is seen by the kernel alone."""
    path = write_packed(tmp_path / f"bomb{suffix}", (b"x" * 9999 + b"\n") * 100, 40)
    result = subprocess.run(
        [sys.executable, "-c", _FEW_MEGABYTES, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    refused, kibibytes = result.stdout.splitlines()
    assert f"bomb{suffix}, after line" in refused
    assert int(kibibytes) < 64 * 1024
