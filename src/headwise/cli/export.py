"""`headwise export`: a run's model for other programs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwise.cli.output import show
from headwise.cli.text_options import FILE
from headwise.visible import visible

if TYPE_CHECKING:
    from headwise.interop.ctranslate2.files import Quantization

EPILOG = """\b
Examples:
  headwise export runs/ende --to ctranslate2
  headwise export runs/ende --to ctranslate2 --quantization float32 --checkpoint best

The model goes to RUN/exports/ctranslate2-int8, or what the quantization is, with its
vocabularies and subwords. The same inputs go through it and through the run's own
model; what comes out is compared, printed, and written beside it: verification.json.

It needs pip install 'headwise[ctranslate2]'.
"""


@click.command(epilog=EPILOG)
@click.argument("run", type=FILE)
@click.option(
    "--to",
    "format_",
    type=click.Choice(["ctranslate2"]),
    required=True,
    help="Whose format to write.",
)
@click.option(
    "--quantization",
    type=click.Choice(["int8", "int16", "float32"]),
    default="int8",
    show_default=True,
    help="What to store weights and compute in: small and fast, or exact.",
)
@click.option("--checkpoint", metavar="WHICH", help="averaged, best, last or a step.")
def export(run: Path, format_: str, quantization: "Quantization", checkpoint: str | None) -> None:
    """Write a run's model in another program's format, and see that it computes the same."""
    from headwise.interop.ctranslate2.export import export as export_run
    from headwise.runs.directory import RunDirectory

    report = export_run(RunDirectory(run), checkpoint, quantization)
    found = report.verification
    weights, directory = visible(str(report.weights)), visible(str(report.directory))
    show(
        f"exported {weights} as {quantization}: {directory}\n"
        f"largest difference of a token's log-probability: {found.largest_difference:.2g}\n"
        f"equal greedy outputs: {found.equal_outputs:.1%} of {found.pairs} ({found.inputs})"
    )
