"""`headwise attention`: attention weights as a page or a picture."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwise.cli.output import note
from headwise.cli.text_options import FILE

if TYPE_CHECKING:
    from headwise.inspect.attention import Kind

EPILOG = """\b
Examples:
  headwise attention runs/ende "A dog runs ." --out dog.html
                                     every layer, head and kind, to click through
  headwise attention runs/ende "A dog ." --target "Ein Hund ." --out dog.html
                                     of a translation of your own
  headwise attention runs/ende "A dog runs ." --out dog.png
                                     a picture as in the paper's Figures 3 to 5
  headwise attention runs/lm "Once upon a time" --out tale.html
                                     within a text, for a language model
  headwise attention runs/ende "A dog runs ." --kind encoder --layer 5 \\
    --head 1 --head 2 --out dog.pdf

An .html page is self-contained; .pdf, .png and .svg need matplotlib:
pip install 'headwise[plot]'.
"""


@click.command(epilog=EPILOG)
@click.argument("run", type=FILE)
@click.argument("text")
@click.option("--target", help="A translation to show, instead of the model's own.")
@click.option(
    "--out",
    metavar="FILE",
    required=True,
    type=FILE,
    help="The file to write: .html, .pdf, .png or .svg.",
)
@click.option("--checkpoint", help="averaged, best, last or a step; by default in that order.")
@click.option(
    "--kind",
    type=click.Choice(["cross", "encoder", "decoder"]),
    help="Translation to source, or self-attention of encoder or decoder; default: cross, or "
    "decoder where there is no encoder.",
)
@click.option("--layer", type=int, help="Counted from 1; default: the last but one.")
@click.option(
    "--head", "heads", type=int, multiple=True, help="Counted from 1; default: all. Repeatable."
)
def attention(
    run: Path,
    text: str,
    target: str | None,
    out: Path,
    checkpoint: str | None,
    kind: "Kind | None",
    layer: int | None,
    heads: tuple[int, ...],
) -> None:
    """Show which words a model attends to, in a text, or in a sentence and its translation."""
    from headwise.inspect.attention_file import write_attention
    from headwise.inspect.figures import kind_of
    from headwise.runs.directory import RunDirectory
    from headwise.workflows.predictors import load_traceable

    kind_of(out)  # Before loading the model, which takes a while.
    directory = RunDirectory(run)
    if target is not None and directory.config().row.assembly == "decoder":
        raise click.UsageError(f"--target needs a model with an encoder: {run} has none")
    predictor = load_traceable(directory, checkpoint=checkpoint)
    note(f"using {predictor.name}")
    write_attention(predictor, text, out, target=target, kind=kind, layer=layer, heads=heads)
    note(f"wrote {out}")
