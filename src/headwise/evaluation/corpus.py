"""Hypotheses and their references: read from files, and checked against each other."""

from collections.abc import Sequence
from pathlib import Path

from headwise.data.text import read_lines
from headwise.errors import DataError

References = Sequence[Sequence[str | None]]
"""One sequence for each reference; None where a sentence has fewer references than others."""


def read_corpus(
    hypotheses: Path, references: Sequence[Path]
) -> tuple[list[str], list[list[str | None]]]:
    """Read a file of hypotheses and its references, which correspond to it line by line.

    Where several references are given, an empty line in one of them is a reference that is not
    there, as long as another file has one for that sentence.
    """
    hypothesis_lines = list(read_lines(hypotheses))
    if not hypothesis_lines:
        raise DataError(f"{hypotheses} has no lines: there is nothing to score")
    reference_lines = []
    for path in references:
        lines = list(read_lines(path))
        if len(lines) != len(hypothesis_lines):
            raise DataError(
                f"{hypotheses} has {len(hypothesis_lines):,} lines and {path} has {len(lines):,}: "
                "they must correspond line by line"
            )
        reference_lines.append(lines)
    there = [any(line.strip() for line in lines) for lines in zip(*reference_lines, strict=True)]
    return hypothesis_lines, [
        [
            line if line.strip() or not some else None
            for line, some in zip(lines, there, strict=True)
        ]
        for lines in reference_lines
    ]


def check_corpus(hypotheses: Sequence[str], references: References) -> None:
    """Refuse what cannot be scored: no sentence, unequal numbers, a sentence without reference."""
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
