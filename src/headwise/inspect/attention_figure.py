"""Attention as a picture in the style of the paper's Figures 3 to 5, drawn by matplotlib.

Two rows of words, queries above keys, and a line for each weight between them: the larger the
weight, the stronger the line. Each head has a colour.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwise.inspect.attention import AttentionRecord, Kind
from headwise.inspect.curves import PALETTE_LIGHT
from headwise.inspect.figures import DIM, INK, draw_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLES: dict[Kind, tuple[str, str]] = {
    "cross": ("Encoder-decoder attention", "the translation looks down at the source"),
    "encoder": ("Encoder self-attention", "the source, above, looks at itself, below"),
    "decoder": ("Decoder self-attention", "what is written looks down at what was before"),
}

_FAINTEST = 0.02
"""Weaker lines would be invisible, and make large files slow to open."""

# All in inches, as the axes are.
_WORD, _LETTER = 0.3, 0.09
"""The width of a word in its row, and the height of a letter."""
_LINES, _TITLE, _MARGIN = 2.2, 0.75, 0.35
"""The height of the lines, the room above the words, the room at the sides."""
_KEY, _KEY_ROW = 0.85, 0.22
"""The width and height of a head's name in the legend."""


def render_attention_figure(
    record: AttentionRecord, file_kind: str, *, kind: Kind, layer: int, heads: Sequence[int]
) -> bytes:
    """Draw some heads of one layer, counted from 0, and return a file of that kind."""
    above, below = record.rows(kind), record.columns(kind)
    words = 0.15 + _LETTER * max(len(token.strip()) for token in (*above, *below))
    width = max(5.6, 2 * _MARGIN + _WORD * max(len(above), len(below)))
    keys_each_row = int((width - 2 * _MARGIN) / _KEY)
    foot = 0.2 + _KEY_ROW * math.ceil(len(heads) / keys_each_row)
    height = _TITLE + words + _LINES + words + foot
    bottom, top = foot + words, foot + words + _LINES
    layers = record.weights(kind)

    def draw(figure: "Figure") -> None:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, width)
        axes.set_ylim(0, height)
        axes.set_axis_off()
        _draw_words(axes, above, _places(len(above), width), top + 0.08, "bottom")
        _draw_words(axes, below, _places(len(below), width), bottom - 0.08, "top")
        for number, head in enumerate(heads):
            # Side by side, so that no head hides another.
            shift = 0.03 * (number - (len(heads) - 1) / 2)
            ends = [
                ((start + shift, top), (end + shift, bottom), weight)
                for start, weights in zip(
                    _places(len(above), width), layers[layer][head], strict=True
                )
                for end, weight in zip(_places(len(below), width), weights, strict=True)
                if weight >= _FAINTEST
            ]
            _draw_lines(axes, ends, _colour(head))
        title, gist = _TITLES[kind]
        axes.text(_MARGIN, height - 0.3, title, color=INK, fontsize=11, weight="bold")
        which = f"layer {layer + 1} of {len(layers)}: {gist}"
        axes.text(_MARGIN, height - 0.53, which, color=DIM, fontsize=9)
        for number, head in enumerate(heads):
            row, column = divmod(number, keys_each_row)
            x, y = _MARGIN + _KEY * column, foot - 0.12 - _KEY_ROW * row
            axes.plot((x, x + 0.18), (y, y), color=_colour(head), linewidth=3)
            axes.text(x + 0.25, y, f"head {head + 1}", color=DIM, fontsize=9, va="center")

    return draw_figure(file_kind, (width, height), draw)


def _draw_words(
    axes: "Axes", tokens: Sequence[str], places: Sequence[float], y: float, side: str
) -> None:
    for x, token in zip(places, tokens, strict=True):
        axes.text(
            x,
            y,
            token.strip() or "␣",
            rotation=90,
            ha="center",
            va=side,
            fontsize=10,
            color=INK,
            parse_math=False,  # An unescaped $ would start a formula.
        )


def _draw_lines(
    axes: "Axes",
    ends: Sequence[tuple[tuple[float, float], tuple[float, float], float]],
    colour: str,
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    lines = LineCollection(
        [(start, end) for start, end, _ in ends],
        colors=[to_rgba(colour, weight) for *_, weight in ends],
        linewidths=[0.6 + 2.4 * weight for *_, weight in ends],
        capstyle="round",
    )
    axes.add_collection(lines)


def _places(count: int, width: float) -> list[float]:
    """Return the positions of a row's words: both rows fill the width."""
    step = (width - 2 * _MARGIN) / count
    return [_MARGIN + (place + 0.5) * step for place in range(count)]


def _colour(head: int) -> str:
    if head < len(PALETTE_LIGHT):
        return PALETTE_LIGHT[head]
    return f"C{(head - len(PALETTE_LIGHT)) % 10}"  # Matplotlib's own ten.
