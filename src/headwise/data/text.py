"""Parallel text: pairs of lines from files of any size, and what is wrong with them.

Reading is split in two so that several processes can share the work: `read_blocks` only cuts files
into blocks of raw lines, `decode_block` turns a block into text and judges every pair.

A line ends at a line feed and nowhere else: a form feed, U+0085 or U+2028 inside a line stays in
it. A carriage return before the line feed and a byte order mark at a file's start are no part of
the text; they are taken off and counted.
"""

import gzip
import io
import lzma
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from headwise.errors import DataError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BLOCK_LINES = 1000
"""Lines handed to a process at a time: enough to make the handing over cheap."""

_PLACES = 3
"""How many places of each fault are told."""

_BOM = b"\xef\xbb\xbf"
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError)


Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True, kw_only=True)
class ParallelFiles:
    """Text files in pairs: line n of a source file translates to line n of its target file."""

    sources: tuple[Path, ...]
    targets: tuple[Path, ...]

    @classmethod
    def of(cls, sources: Paths, targets: Paths) -> Self:
        """Name the files, one for each side or several, as strings or as paths."""
        return cls(sources=_paths(sources), targets=_paths(targets))

    def __post_init__(self) -> None:
        if not self.sources or len(self.sources) != len(self.targets):
            raise DataError(
                f"{len(self.sources)} source files and {len(self.targets)} target files: "
                "give as many of the one as of the other, in the same order"
            )


@dataclass(frozen=True, kw_only=True)
class TsvFile:
    """One file with a pair on each line, in two of its tab-separated columns, counted from 1."""

    path: Path
    source_column: int = 1
    target_column: int = 2

    def __post_init__(self) -> None:
        if min(self.source_column, self.target_column) < 1:
            raise DataError("columns are counted from 1")


@dataclass(frozen=True, kw_only=True)
class Block:
    """Consecutive pairs as they stand in their files, with the place of the first."""

    source_name: str
    target_name: str
    first_line: int
    sources: list[bytes]
    targets: list[bytes]
    is_tsv: bool = False
    """Whether `sources` holds whole lines of a TSV file, still to be cut into columns."""
    columns: tuple[int, int] = (1, 2)


@dataclass
class LineReport:
    """What became of the lines that were read: nothing is lost without being counted here."""

    pairs: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """How many pairs could not be used, by reason."""
    mended: Counter[str] = field(default_factory=Counter)
    """How many lines lost something that was no part of their text, by what it was."""
    places: dict[str, list[str]] = field(default_factory=dict)
    """Where the first pairs that could not be used are, by reason."""

    def drop(self, reason: str, place: str) -> None:
        """Count a pair that cannot be used, and keep where it is if it is among the first."""
        self.dropped[reason] += 1
        self._keep_places(reason, [place])

    def add(self, other: "LineReport") -> None:
        """Add the counts of another part of the same text."""
        self.pairs += other.pairs
        self.kept += other.kept
        self.dropped += other.dropped
        self.mended += other.mended
        for reason, places in other.places.items():
            self._keep_places(reason, places)

    def _keep_places(self, reason: str, places: list[str]) -> None:
        kept = self.places.setdefault(reason, [])
        kept += places[: _PLACES - len(kept)]

    def to_dict(self) -> dict[str, object]:
        """Return the counts as JSON can hold them."""
        return {
            "pairs": self.pairs,
            "kept": self.kept,
            "dropped": dict(self.dropped),
            "mended": dict(self.mended),
            "places": self.places,
        }


def _paths(files: Paths) -> tuple[Path, ...]:
    return (Path(files),) if isinstance(files, str | Path) else tuple(map(Path, files))


def read_lines(path: Path) -> Iterator[str]:
    """Yield the text of a file's lines, every one of them, empty or not.

    Files ending in .gz, .xz or .zst are decompressed on the way. Text that is not UTF-8 is a
    DataError that names file and line: to leave the line out would shift all that follow.
    """
    report = LineReport()
    for number, raw in enumerate(_lines(path), start=1):
        yield _decoded(raw, str(path), number, report, advice="convert the file")


def read_blocks(text: ParallelFiles | TsvFile, size: int = BLOCK_LINES) -> Iterator[Block]:
    """Cut the files into blocks of raw pairs, reading no further ahead than the block returned.

    Files ending in .gz, .xz or .zst are decompressed on the way. Two files of unequal length are
    a DataError that names both and their lengths.
    """
    if isinstance(text, TsvFile):
        name, columns = str(text.path), (text.source_column, text.target_column)
        lines = _lines(text.path)
        first = 1
        while block := list(islice(lines, size)):
            yield Block(
                source_name=name,
                target_name=name,
                first_line=first,
                sources=block,
                targets=[],
                is_tsv=True,
                columns=columns,
            )
            first += len(block)
        return
    for source, target in zip(text.sources, text.targets, strict=True):
        yield from _paired_blocks(source, target, size)


def decode_block(
    block: Block, *, lenient: bool = False
) -> tuple[list[tuple[str, str]], LineReport]:
    """Decode a block's pairs, leave out those that cannot be trained on, and count why.

    Left out are pairs with an empty side and pairs with a NUL, which no tokenizer carries. Text
    that is not UTF-8, or a TSV line without the columns asked for, is a DataError that names file
    and line; with `lenient` such a pair is left out and counted too.
    """
    report = LineReport(pairs=len(block.sources))
    pairs: list[tuple[str, str]] = []
    for offset in range(len(block.sources)):
        place = f"{block.source_name}:{block.first_line + offset}"
        try:
            source, target = _decode_pair(block, offset, report)
        except DataError:
            if not lenient:
                raise
            report.drop("not readable", place)
            continue
        if not source.strip() or not target.strip():
            report.drop("an empty side", place)
        elif "\0" in source or "\0" in target:
            report.drop("a NUL character", place)
        else:
            pairs.append((source, target))
    report.kept = len(pairs)
    return pairs, report


def _paired_blocks(source: Path, target: Path, size: int) -> Iterator[Block]:
    source_lines, target_lines = _lines(source), _lines(target)
    read = 0
    while True:
        sources, targets = list(islice(source_lines, size)), list(islice(target_lines, size))
        if len(sources) != len(targets):
            counts = [
                read + len(block) + sum(1 for _ in rest)
                for block, rest in ((sources, source_lines), (targets, target_lines))
            ]
            raise DataError(
                f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}: "
                "they must correspond line by line"
            )
        if not sources:
            return
        yield Block(
            source_name=str(source),
            target_name=str(target),
            first_line=read + 1,
            sources=sources,
            targets=targets,
        )
        read += len(sources)


def _lines(path: Path) -> Iterator[bytes]:
    """Yield a file's lines without their line feeds; say which file and line fails to be read."""
    number = 0
    try:
        with _opened(path) as file:
            for line in cast("Iterable[bytes]", file):
                number += 1
                yield line.removesuffix(b"\n")
    except _BROKEN as error:
        reason = getattr(error, "strerror", None) or str(error)
        where = f"{path}: " if number == 0 else f"{path}, after line {number:,}: "
        raise DataError(f"{where}cannot be read: {reason}") from error


def _opened(path: Path) -> BinaryIO:
    match path.suffix:
        case ".gz":
            return cast("BinaryIO", gzip.open(path, "rb"))
        case ".xz":
            return cast("BinaryIO", io.BufferedReader(_Xz(path)))
        case ".zst":
            return cast("BinaryIO", zstd.open(path, "rb"))
        case _:
            return path.open("rb")


class _Xz(io.RawIOBase):
    """A file of .xz streams, one after the other, as `xz -d` reads it.

    `lzma.open` takes whatever follows a stream and is none, a damaged one too, for the end.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        self._is_between = False  # Whether one stream has ended, and none begun since.

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = b""
        while not content:
            packed = b""
            if self._stream.eof:
                packed = self._stream.unused_data
                self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
                self._is_between = True
            if not packed and self._stream.needs_input:
                packed = self._file.read(io.DEFAULT_BUFFER_SIZE)
                if not packed:
                    if self._is_between:
                        return 0
                    raise EOFError("the file ends in the middle of its compressed text")
            if self._is_between:
                packed = packed.lstrip(b"\0")  # There may be zeros between streams.
                if not packed:
                    continue
                self._is_between = False
            content = self._stream.decompress(packed, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._file.close()
        super().close()


def _decode_pair(block: Block, offset: int, report: LineReport) -> tuple[str, str]:
    line = block.first_line + offset
    if not block.is_tsv:
        return (
            _decoded(block.sources[offset], block.source_name, line, report),
            _decoded(block.targets[offset], block.target_name, line, report),
        )
    fields = _decoded(block.sources[offset], block.source_name, line, report).split("\t")
    source_column, target_column = block.columns
    if len(fields) < max(block.columns):
        raise DataError(
            f"{block.source_name}:{line}: {len(fields)} columns, "
            f"but column {max(block.columns)} is asked for"
        )
    return fields[source_column - 1], fields[target_column - 1]


def _decoded(
    raw: bytes,
    name: str,
    line: int,
    report: LineReport,
    advice: str = "convert the file, or leave such pairs out with --lenient",
) -> str:
    if line == 1 and raw.startswith(_BOM):
        raw = raw.removeprefix(_BOM)
        report.mended["byte order mark"] += 1
    if raw.endswith(b"\r"):
        raw = raw.removesuffix(b"\r")
        report.mended["carriage return"] += 1
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}:{line}: not UTF-8 text at byte {error.start + 1} of the line: {advice}"
        ) from error
