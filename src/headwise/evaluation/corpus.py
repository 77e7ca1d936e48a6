"""Hypotheses and their references: read from files and checked."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from headwise.data.text import read_lines
from headwise.errors import DataError

References = Sequence[Sequence[str | None]]
"""One sequence for each reference; None where a sentence has fewer references than others."""

_MOST_LINES = 5_000_000
_MOST_CHARACTERS = 1 << 28
"""Of one file of a test set, which is kept in memory; test sets have some thousand lines."""


def read_corpus(
    hypotheses: Path, references: Sequence[Path]
) -> tuple[list[str], list[list[str | None]]]:
    """Read a file of hypotheses and its references, which correspond to it line by line.

    With several references, an empty line means no reference, if another file has one for that
    sentence.
    """
    hypothesis_lines, *reference_lines = read_parallel(hypotheses, *references)
    return hypothesis_lines, _absent_where_empty(reference_lines)


def read_parallel(first: Path, *others: Path) -> list[list[str]]:
    """Read files that correspond line by line."""
    first_lines = list(_few_lines(first))
    if not first_lines:
        raise DataError(f"{first} has no lines: there is nothing to score")
    texts = [first_lines]
    for path in others:
        lines = list(_few_lines(path))
        if len(lines) != len(first_lines):
            raise DataError(
                f"{first} has {len(first_lines):,} lines and {path} has {len(lines):,}: "
                "they must correspond line by line"
            )
        texts.append(lines)
    return texts


def refuse_nul(sources: Sequence[str], path: Path) -> None:
    """Raise DataError for the first source with a NUL character, which cannot be translated."""
    for number, text in enumerate(sources, start=1):
        if "\0" in text:
            raise DataError(f"{path}:{number}: a NUL character: remove it")


def read_tsv_corpus(
    path: Path, columns: Sequence[int] = (1, 2)
) -> tuple[list[str], list[list[str | None]]]:
    """Read a test set from a TSV file's columns, counted from 1: source, reference, reference...

    As in separate files, an empty reference beside another means no reference.
    """
    if len(columns) < 2 or min(columns) < 1:
        raise DataError("columns are counted from 1: that of the source, then of each reference")
    rows = []
    for number, line in enumerate(_few_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) < max(columns):
            raise DataError(
                f"{path}:{number}: {len(fields)} columns, but column {max(columns)} is asked for"
            )
        rows.append([fields[column - 1] for column in columns])
    if not rows:
        raise DataError(f"{path} has no lines: there is nothing to score")
    sources, *references = (list(column) for column in zip(*rows, strict=True))
    return sources, _absent_where_empty(references)


def _few_lines(path: Path) -> Iterator[str]:
    """Yield a file's lines; refuse a file that is too large to keep in memory."""
    characters = 0
    for number, line in enumerate(read_lines(path), start=1):
        characters += len(line)
        if number > _MOST_LINES or characters > _MOST_CHARACTERS:
            raise DataError(
                f"{path}:{number}: more than the {_MOST_LINES:,} lines or {_MOST_CHARACTERS:,} "
                "characters that a test set may have: score a part of it"
            )
        yield line


def _absent_where_empty(references: list[list[str]]) -> list[list[str | None]]:
    """Put None for an empty reference of a sentence that has another."""
    there = [any(line.strip() for line in lines) for lines in zip(*references, strict=True)]
    return [
        [
            line if line.strip() or not some else None
            for line, some in zip(lines, there, strict=True)
        ]
        for lines in references
    ]


def check_corpus(hypotheses: Sequence[str], references: References) -> None:
    """Refuse no sentences, unequal numbers of lines, and sentences without a reference."""
    if not hypotheses:
        raise DataError("there is no hypothesis to score")
    if not references:
        raise DataError("there is no reference to score against")
    for number, lines in enumerate(references, start=1):
        if len(lines) != len(hypotheses):
            raise DataError(
                f"{len(hypotheses):,} hypotheses but {len(lines):,} sentences in reference {number}"
            )
    for number, lines in enumerate(zip(*references, strict=True), start=1):
        if all(line is None for line in lines):
            raise DataError(f"sentence {number:,} has no reference")
