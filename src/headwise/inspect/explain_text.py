"""Explanations as lines of text that fit a terminal of any width."""

from dataclasses import dataclass

from headwise.inspect.explain import Step, Table, number

_INDENT = "   "
_GAP = "    "
_MOST = 16
"""Rows and columns of a matrix that are shown; a page can show them all."""


@dataclass(frozen=True)
class Line:
    """One line and its role: title, formula, reason, table or worked."""

    text: str
    role: str


def lines_of(steps: list[Step], width: int) -> list[Line]:
    """Lay the steps out as lines, tables side by side as far as the width allows."""
    lines: list[Line] = []
    room = max(width - len(_INDENT), 1)
    for position, step in enumerate(steps, 1):
        lines.append(Line(f"{position}. {step.title}", "title"))
        lines += [Line(_INDENT + text, "formula") for text in _wrapped(step.formula, room)]
        lines += [Line(_INDENT + text, "reason") for text in _wrapped(step.reason, room)]
        for tables in step.tables:
            blocks = [block for table in tables for block in _blocks(table, room)]
            for row in _beside(blocks, room):
                lines.append(Line("", "table"))
                lines += [Line((_INDENT + text).rstrip(), "table") for text in row]
        if step.worked:
            lines.append(Line("", "worked"))
            lines += [Line(_INDENT + text, "worked") for text in _wrapped(step.worked, room)]
        lines.append(Line("", "title"))
    return lines[:-1]


def _wrapped(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def _blocks(table: Table, width: int) -> list[list[str]]:
    """Write a matrix as blocks of columns that fit the width; a number is never cut."""
    rows, columns = table.values[:_MOST], range(min(len(table.values[0]), _MOST))
    labels = [_short(label) for label in table.row_labels[: len(rows)]]
    label_width = max(map(len, labels))
    cells = [[number(row[column]) for row in rows] for column in columns]
    if table.column_labels is not None:
        for index in columns:
            cells[index].insert(0, _short(table.column_labels[index]))
        labels = ["", *labels]
    label_cells = [f"{label:<{label_width}}" for label in labels]
    blocks = [label_cells]
    for column in cells:
        cell_width = max(map(len, column))
        if len(blocks[-1][0]) + 2 + cell_width > width and blocks[-1] is not label_cells:
            blocks.append(label_cells)
        blocks[-1] = [
            f"{left}  {cell:>{cell_width}}" for left, cell in zip(blocks[-1], column, strict=True)
        ]
    for position, block in enumerate(blocks):
        block.insert(0, table.name if position == 0 else f"{table.name}, continued")
    hidden = [
        f"{total - _MOST} more {kind}"
        for total, kind in ((len(table.values), "rows"), (len(table.values[0]), "columns"))
        if total > _MOST
    ]
    if hidden:
        blocks[-1].append(f"… {' and '.join(hidden)}: see --html")
    return blocks


def _short(label: str) -> str:
    return label if len(label) <= 12 else label[:11] + "…"


def _beside(blocks: list[list[str]], width: int) -> list[list[str]]:
    """Put blocks next to each other while they fit; return the rows of lines."""
    rows: list[list[str]] = []
    row: list[list[str]] = []
    for block in blocks:
        if row and sum(_width(b) + len(_GAP) for b in row) + _width(block) > width:
            rows.append(_joined(row))
            row = []
        row.append(block)
    return [*rows, _joined(row)]


def _joined(row: list[list[str]]) -> list[str]:
    height = max(map(len, row))
    padded = [block + [""] * (height - len(block)) for block in row]
    widths = [_width(block) for block in row]
    return [
        _GAP.join(f"{block[line]:<{width}}" for block, width in zip(padded, widths, strict=True))
        for line in range(height)
    ]


def _width(block: list[str]) -> int:
    return max(map(len, block))
