"""`headwise export`: a run's model in another program's format."""

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

The model is written to RUN/exports/ctranslate2-QUANTIZATION with its vocabularies and
subwords. Its outputs are compared with those of the run's own model; the result is
printed and written to verification.json.

It needs pip install 'headwise[ctranslate2]'.
"""


@click.command(epilog=EPILOG)
@click.argument("run", type=FILE)
@click.option(
    "--to",
    "format_",
    type=click.Choice(["ctranslate2"]),
    required=True,
    help="The format to write.",
)
@click.option(
    "--quantization",
    type=click.Choice(["int8", "int16", "float32"]),
    default="int8",
    show_default=True,
    help="The type of the weights: int8 is small and fast, float32 exact.",
)
@click.option("--checkpoint", metavar="WHICH", help="averaged, best, last or a step.")
def export(run: Path, format_: str, quantization: "Quantization", checkpoint: str | None) -> None:
    """Write a run's model in another program's format, and verify its outputs."""
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
