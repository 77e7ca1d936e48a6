"""Curves as a picture for papers and slides, drawn by matplotlib (the `plot` extra)."""

import math
from typing import TYPE_CHECKING

from headwise.inspect.curves import NUM_MARKERS, PALETTE_LIGHT, Chart, Curve, Curves
from headwise.inspect.figures import DIM, INK, LINE, draw_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "^", "D", "v")
assert len(_MARKERS) == NUM_MARKERS

_SPACE = {"w_pad": 0.1, "h_pad": 0.1, "wspace": 0.03, "hspace": 0.03}
"""Around the charts, in inches, and between them, as a share of their size."""

_LETTERS = 110
"""How many characters fit in a row of the legend."""


def render_figure(curves: Curves, kind: str) -> bytes:
    """Draw all charts into one picture and return it as a file of that kind."""
    columns = min(len(curves.charts), 2)
    rows = math.ceil(len(curves.charts) / columns)

    def draw(figure: "Figure") -> None:
        figure.get_layout_engine().set(**_SPACE)  # type: ignore[union-attr]
        for position, chart in enumerate(curves.charts, 1):
            _draw(figure.add_subplot(rows, columns, position), chart)
        _legend(figure, curves)

    size = (5.5 * columns, 3.4 * rows + 0.2 + 0.22 * _legend_rows(curves))
    return draw_figure(kind, size, draw, layout="constrained")


def _draw(axes: "Axes", chart: Chart) -> None:
    for curve in chart.curves:
        _draw_curve(axes, curve)
    if chart.y.is_log:
        axes.set_yscale("log")
    axes.set_xlim(chart.x.low, chart.x.high)
    axes.set_ylim(chart.y.low, chart.y.high)
    axes.set_xticks(chart.x.ticks, chart.x.labels)
    axes.set_yticks(chart.y.ticks, chart.y.labels)
    axes.minorticks_off()
    axes.set_title(chart.title, loc="left", fontsize=11, fontweight="bold", color=INK)
    axes.set_xlabel(chart.by, color=DIM, fontsize=9)
    axes.set_ylabel(chart.unit, color=DIM, fontsize=9)
    axes.tick_params(colors=DIM, labelsize=9)
    axes.grid(axis="y", color=LINE)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(DIM)
    if any(curve.is_thin for curve in chart.curves):
        _explain_widths(axes, chart)


def _draw_curve(axes: "Axes", curve: Curve) -> None:
    axes.plot(
        curve.xs,
        curve.ys,
        color=PALETTE_LIGHT[curve.run % len(PALETTE_LIGHT)],
        linewidth=0.9 if curve.is_thin else 1.8,
        alpha=0.75 if curve.is_thin else 1.0,
        marker=_MARKERS[curve.run % NUM_MARKERS],
        markevery=list(curve.marks),
        markersize=5.5,
        markeredgecolor="white",
        markeredgewidth=0.7,
    )


def _explain_widths(axes: "Axes", chart: Chart) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=DIM, linewidth=0.9, label="training")]
    if not all(curve.is_thin for curve in chart.curves):
        handles.append(Line2D([], [], color=DIM, linewidth=1.8, label="validation"))
    axes.legend(handles=handles, frameon=False, fontsize=9, labelcolor=DIM)


def _legend(figure: "Figure", curves: Curves) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            color=PALETTE_LIGHT[position % len(PALETTE_LIGHT)],
            linewidth=1.8,
            marker=_MARKERS[position % NUM_MARKERS],
            markersize=5.5,
            markeredgecolor="white",
            markeredgewidth=0.7,
        )
        for position in range(len(curves.runs))
    ]
    # A blank first: matplotlib leaves out names that begin with _; and it reads $ as the start
    # of a formula.
    legend = figure.legend(
        handles,
        [" "] * len(handles),
        loc="outside upper left",
        ncols=math.ceil(len(handles) / _legend_rows(curves)),
        frameon=False,
        labelcolor=INK,
    )
    for text, run in zip(legend.get_texts(), curves.runs, strict=True):
        text.set_parse_math(False)
        text.set_text(run.label)


def _legend_rows(curves: Curves) -> int:
    """Return how many rows the names take, in columns as wide as the longest."""
    longest = max(len(run.label) for run in curves.runs) + 6  # With its swatch.
    return math.ceil(len(curves.runs) / max(1, min(4, _LETTERS // longest)))
