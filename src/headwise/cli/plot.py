"""`headwise plot`: the training curves of one run or several."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwise.cli.output import note

if TYPE_CHECKING:
    from headwise.inspect.curves import Horizontal

EPILOG = """\b
Examples:
  headwise plot runs/base --out curves.html
  headwise plot runs/base runs/big --out curves.png
  headwise plot runs/* --x minutes --out curves.svg

An .html page is self-contained; .pdf, .png and .svg need matplotlib:
pip install 'headwise[plot]'. A run that is still training can be plotted, too.
"""


@click.command(epilog=EPILOG)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path),
    help="The file to write: .html, .pdf, .png or .svg.",
)
@click.option(
    "--x",
    "by",
    type=click.Choice(["steps", "minutes"]),
    default="steps",
    show_default=True,
    help="The unit of the horizontal axis.",
)
def plot(runs: tuple[Path, ...], out: Path, by: "Horizontal") -> None:
    """Draw loss, perplexity, learning rate and speed of one run or several.

    RUN is a run directory; the values are those of its metrics.jsonl.
    """
    from headwise.inspect.curves_file import write_curves

    write_curves(runs, out, by=by)
    note(f"wrote {out}")
