"""Parallel text: pairs of lines from files of any size, and what is wrong with them.

Reading is split in two so that several processes can share the work: `read_blocks` only cuts files
into blocks of raw lines, `decode_block` turns a block into text and judges every pair.

A line ends at a line feed and nowhere else: a form feed, U+0085 or U+2028 inside a line stays in
it. A carriage return before the line feed and a byte order mark at a file's start are no part of
the text; they are taken off and counted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, Self

from headwise.data.lines import raw_lines
from headwise.errors import DataError
from headwise.visible import visible

BLOCK_LINES = 1000
"""Lines handed to a process at a time: enough to make the handing over cheap."""

_BLOCK_BYTES = 4 << 20
"""Where the lines are long, a block ends with the line that takes it past this size."""

_PLACES = 3
"""How many places of each fault are told."""

_BOM = b"\xef\xbb\xbf"

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

    def describe(self) -> list[Any]:
        """Return the files' names and sizes."""
        return [[path.name, file_size(path)] for path in (*self.sources, *self.targets)]


@dataclass(frozen=True, kw_only=True)
class TsvFile:
    """One file with a pair on each line, in two of its tab-separated columns, counted from 1."""

    path: Path
    source_column: int = 1
    target_column: int = 2

    def __post_init__(self) -> None:
        if min(self.source_column, self.target_column) < 1:
            raise DataError("columns are counted from 1")

    def describe(self) -> list[Any]:
        """Return the file's name, size and columns."""
        columns = self.source_column, self.target_column
        return [[self.path.name, file_size(self.path), *columns]]


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

    def lines(self, unit: str) -> list[str]:
        """Say in sentences what was left out and what was mended; `unit` as in "pairs"."""
        left_out = []
        for why, count in self.dropped.items():
            places = self.places.get(why, [])
            more = ", …" if len(places) < count else ""
            where = f" ({visible(', '.join(places))}{more})" if places else ""
            left_out.append(f"left out {count:,} of {self.pairs:,} {unit}: {why}{where}")
        return left_out + [f"took off {n:,} times: {what}" for what, n in self.mended.items()]

    def to_dict(self) -> dict[str, object]:
        """Return the counts as JSON can hold them."""
        return {
            "pairs": self.pairs,
            "kept": self.kept,
            "dropped": dict(self.dropped),
            "mended": dict(self.mended),
            "places": self.places,
        }


def file_size(path: Path) -> int:
    """Return the bytes of a file that must be there."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def plain(text: str) -> str:
    """Return a text on one line: white space of any kind and length is one space."""
    return " ".join(text.split())


def _paths(files: Paths) -> tuple[Path, ...]:
    return (Path(files),) if isinstance(files, str | Path) else tuple(map(Path, files))


def read_lines(path: Path) -> Iterator[str]:
    """Yield the text of a file's lines, every one of them, empty or not.

    Files ending in .gz, .xz or .zst are decompressed on the way. Text that is not UTF-8 is a
    DataError that names file and line: to leave the line out would shift all that follow.
    """
    report = LineReport()
    for number, raw in enumerate(raw_lines(path), start=1):
        yield decode_line(raw, str(path), number, report, advice="convert the file")


def read_blocks(text: ParallelFiles | TsvFile, size: int = BLOCK_LINES) -> Iterator[Block]:
    """Cut the files into blocks of raw pairs, reading no further ahead than the block returned.

    Files ending in .gz, .xz or .zst are decompressed on the way. Two files of unequal length are
    a DataError that names both and their lengths.
    """
    if isinstance(text, TsvFile):
        name = str(text.path)
        for first, rows in _cut(zip(raw_lines(text.path), strict=True), size):
            yield Block(
                source_name=name,
                target_name=name,
                first_line=first,
                sources=[line for (line,) in rows],
                targets=[],
                is_tsv=True,
                columns=(text.source_column, text.target_column),
            )
        return
    for source, target in zip(text.sources, text.targets, strict=True):
        for first, rows in _cut(_paired(source, target), size):
            yield Block(
                source_name=str(source),
                target_name=str(target),
                first_line=first,
                sources=[row[0] for row in rows],
                targets=[row[1] for row in rows],
            )


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


def _cut(
    rows: Iterable[tuple[bytes, ...]], size: int
) -> Iterator[tuple[int, list[tuple[bytes, ...]]]]:
    """Yield the number of a block's first row and its rows: `size` of them, fewer if long."""
    block: list[tuple[bytes, ...]] = []
    block_bytes = 0
    first = 1
    for row in rows:
        block.append(row)
        block_bytes += sum(map(len, row))
        if len(block) == size or block_bytes >= _BLOCK_BYTES:
            yield first, block
            first += len(block)
            block, block_bytes = [], 0
    if block:
        yield first, block


def _paired(source: Path, target: Path) -> Iterator[tuple[bytes, bytes]]:
    pairs = zip_longest(raw_lines(source), raw_lines(target))
    for number, (source_line, target_line) in enumerate(pairs, start=1):
        if source_line is None or target_line is None:
            shorter, longer = number - 1, number + sum(1 for _ in pairs)
            counts = (shorter, longer) if source_line is None else (longer, shorter)
            raise DataError(
                f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}: "
                "they must correspond line by line"
            )
        yield source_line, target_line


def _decode_pair(block: Block, offset: int, report: LineReport) -> tuple[str, str]:
    line = block.first_line + offset
    if not block.is_tsv:
        return (
            decode_line(block.sources[offset], block.source_name, line, report),
            decode_line(block.targets[offset], block.target_name, line, report),
        )
    fields = decode_line(block.sources[offset], block.source_name, line, report).split("\t")
    source_column, target_column = block.columns
    if len(fields) < max(block.columns):
        raise DataError(
            f"{block.source_name}:{line}: {len(fields)} columns, "
            f"but column {max(block.columns)} is asked for"
        )
    return fields[source_column - 1], fields[target_column - 1]


def decode_line(
    raw: bytes,
    name: str,
    line: int,
    report: LineReport,
    *,
    advice: str = "convert the file, or leave such pairs out with --lenient",
    errors: Literal["strict", "replace"] = "strict",
) -> str:
    """Decode a line, counted from 1, without a byte order mark and a carriage return.

    A line that is not UTF-8 is a DataError that ends in `advice`, or has such bytes replaced.
    """
    if line == 1 and raw.startswith(_BOM):
        raw = raw.removeprefix(_BOM)
        report.mended["byte order mark"] += 1
    if raw.endswith(b"\r"):
        raw = raw.removesuffix(b"\r")
        report.mended["carriage return"] += 1
    try:
        return raw.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}:{line}: not UTF-8 text at byte {error.start + 1} of the line: {advice}"
        ) from error
