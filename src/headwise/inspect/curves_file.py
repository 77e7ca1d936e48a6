"""Write the curves of runs to a file: a page or a picture, by the file's suffix."""

from collections.abc import Sequence
from pathlib import Path

from headwise.errors import RequestError
from headwise.files import write_output
from headwise.inspect.curves import Horizontal, load_curves
from headwise.inspect.curves_figure import render_figure
from headwise.inspect.curves_page import render_curves
from headwise.inspect.figures import kind_of


def write_curves(runs: Sequence[Path], out: Path, *, by: Horizontal = "steps") -> None:
    """Draw the curves of runs into a file; after an error there is no half-written file."""
    kind = kind_of(out)  # Before reading, which may take a while.
    curves = load_curves(runs, by=by)
    content = render_curves(curves).encode() if kind == "html" else render_figure(curves, kind)
    try:
        write_output(out, content)
    except OSError as error:
        raise RequestError(f"{out}: cannot write the curves: {error.strerror}") from error
