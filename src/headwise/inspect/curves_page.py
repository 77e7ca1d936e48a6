"""Training curves as a self-contained page: SVG, no script, light and dark.

Another page can embed `chart_svg` (with its `explanation`) and `legend`: they need `CHART_STYLE`
and the colours of `document.STYLE`.
"""

import math
from collections.abc import Sequence
from html import escape

from headwise.inspect.axes import Axis
from headwise.inspect.curves import (
    NUM_MARKERS,
    PALETTE_DARK,
    PALETTE_LIGHT,
    Chart,
    Curve,
    Curves,
    Summary,
)
from headwise.inspect.document import STYLE, render_document

_WIDTH, _HEIGHT = 480, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 10, 50
"""The margins around the curves, wide enough for the larger font on a phone."""

_MARK = 3.5
"""Half the width of a marker."""

_MISSING = "–"


def _colours(palette: Sequence[str]) -> str:
    return " ".join(f".run-{n} {{ --run: {colour}; }}" for n, colour in enumerate(palette))


CHART_STYLE = f"""
{_colours(PALETTE_LIGHT)}
@media (prefers-color-scheme: dark) {{ {_colours(PALETTE_DARK)} }}
.chart {{ display: block; width: 100%; height: auto; overflow: visible; }}
.chart text {{ font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--dim);
  font-variant-numeric: tabular-nums; }}
.chart .grid {{ stroke: var(--grid); fill: none; }}
.chart .frame {{ stroke: var(--dim); fill: none; }}
.curve path {{ fill: none; stroke: var(--run); stroke-width: 2; stroke-linejoin: round;
  stroke-linecap: round; vector-effect: non-scaling-stroke; }}
.curve.thin path {{ stroke-width: 1.3; opacity: .75; }}
.curve path.marks {{ fill: var(--run); stroke: var(--card); stroke-width: 1; opacity: 1; }}
.legend {{ display: flex; flex-wrap: wrap; gap: .35rem 1.25rem; list-style: none; margin: 1rem 0;
  padding: 0; }}
.legend li {{ display: flex; align-items: center; gap: .5rem; overflow-wrap: anywhere; }}
.swatch {{ flex: none; width: 34px; height: 14px; vertical-align: middle; }}
/* A phone shows the whole chart narrower: larger letters stay readable. */
@media (max-width: 40rem) {{ .chart text {{ font-size: 17px; }} }}
"""

_STYLE = """
h1 { margin-bottom: .25rem; }
h2 { font-size: 1.15rem; margin: 0; }
.unit, .note { color: var(--dim); margin: 0; }
.unit, .note { font-size: .9rem; }
.note { margin-top: .75rem; overflow-wrap: anywhere; }
.charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit,
  minmax(min(100%, 28rem), 1fr)); }
section, .final { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: 1rem 1.25rem; min-width: 0; }
.unit { margin-bottom: .5rem; }
.final { margin-top: 1rem; }
.scroll { overflow-x: auto; margin-top: .5rem; }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
td, th { padding: .4rem .6rem; text-align: right; border-top: 1px solid var(--line);
  white-space: nowrap; }
thead th { color: var(--dim); font-weight: 500; border-top: 0; vertical-align: bottom; }
tbody th { font-weight: 500; white-space: normal; overflow-wrap: anywhere; min-width: 9rem; }
td:first-child, th:first-child { text-align: left; padding-left: 0; }
@media (max-width: 40rem) { section, .final { padding: .75rem .6rem; } }
"""


def render_curves(curves: Curves) -> str:
    """Return the charts, a legend and a table of last values as an HTML document."""
    count = len(curves.runs)
    runs = f"{count} runs" if count > 1 else "1 run"
    names = ", ".join(run.label for run in curves.runs)
    axis = "steps" if curves.by == "steps" else "minutes of training"
    charts = "\n".join(
        f"<section>\n<h2>{escape(chart.title)}</h2>\n"
        f'<p class="unit">{escape(explanation(chart))}</p>\n{chart_svg(chart)}\n</section>'
        for chart in curves.charts
    )
    body = f"""<h1>Training curves</h1>
<p class="lead">{runs}, by {axis}</p>
{legend(curves)}
<div class="charts">
{charts}
</div>
{_table(curves)}"""
    return render_document(
        title=f"Training curves: {names}", body=body, style=STYLE + CHART_STYLE + _STYLE
    )


def chart_svg(chart: Chart) -> str:
    """Return one chart as an SVG element for a page with `CHART_STYLE`."""
    title, description = f"chart-{chart.name}-title", f"chart-{chart.name}-desc"
    curves = "\n".join(_curve(chart, curve) for curve in chart.curves)
    return f"""<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" \
aria-labelledby="{title} {description}">
<title id="{title}">{escape(chart.title)}</title>
<desc id="{description}">{escape(_description(chart))}</desc>
{_axes(chart)}
{curves}
</svg>"""


def legend(curves: Curves) -> str:
    """Return the names of the runs beside their colours and markers, as a list."""
    items = "\n".join(
        f"<li>{swatch(position)} <span>{escape(run.label)}</span></li>"
        for position, run in enumerate(curves.runs)
    )
    return f'<ul class="legend" aria-label="Runs">\n{items}\n</ul>'


def _axes(chart: Chart) -> str:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    columns = [(_across(chart, tick), label) for tick, label in _ticks(chart.x)]
    rows = [(_down(chart, tick), label) for tick, label in _ticks(chart.y)]
    grid = "".join(f"M{_LEFT} {y:.1f}H{right}" for y, _ in rows)
    steps = "".join(f"M{x:.1f} {bottom}v4" for x, _ in columns)
    numbers = "".join(
        f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>'
        for x, label in columns
    ) + "".join(
        f'<text x="{_LEFT - 7}" y="{y:.1f}" dy=".35em" text-anchor="end">{label}</text>'
        for y, label in rows
    )
    return f"""<path class="grid" d="{grid}"/>
<path class="frame" d="M{_LEFT} {bottom}H{right}{steps}"/>
<g>{numbers}</g>
<text x="{(_LEFT + right) / 2:.0f}" y="{_HEIGHT - 10}" text-anchor="middle">{chart.by}</text>"""


def _ticks(axis: Axis) -> list[tuple[float, str]]:
    return list(zip(axis.ticks, axis.labels, strict=True))


def _curve(chart: Chart, curve: Curve) -> str:
    points = [
        None if math.isnan(y) else (_across(chart, x), _down(chart, y))
        for x, y in zip(curve.xs, curve.ys, strict=True)
    ]
    line, command = [], "M"
    for point in points:
        if point is None:
            command = "M"
            continue
        line.append(f"{command}{point[0]:.1f} {point[1]:.1f}")
        command = "L"
    marks = "".join(
        _marker(curve.run, *point) for i in curve.marks if (point := points[i]) is not None
    )
    thin = " thin" if curve.is_thin else ""
    drawn_marks = f'<path class="marks" d="{marks}"/>' if marks else ""
    return (
        f'<g class="curve {_colour(curve.run)}{thin}"><title>{escape(_name(curve))}</title>'
        f'<path d="{"".join(line)}"/>{drawn_marks}</g>'
    )


def _across(chart: Chart, x: float) -> float:
    return _LEFT + chart.x.place(x) * (_WIDTH - _LEFT - _RIGHT)


def _down(chart: Chart, y: float) -> float:
    return _HEIGHT - _BOTTOM - chart.y.place(y) * (_HEIGHT - _BOTTOM - _TOP)


def _colour(run: int) -> str:
    return f"run-{run % len(PALETTE_LIGHT)}"


def _marker(run: int, x: float, y: float) -> str:
    """Return a run's marker as part of a path: circle, square, diamond, triangle up or down."""
    r = _MARK
    shape = run % NUM_MARKERS
    if shape == 0:
        return f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"
    corners = (
        [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        [(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)],
        [(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
        [(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)],
    )[shape - 1]
    return "M" + "L".join(f"{x + r * dx:.1f} {y + r * dy:.1f}" for dx, dy in corners) + "z"


def swatch(run: int) -> str:
    """Return the colour and marker of a line, for a legend."""
    return (
        f'<svg class="swatch" viewBox="0 0 34 14" aria-hidden="true"><g class="curve '
        f'{_colour(run)}"><path d="M2 7H32"/><path class="marks" d="{_marker(run, 17, 7)}"/></g>'
        "</svg>"
    )


def _name(curve: Curve) -> str:
    names = {"train": ", training", "valid": ", validation", "all": ""}
    return f"{curve.label}{names[curve.part]}"


def explanation(chart: Chart) -> str:
    """Say what a chart measures and how to distinguish its lines."""
    if not any(curve.is_thin for curve in chart.curves):
        return chart.unit
    return f"{chart.unit}; training thin, validation thick"


def _description(chart: Chart) -> str:
    """Describe the chart for screen readers: the first and last value of each curve."""
    sentences = []
    for curve in chart.curves:
        ys = [y for y in curve.ys if not math.isnan(y)]
        course = f"{ys[0]:.4g}" if len(ys) == 1 else f"from {ys[0]:.4g} to {ys[-1]:.4g}"
        sentences.append(f"{_name(curve)}: {course}.")
    return f"{chart.title} ({chart.unit}) by {chart.by}. {' '.join(sentences)}"


def _table(curves: Curves) -> str:
    heads = ("Run", "steps", "minutes", "training loss", "validation loss", "perplexity")
    columns = (*heads, "best perplexity", "at step", "target tokens/s")
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    rows = "\n".join(_row(position, run) for position, run in enumerate(curves.runs))
    notes = "".join(
        f'<p class="note">{escape(run.label)}: {_left_out(run.left_out)}; '
        "there the curves have gaps.</p>\n"
        for run in curves.runs
        if run.left_out
    )
    # A wide table scrolls in its own box, which must have keyboard focus.
    return f"""<div class="final">
<h2 id="final">Last values</h2>
<div class="scroll" tabindex="0" role="region" aria-labelledby="final">
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
{notes}</div>"""


def _left_out(count: int) -> str:
    return f"{count:,} values are not finite" if count > 1 else "1 value is not finite"


def _row(position: int, run: Summary) -> str:
    cells = (
        f"{run.step:,}",
        _written(run.minutes, 1),
        _written(run.train_loss, 4),
        _written(run.valid_loss, 4),
        _written(run.perplexity, 2),
        _written(run.best_perplexity, 2),
        _MISSING if run.best_step is None else f"{run.best_step:,}",
        _written(run.speed, 0),
    )
    name = f'<th scope="row">{swatch(position)} {escape(run.label)}</th>'
    return f"<tr>{name}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _written(value: float | None, decimals: int) -> str:
    if value is None:
        return _MISSING
    if math.isnan(value):
        return "not finite"
    return f"{value:.3g}" if abs(value) >= 1e9 else f"{value:,.{decimals}f}"
