import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd

from headwise.data import LineReport, ParallelFiles, TsvFile, decode_block, read_blocks
from headwise.errors import DataError

Write = Callable[[str, bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return make


def read(
    text: ParallelFiles | TsvFile, size: int = 1000, lenient: bool = False
) -> tuple[list[tuple[str, str]], LineReport]:
    pairs, report = [], LineReport()
    for block in read_blocks(text, size):
        decoded, counts = decode_block(block, lenient=lenient)
        pairs += decoded
        report.add(counts)
    assert report.pairs == report.kept + report.dropped.total(), "a pair got lost uncounted"
    return pairs, report


def files(source: Path, target: Path) -> ParallelFiles:
    return ParallelFiles(sources=(source,), targets=(target,))


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_lines_come_in_pairs_whatever_the_block_size(write: Write, size: int) -> None:
    text = ParallelFiles(
        sources=(write("1.en", b"a\nb\nc\n"), write("2.en", b"d\n")),
        targets=(write("1.de", b"A\nB\nC\n"), write("2.de", b"D")),  # no final line feed
    )
    pairs, report = read(text, size)
    assert pairs == [("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")]
    assert (report.kept, report.dropped, report.mended) == (4, {}, {})


def test_compressed_files_read_as_plain_ones(write: Write) -> None:
    content = "häuser\nüber\n".encode()
    frames = zstd.compress(content[:5]) + zstd.compress(content[5:])
    streams = lzma.compress(content[:5]) + bytes(4) + lzma.compress(content[5:]) + bytes(8)
    for name, packed in (
        ("a.gz", gzip.compress(content)),
        ("a.xz", lzma.compress(content)),
        ("a.zst", zstd.compress(content)),
        ("two-frames.zst", frames),
        ("two-streams.xz", streams),
    ):
        pairs, _ = read(files(write(name, packed), write("plain", content)))
        assert pairs == [("häuser", "häuser"), ("über", "über")], name


def test_lines_end_at_line_feeds_only(write: Write) -> None:
    odd = "a\u2028b\u0085c\x0cd\x0be\x1cf\rg"
    pairs, report = read(files(write("s", f"{odd}\nx\n".encode()), write("t", b"1\n2\n")))
    assert pairs == [(odd, "1"), ("x", "2")]
    assert report.mended == {}


def test_byte_order_marks_and_carriage_returns_are_taken_off_and_counted(write: Write) -> None:
    source = write("s", b"\xef\xbb\xbfa\r\nb\r\n\xef\xbb\xbfc\n")
    pairs, report = read(files(source, write("t", b"1\n2\n3\n")), size=1)
    assert pairs == [("a", "1"), ("b", "2"), ("\ufeffc", "3")]
    assert report.mended == {"byte order mark": 1, "carriage return": 2}


def test_what_cannot_be_trained_on_is_left_out_and_counted(write: Write) -> None:
    source = write("s", b"a\n\n \t\nb\x00\nc\n")
    target = write("t", b"1\n2\n3\n4\n\n")
    pairs, report = read(files(source, target))
    assert pairs == [("a", "1")]
    assert report.dropped == {"an empty side": 3, "a NUL character": 1}


def test_any_script_and_any_length(write: Write) -> None:
    long = "x" * 1_000_000
    lines = [long, "שלום עולם", "👩‍👩‍👧 🇩🇪", "e\u0301", "中文"]
    path = write("s", "\n".join(lines).encode())
    pairs, report = read(files(path, path))
    assert pairs == [(line, line) for line in lines]
    assert report.kept == 5


def test_text_that_is_not_utf8_is_named_by_file_and_line(write: Write) -> None:
    source, target = write("s", b"a\nb\nc\n"), write("t.de", b"1\n2\ncaf\xe9\n")
    with pytest.raises(DataError, match=r"t\.de:3: not UTF-8 text at byte 4 of the line"):
        read(files(source, target), size=2)
    pairs, report = read(files(source, target), lenient=True)
    assert pairs == [("a", "1"), ("b", "2")]
    assert report.dropped == {"not readable": 1}


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_unequal_files_are_named_with_their_lengths(write: Write, size: int) -> None:
    source, target = write("s.en", b"a\nb\nc\nd\ne\n"), write("t.de", b"1\n2\n3\n")
    with pytest.raises(DataError, match=r"s\.en has 5 lines and .*t\.de has 3"):
        read(files(source, target), size)
    with pytest.raises(DataError, match=r"t\.de has 3 lines and .*s\.en has 5"):
        read(files(target, source), size)


def test_a_file_that_cannot_be_read_is_named(write: Write, tmp_path: Path) -> None:
    good = write("t", b"1\n" * 50_000)
    with pytest.raises(DataError, match=r"missing: cannot be read: No such file"):
        read(files(tmp_path / "missing", good))
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read(files(tmp_path, good))
    content = bytes(range(256)) * 1000
    lines = b"\n".join(content[n : n + 50].replace(b"\n", b" ") for n in range(0, 250_000, 50))
    for name, packed in (
        ("cut.gz", gzip.compress(lines)[:-200]),
        ("cut.xz", lzma.compress(lines)[:-20]),
        ("more.xz", lzma.compress(lines) + b"and more"),
        ("second-damaged.xz", lzma.compress(lines) + b"\xff" + lzma.compress(lines)[1:]),
        ("second-cut.xz", lzma.compress(lines) + lzma.compress(lines)[:40]),
        ("not.gz", b"plain text"),
        ("not.xz", b"plain text"),
        ("empty.xz", b""),
        ("not.zst", b"plain text"),
    ):
        with pytest.raises(DataError, match=rf"{name}.*: cannot be read: \S"):
            read(files(write(name, packed), good), lenient=True)


def test_a_truncated_zst_file_is_not_taken_for_a_short_one(write: Write) -> None:
    packed = zstd.compress(b"".join(b"%d\n" % n for n in range(100_000)))
    cut = write("cut.zst", packed[: len(packed) // 2])
    with pytest.raises(
        DataError, match=r"cut\.zst, after line .*: cannot be read: Compressed file ended"
    ):
        read(files(cut, write("t", b"1\n" * 100_000)))


def test_tsv_columns(write: Write) -> None:
    path = write("t.tsv", b"id\thello\thallo\tCC\r\n2\tyes\tja\tCC\n")
    pairs, report = read(TsvFile(path=path, source_column=2, target_column=3))
    assert pairs == [("hello", "hallo"), ("yes", "ja")]
    assert report.mended == {"carriage return": 1}
    assert read(TsvFile(path=path, source_column=3, target_column=2))[0][0] == ("hallo", "hello")
    short = write("s.tsv", b"a\tb\nc\n")
    with pytest.raises(DataError, match=r"s\.tsv:2: 1 columns, but column 2 is asked for"):
        read(TsvFile(path=short))
    assert read(TsvFile(path=short), lenient=True)[1].dropped == {"not readable": 1}
    with pytest.raises(DataError, match="columns are counted from 1"):
        TsvFile(path=path, source_column=0)


def test_files_are_given_in_pairs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2 source files and 1 target files"):
        ParallelFiles(sources=(tmp_path, tmp_path), targets=(tmp_path,))
    with pytest.raises(DataError, match="0 source files and 0 target files"):
        ParallelFiles(sources=(), targets=())


def test_reading_looks_no_further_ahead_than_a_block(write: Write) -> None:
    source = write("s", b"a\n" * 10 + b"\xff\n")
    blocks = read_blocks(files(source, write("t", b"1\n" * 11)), size=5)
    assert decode_block(next(blocks))[1].kept == 5
    assert next(blocks).first_line == 6
