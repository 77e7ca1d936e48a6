"""Text files as blocks of lines or of documents, in the order they are in.

A block holds consecutive lines of one plain file, still undecoded, or consecutive documents of a
table. Reading is cheap; what costs time (decoding, encoding) is done with whole blocks, in several
processes (records.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from headwise.data.lines import raw_lines
from headwise.data.tables import read_table, table_kind
from headwise.data.text import BLOCK_LINES, LineReport, Paths, file_size
from headwise.errors import DataError

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class TextFiles:
    """Files of text; those that end in .tsv, .csv or .jsonl have a document in each row."""

    paths: tuple[Path, ...]
    column: str | None = None
    """The name of the column that holds the text."""

    @classmethod
    def of(cls, files: Paths, column: str | None = None) -> Self:
        """Name files as strings or as paths; they may also end in .gz, .xz or .zst."""
        paths = (Path(files),) if isinstance(files, str | Path) else tuple(map(Path, files))
        return cls(paths=paths, column=column)

    def __post_init__(self) -> None:
        if not self.paths:
            raise DataError("no text files are given")
        tables = [path for path in self.paths if table_kind(path)]
        if tables and not self.column:
            raise DataError(f"{tables[0]}: name the column that holds the text with --text-column")
        if self.column and not tables:
            raise DataError(
                f"--text-column {self.column!r}: {self.paths[0]} is plain text and has no columns"
            )

    def describe(self) -> list[Any]:
        """Return the files' names and sizes, and the column of a table."""
        return [
            [path.name, file_size(path), *([self.column] if table_kind(path) else [])]
            for path in self.paths
        ]


@dataclass(frozen=True, kw_only=True)
class TextBlock:
    """Consecutive lines of a plain file, or rows of a table."""

    name: str
    first_line: int
    lines: list[bytes]
    is_first: bool
    """Whether a file begins with it."""


@dataclass(frozen=True, kw_only=True)
class DocumentBlock:
    """Consecutive documents of a table, already decoded."""

    documents: list[tuple[str, str]]
    """The place of each, as file:line, and its text."""
    report: LineReport
    """What became of the rows."""


def read_text_blocks(files: TextFiles, *, lenient: bool) -> Iterator[TextBlock | DocumentBlock]:
    """Read files in bounded memory. What is wrong is a DataError with file and line.

    With `lenient`, rows of a table that cannot be read are left out and counted.
    """
    for path in files.paths:
        if table_kind(path):
            assert files.column is not None
            yield from _document_blocks(path, files.column, lenient)
        else:
            yield from _line_blocks(path)


def _line_blocks(path: Path) -> Iterator[TextBlock]:
    lines: list[bytes] = []
    size, first = 0, 1
    for line in raw_lines(path):
        lines.append(line)
        size += len(line)
        if len(lines) == BLOCK_LINES or size >= _BLOCK_BYTES:
            yield TextBlock(name=str(path), first_line=first, lines=lines, is_first=first == 1)
            first += len(lines)
            lines, size = [], 0
    if lines:
        yield TextBlock(name=str(path), first_line=first, lines=lines, is_first=first == 1)


def _document_blocks(path: Path, column: str, lenient: bool) -> Iterator[DocumentBlock]:
    documents: list[tuple[str, str]] = []
    report, whole_file = LineReport(), LineReport()
    size = 0
    for line, text in _rows(path, column, whole_file):
        place = f"{path}:{line}"
        report.pairs += 1
        if isinstance(text, DataError):
            if not lenient:
                raise text
            report.drop("not readable", place)
            continue
        documents.append((place, text))
        size += len(text)
        if len(documents) == BLOCK_LINES or size >= _BLOCK_BYTES:
            yield DocumentBlock(documents=documents, report=report)
            documents, report, size = [], LineReport(), 0
    report.add(whole_file)
    yield DocumentBlock(documents=documents, report=report)


def _rows(path: Path, column: str, report: LineReport) -> Iterator[tuple[int, str | DataError]]:
    """Yield the number of each row's line and its text, or what is wrong with the row."""
    for number, found in read_table(path, (column,), report):
        if isinstance(found, DataError):
            yield number, found
        elif isinstance(found[0], str):
            yield number, found[0]
        else:
            wrong = f"{path}:{number}: has no text in {column!r}"
            yield number, DataError(f"{wrong}: name another --text-column, or use --lenient")
