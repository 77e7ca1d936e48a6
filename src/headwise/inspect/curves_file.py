"""Curves of runs to a file, whose name says what kind it is to be."""

from collections.abc import Sequence
from pathlib import Path

from headwise.errors import RequestError
from headwise.files import write_output
from headwise.inspect.curves import Horizontal, load_curves
from headwise.inspect.curves_figure import render_figure
from headwise.inspect.curves_page import render_curves
from headwise.inspect.figures import kind_of


def write_curves(runs: Sequence[Path], out: Path, *, by: Horizontal = "steps") -> None:
    """Draw the curves of runs over each other into a file: whole, or not at all."""
    kind = kind_of(out)  # Before anything is read, which may take a while.
    curves = load_curves(runs, by=by)
    content = render_curves(curves).encode() if kind == "html" else render_figure(curves, kind)
    try:
        write_output(out, content)
    except OSError as error:
        raise RequestError(f"{out}: cannot write the curves: {error.strerror}") from error
