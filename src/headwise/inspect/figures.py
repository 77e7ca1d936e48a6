"""Pictures for papers and slides, drawn by matplotlib (the `plot` extra)."""

import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwise.errors import RequestError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_KINDS = ("pdf", "png", "svg")

INK, DIM, LINE = "#1d2430", "#5b6676", "#e3e8ee"

_SAME_BYTES: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None},
    "png": {"Software": None},
    "svg": {"Date": None},
}
"""No date and no version in the file: the same picture is the same bytes."""


def kind_of(out: Path) -> str:
    """Return what kind of file a name asks for: "html", or one of `FIGURE_KINDS`."""
    kind = out.suffix.lower().removeprefix(".")
    known = ("html", *FIGURE_KINDS)
    if kind not in known:
        names = ", ".join(f".{name}" for name in known)
        raise RequestError(f"{out}: no known kind of file: let the name end in one of {names}")
    return kind


def draw_figure(
    kind: str,
    size: tuple[float, float],
    draw: Callable[["Figure"], None],
    *,
    layout: Literal["constrained"] | None = None,
) -> bytes:
    """Return what `draw` puts on a figure of so many inches, as a file of that kind."""
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise RequestError(
            f"a .{kind} picture needs matplotlib: pip install 'headwise[plot]', "
            "or write an .html page, which needs nothing more"
        ) from error

    file = BytesIO()
    # The default style: a user's matplotlibrc must not change the picture. The salt makes the
    # ids in an SVG the same every time.
    with style.context(["default", {"svg.hashsalt": "headwise"}]), warnings.catch_warnings():
        # Missing glyphs are drawn as boxes; no warning is needed.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        # Not pyplot: it keeps global state and may need a display.
        figure = Figure(figsize=size, dpi=150, layout=layout)
        draw(figure)
        figure.savefig(file, format=kind, metadata=_SAME_BYTES[kind])
    return file.getvalue()
