"""Table 1 for people: as rows of text, and as a page."""

from collections.abc import Callable

from headwise.inspect.table_page import Grid, Plot, render_table_page
from headwise.workflows.reproduce.table1 import Row, Table1

_LEAD = (
    "§4 of the paper compares layers by their work, by how much of it must be done in order, and "
    "by the longest way that a signal travels. Work and paths were measured here, for the mixing "
    "product alone."
)


def table1_grids(table: Table1) -> list[Grid]:
    """Return the table: costs, then paths."""
    lengths = table.conditions["path_lengths"]
    return [
        Grid(
            title="Cost of a layer",
            columns=(
                "layer",
                "paper",
                "FLOPs grow with",
                "counted / formula",
                "time grows with",
                "as the paper says from",
            ),
            rows=tuple(_cost(row) for row in table.rows),
            notes=(
                "Exponents are those between the two largest sizes, by length n and by width d. "
                "Time is forward and backward.",
                "Counted / formula: torch's counter by the formula of the mixing product, for the "
                "longest input. Restricted attention is computed in blocks, which have more in "
                "them than the window.",
                *_disagreements(table),
            ),
        ),
        Grid(
            title="Operations in order, and longest path",
            columns=(
                "layer",
                "sequential, paper",
                f"by its formula, n = {lengths[-1]}",
                "path, paper",
                *(f"n = {length}" for length in lengths),
                "as its formula",
            ),
            rows=tuple(_path(row) for row in table.rows),
            notes=(
                "Path: how many layers, or steps of the recurrence, it takes until the derivative "
                "of the last position by the first is not 0.",
            ),
        ),
    ]


def table1_page(table: Table1) -> str:
    """Return the page."""
    conditions = {
        key: value
        for key, value in table.conditions.items()
        if key not in ("lengths", "widths", "path_lengths")
    }
    return render_table_page(
        title="Table 1: layers compared",
        lead=_LEAD,
        grids=table1_grids(table),
        plots=[
            _plot(table, "length", "Time by length", lambda n, d: (n, d == _middle(table)[1])),
            _plot(table, "width", "Time by width", lambda n, d: (d, n == _middle(table)[0])),
        ],
        conditions=conditions,
    )


def _middle(table: Table1) -> tuple[int, int]:
    lengths, widths = table.conditions["lengths"], table.conditions["widths"]
    return lengths[len(lengths) // 2], widths[len(widths) // 2]


def _plot(
    table: Table1, name: str, title: str, place: Callable[[int, int], tuple[int, bool]]
) -> Plot:
    lines = {}
    for row in table.rows:
        points = []
        for key, seconds in row.seconds.items():
            x, is_shown = place(*(int(part) for part in key.split(" x ")))
            if is_shown:
                points.append((float(x), 1000 * seconds))
        lines[row.title] = sorted(points)
    n, d = _middle(table)
    other = f"d = {d}" if name == "length" else f"n = {n}"
    unit = f"milliseconds, forward and backward, {other}"
    by = "length n" if name == "length" else "width d"
    return Plot(name=name, title=title, unit=unit, by=by, lines=lines)


def _cost(row: Row) -> tuple[str, ...]:
    by_length, by_width = row.flop_exponents
    slow, wide = row.time_exponents
    return (
        row.title,
        row.complexity,
        f"n^{by_length:.2f} d^{by_width:.2f}",
        f"{row.flops_ratio:.2f}",
        f"n^{slow:.2f} d^{wide:.2f}",
        f"n {_from(row.holds_from[0])}, d {_from(row.holds_from[1])}",
    )


def _from(size: int | None) -> str:
    return "not here" if size is None else f"{size:,}"


def _path(row: Row) -> tuple[str, ...]:
    agrees = row.paths == row.expected_paths
    return (
        row.title,
        row.sequential,
        f"{row.sequential_operations:,}",
        row.path,
        *(f"{found:,}" for found in row.paths.values()),
        "yes" if agrees else "no",
    )


def _disagreements(table: Table1) -> list[str]:
    """Say where the times do not grow as the paper's orders, which are those of the work."""
    found = [
        f"{row.title} by {name}"
        for row in table.rows
        for name, size in zip(("n", "d"), row.holds_from, strict=True)
        if size is None
    ]
    if not found:
        return []
    return [
        f"Times that do not grow as the paper's order up to the largest size here: "
        f"{', '.join(found)}. Small products cost calls and reading of memory more than arithmetic."
    ]
