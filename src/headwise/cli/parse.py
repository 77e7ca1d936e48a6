"""`headwise parse`: trees of arguments, or of lines from stdin or a file."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwise.cli.line_filter import filter_lines, require_one_input
from headwise.cli.output import error_line, note
from headwise.cli.text_options import FILE
from headwise.config import STRONGEST_PENALTY
from headwise.errors import RequestError

if TYPE_CHECKING:
    from headwise.tasks.parsing.parser import Parse

EPILOG = """\b
Examples:
  headwise parse runs/parse "The dog sleeps." "I saw her duck."
  headwise parse runs/parse --draw "The dog sleeps."          a tree on the terminal
  headwise parse runs/parse --svg dog.svg "The dog sleeps."   a picture
  headwise parse runs/parse < sentences.txt > trees.txt
  headwise parse runs/parse --tokenized < words.txt           words separated by spaces
  headwise parse runs/parse --json < sentences.txt            spans and probabilities
  headwise parse runs/parse --beam 21 --unconstrained < sentences.txt

Each sentence, or each line of the input, gives one line with a tree over its words;
an empty one gives an empty line. Words are separated as in the Penn Treebank. Without
sentences and --input, lines are read from stdin; at a terminal, each is parsed at
once. Put -- before a sentence that begins with a dash.
"""


@click.command(epilog=EPILOG)
@click.argument("run", type=FILE)
@click.argument("sentences", metavar="[SENTENCE]...", nargs=-1)
@click.option("--input", "source", type=FILE, help="Read from a file instead of stdin.")
@click.option("--output", "target", type=FILE, help="Write to a file instead of stdout.")
@click.option("--tokenized", is_flag=True, help="Words are separated by spaces already.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each line.")
@click.option("--draw", is_flag=True, help="Draw each tree in several lines.")
@click.option(
    "--svg", type=FILE, help="Also write pictures: NAME.svg for one sentence, or a directory."
)
@click.option("--checkpoint", help="averaged, best, last or a step; by default in that order.")
@click.option("--beam", type=click.IntRange(min=1), help="Hypotheses kept open.")
@click.option(
    "--alpha",
    type=click.FloatRange(min=0, max=STRONGEST_PENALTY),
    help="Strength of the length penalty.",
)
@click.option(
    "--constrained/--unconstrained",
    default=None,
    help="Write only what leads to a tree, or repair what is none, as the paper's search needs; "
    "default: the recipe's.",
)
@click.option("--batch-size", type=click.IntRange(min=1), help="Sentences searched at a time.")
@click.option("--lenient", is_flag=True, help="Replace bytes that are not UTF-8 text.")
@click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change a [decode] setting."
)
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, ...")
def parse(
    run: Path,
    sentences: tuple[str, ...],
    source: Path | None,
    target: Path | None,
    tokenized: bool,
    as_json: bool,
    draw: bool,
    svg: Path | None,
    checkpoint: str | None,
    beam: int | None,
    alpha: float | None,
    constrained: bool | None,
    batch_size: int | None,
    lenient: bool,
    overrides: tuple[str, ...],
    device: str,
) -> None:
    """Parse sentences, or the lines of a text, into constituency trees."""
    require_one_input(sentences, source)
    if as_json and draw:
        raise click.UsageError("give either --json or --draw, not both")

    from headwise.tasks.parsing.parser import Parser

    parser = Parser.load(
        run, checkpoint=checkpoint, device=device, batch_size=batch_size, overrides=overrides
    )
    note(f"using {parser.name}")
    done = repaired = too_long = 0

    def lines_of(texts: list[str], first: int, name: str) -> list[str]:
        nonlocal done, repaired, too_long
        parses = parser.parse(
            texts, tokenized=tokenized, beam=beam, alpha=alpha, constrained=constrained
        )
        done += len(parses)
        repaired += sum(each.is_repaired for each in parses)
        too_long += sum(each.num_parts > 1 for each in parses)
        if svg is not None:
            _write_pictures(svg, parses, first)
        if as_json:
            pairs = zip(texts, parses, strict=True)
            return [json.dumps(_as_json(*pair), ensure_ascii=False) for pair in pairs]
        return [f"{each.pretty()}\n" if draw else each.brackets for each in parses]

    filter_lines(sentences, source, target, lines_of, lenient=lenient, doing="parsing")
    if repaired:
        error_line(f"{repaired:,} of {done:,} outputs were not trees over the words: repaired")
    if too_long:
        lines = "1 sentence was" if too_long == 1 else f"{too_long:,} sentences were"
        error_line(
            f"{lines} longer than the {parser.longest_source:,} tokens that training may have "
            "seen, and parsed in parts"
        )


def _write_pictures(svg: Path, parses: "list[Parse]", first: int) -> None:
    """Write a picture of each tree: to the one file named, or by line number to a directory."""
    from headwise.files import write_output

    is_file = svg.suffix == ".svg"
    if is_file and first + len(parses) > 1:
        raise RequestError(f"{svg} is one file and there are more sentences: name a directory")
    try:
        if not is_file:
            svg.mkdir(parents=True, exist_ok=True)
        for number, each in enumerate(parses, start=first + 1):
            if each.tree is not None:
                write_output(svg if is_file else svg / f"{number}.svg", each.svg().encode())
    except OSError as error:
        raise RequestError(f"{svg}: cannot write the picture: {error.strerror}") from error


def _as_json(text: str, parse: "Parse") -> dict[str, Any]:
    return {
        "sentence": text,
        "words": parse.words,
        "tree": parse.brackets,
        "constituents": [
            {"label": each.label, "start": each.start, "end": each.end, "depth": each.depth}
            for each in parse.constituents
        ],
        "tags": [] if parse.tree is None else [leaf.label for leaf in parse.tree.leaves()],
        "log_prob": parse.log_prob,
        "score": parse.score,
        "repaired": parse.is_repaired,
        "parts": parse.num_parts,
    }
