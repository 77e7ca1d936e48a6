"""Error rates and alignments as text and as JSON values."""

import unicodedata
from dataclasses import asdict
from typing import Any

from headwise.evaluation.class_table import margin, percent
from headwise.evaluation.edits import Edit, EditCounts, TextErrors
from headwise.evaluation.table import text_table
from headwise.visible import visible

_MARKS = {"equal": " ", "substitute": "S", "delete": "D", "insert": "I"}


def edit_report(errors: TextErrors) -> str:
    """Format the error rates and what the errors are."""
    rows = [
        ("exactly right", percent(errors.exact), margin(errors.exact_interval), "", "", ""),
        ("word error rate", *_cells(errors.words, margin(errors.word_interval))),
        ("character error rate", *_cells(errors.characters, margin(errors.character_interval))),
    ]
    header = ("%", "score", "95 % interval", "substituted", "deleted", "inserted")
    return f"{text_table(header, rows)}\n\n{errors.examples:,} examples"


def edit_values(errors: TextErrors) -> dict[str, Any]:
    """Return the scores as JSON can hold them."""
    values = asdict(errors)
    for key, counts in (("words", errors.words), ("characters", errors.characters)):
        values[key] = {**counts._asdict(), "rate": counts.rate}
    return values


def alignment_lines(edits: list[Edit]) -> list[str]:
    """Set an alignment of words in three lines: the reference, the output, and the edits' marks.

    S is a substitution, D a deletion, I an insertion. What a word lacks in width is filled up.
    """
    columns = [
        (visible(edit.reference), visible(edit.output), _MARKS[edit.operation]) for edit in edits
    ]
    widths = [max(map(_width, column)) for column in columns]
    lines = []
    for row, fill in enumerate("** "):
        cells = [
            (column[row] or fill * width) + " " * (width - _width(column[row] or fill * width))
            for column, width in zip(columns, widths, strict=True)
        ]
        lines.append(" ".join(cells).rstrip())
    return lines


def _cells(counts: EditCounts, interval: str) -> tuple[str, ...]:
    kinds = (counts.substitutions, counts.deletions, counts.insertions)
    return (percent(counts.rate), interval, *(f"{number:,}" for number in kinds))


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(1 + (unicodedata.east_asian_width(each) in "WF") for each in text)
