"""`headwise fill`: what a masked language model puts where the masks are."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwise.cli.line_filter import filter_lines, require_one_input
from headwise.cli.output import note
from headwise.cli.text_options import FILE

if TYPE_CHECKING:
    from headwise.tasks.masked_language_model.filler import Filled

EPILOG = """\b
Examples:
  headwise fill runs/bert "The [MASK] sat on the mat."
  headwise fill runs/bert --top 10 "He was born in [MASK] ."
  headwise fill runs/bert --json < lines.txt          one JSON object for each line

Each text, or each line of the input, gives one line: for each [MASK] the most probable
tokens with their probabilities, separated by tabs; the guesses for another [MASK]
follow after " | ". Without texts and --input, lines are read from stdin. An empty line
gives an empty line.
"""


@click.command(epilog=EPILOG)
@click.argument("run", type=FILE)
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@click.option("--input", "source", type=FILE, help="Read from a file instead of stdin.")
@click.option("--output", "target", type=FILE, help="Write to a file instead of stdout.")
@click.option(
    "--top", type=click.IntRange(min=1), default=5, show_default=True, help="Tokens for each mask."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each line.")
@click.option("--checkpoint", help="averaged, best, last or a step; by default in that order.")
@click.option("--lenient", is_flag=True, help="Replace bytes that are not UTF-8 text.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, ...")
def fill(
    run: Path,
    texts: tuple[str, ...],
    source: Path | None,
    target: Path | None,
    top: int,
    as_json: bool,
    checkpoint: str | None,
    lenient: bool,
    device: str,
) -> None:
    """Fill the masks of texts, or of the lines of a text."""
    require_one_input(texts, source)

    from headwise.tasks.masked_language_model.filler import MaskFiller

    filler = MaskFiller.load(run, checkpoint=checkpoint, device=device)
    note(f"using {filler.name}")

    def lines_of(lines: list[str], first: int, name: str) -> list[str]:
        found = iter(filler.fill([line for line in lines if line.strip()], top=top))
        filled = [next(found) if line.strip() else None for line in lines]
        if as_json:
            pairs = zip(lines, filled, strict=True)
            return [json.dumps(_as_json(*pair), ensure_ascii=False) for pair in pairs]
        return ["" if each is None else _as_line(each) for each in filled]

    filter_lines(texts, source, target, lines_of, lenient=lenient, doing="filling")


def _as_line(filled: "Filled") -> str:
    return " | ".join(
        "\t".join(
            f"{guess.token.strip() or guess.token}\t{guess.probability:.4f}" for guess in mask
        )
        for mask in filled.guesses
    )


def _as_json(text: str, filled: "Filled | None") -> dict[str, Any]:
    if filled is None:
        return {"text": text, "filled": "", "masks": []}
    return {
        "text": text,
        "filled": filled.text,
        "masks": [
            [{"token": guess.token, "probability": guess.probability} for guess in mask]
            for mask in filled.guesses
        ],
    }
