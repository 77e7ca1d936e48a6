"""A measured table as a self-contained page: the paper's values beside ours, charts, conditions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from headwise.inspect.axes import linear_axis, log_axis
from headwise.inspect.curves import Chart, Curve
from headwise.inspect.curves_page import CHART_STYLE, chart_svg, swatch
from headwise.inspect.document import STYLE, render_document

GRID_STYLE = """
.scroll { overflow-x: auto; }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
td, th { padding: .4rem .6rem; text-align: right; border-top: 1px solid var(--line); }
thead th { color: var(--dim); font-weight: 500; border-top: 0; vertical-align: bottom; }
tbody th { font-weight: 500; min-width: 9rem; }
td:first-child, th:first-child { text-align: left; padding-left: 0; }
.charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit,
  minmax(min(100%, 28rem), 1fr)); }
.note { color: var(--dim); font-size: .9rem; margin: .5rem 0 0; max-width: 60rem; }
"""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of text: a heading for each column, and rows that begin with their name."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Several lines, named in the order of their colours."""

    name: str
    title: str
    unit: str
    by: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    is_log: bool = True
    """Whether both axes are logarithmic."""


def render_table_page(
    *,
    title: str,
    lead: str,
    grids: Sequence[Grid],
    plots: Sequence[Plot],
    conditions: Mapping[str, object],
) -> str:
    """Return the page as an HTML document."""
    legend = ""
    if plots:
        items = "".join(
            f"<li>{swatch(number)} <span>{escape(name)}</span></li>"
            for number, name in enumerate(plots[0].lines)
        )
        legend = f'<ul class="legend" aria-label="Lines">{items}</ul>'
    charts = "\n".join(
        f'<section class="card">\n<h2>{escape(plot.title)}</h2>\n<p class="note">'
        f"{escape(plot.unit)}</p>\n{chart_svg(_chart(plot))}\n</section>"
        for plot in plots
    )
    facts = "; ".join(f"{key} {value}" for key, value in conditions.items())
    body = f"""<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
{"".join(grid_html(grid) for grid in grids)}
{legend}
<div class="charts">
{charts}
</div>
<p class="note">Measured under these conditions: {escape(facts)}.</p>"""
    return render_document(title=title, body=body, style=STYLE + CHART_STYLE + GRID_STYLE)


def grid_html(grid: Grid) -> str:
    """Return a table for a page with `GRID_STYLE`."""
    heads = "".join(f'<th scope="col">{escape(column)}</th>' for column in grid.columns)
    rows = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>\n"
        for first, *cells in grid.rows
    )
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in grid.notes)
    return f"""<section class="card">
<h2>{escape(grid.title)}</h2>
<div class="scroll" tabindex="0" role="region" aria-label="{escape(grid.title)}">
<table><thead><tr>{heads}</tr></thead>
<tbody>
{rows}</tbody></table>
</div>
{notes}
</section>
"""


def _chart(plot: Plot) -> Chart:
    points = [point for line in plot.lines.values() for point in line]
    axis = log_axis if plot.is_log else linear_axis
    return Chart(
        name=plot.name,
        title=plot.title,
        unit=plot.unit,
        by=plot.by,
        x=axis(min(x for x, _ in points), max(x for x, _ in points)),
        y=axis(min(y for _, y in points), max(y for _, y in points)),
        curves=tuple(
            Curve(
                run=number,
                label=name,
                part="all",
                is_thin=False,
                xs=tuple(x for x, _ in line),
                ys=tuple(y for _, y in line),
                marks=tuple(range(len(line))),
            )
            for number, (name, line) in enumerate(plot.lines.items())
        ),
    )
