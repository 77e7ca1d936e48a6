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
  headwise attention runs/ende "A dog runs ." --kind encoder --layer 5 \\
    --head 1 --head 2 --out dog.pdf

An .html page is self-contained; .pdf, .png and .svg need matplotlib:
pip install 'headwise[plot]'.
"""


@click.command(epilog=EPILOG)
@click.argument("run", type=FILE)
@click.argument("source")
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
    default="cross",
    show_default=True,
    help="Translation to source, or self-attention of encoder or decoder.",
)
@click.option("--layer", type=int, help="Counted from 1; default: the last but one.")
@click.option(
    "--head", "heads", type=int, multiple=True, help="Counted from 1; default: all. Repeatable."
)
def attention(
    run: Path,
    source: str,
    target: str | None,
    out: Path,
    checkpoint: str | None,
    kind: "Kind",
    layer: int | None,
    heads: tuple[int, ...],
) -> None:
    """Show which words a model attends to, for a sentence and its translation."""
    from headwise.inspect.attention_file import write_attention
    from headwise.inspect.figures import kind_of
    from headwise.tasks.translation.translator import Translator

    kind_of(out)  # Before loading the model, which takes a while.
    translator = Translator.load(run, checkpoint=checkpoint)
    note(f"using {translator.name}")
    write_attention(translator, source, out, target=target, kind=kind, layer=layer, heads=heads)
    note(f"wrote {out}")
