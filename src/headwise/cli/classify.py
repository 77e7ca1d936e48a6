"""`headwise classify`: classes of arguments, or of lines from stdin or a file."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwise.cli.line_filter import filter_lines, require_one_input
from headwise.cli.output import error_line, note
from headwise.cli.text_options import FILE

if TYPE_CHECKING:
    from headwise.tasks.classification.classifier import Classification

EPILOG = """\b
Examples:
  headwise classify runs/questions "Who wrote Hamlet?"
  headwise classify runs/questions < lines.txt > classes.txt
  headwise classify runs/questions --top 3 < lines.txt    the three most probable
  headwise classify runs/questions --json < lines.txt     one JSON object for each line

Each text, or each line of the input, gives one line: its class, a tab and the
probability. With --top, or where a text may have several labels, more of them follow on
the same line. Without texts and --input, lines are read from stdin; at a terminal, each
is classified at once. Put -- before a text that begins with a dash.
"""


@click.command(epilog=EPILOG)
@click.argument("run", type=FILE)
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@click.option("--input", "source", type=FILE, help="Read from a file instead of stdin.")
@click.option("--output", "target", type=FILE, help="Write to a file instead of stdout.")
@click.option("--top", type=click.IntRange(min=1), help="How many classes of each text.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each line.")
@click.option("--checkpoint", help="averaged, best, last or a step; by default in that order.")
@click.option("--batch-size", type=click.IntRange(min=1), help="Texts classified at a time.")
@click.option("--lenient", is_flag=True, help="Replace bytes that are not UTF-8 text.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, ...")
def classify(
    run: Path,
    texts: tuple[str, ...],
    source: Path | None,
    target: Path | None,
    top: int | None,
    as_json: bool,
    checkpoint: str | None,
    batch_size: int | None,
    lenient: bool,
    device: str,
) -> None:
    """Classify texts, or the lines of a text."""
    require_one_input(texts, source)

    from headwise.tasks.classification.classifier import Classifier

    classifier = Classifier.load(run, checkpoint=checkpoint, device=device, batch_size=batch_size)
    note(f"using {classifier.name}")
    count, cut = top or 1, 0
    if classifier.is_multi_label and top is None:
        count = len(classifier.classes)

    def lines_of(lines: list[str], first: int, name: str) -> list[str]:
        nonlocal cut
        found = classifier.classify(lines, top=count)
        cut += sum(each.is_cut for each in found)
        if as_json:
            pairs = zip(lines, found, strict=True)
            return [json.dumps(_as_json(*pair), ensure_ascii=False) for pair in pairs]
        return [_as_line(each, shows_all=top is not None) for each in found]

    filter_lines(texts, source, target, lines_of, lenient=lenient, doing="classifying")
    if cut:
        were = "1 text was" if cut == 1 else f"{cut:,} texts were"
        error_line(
            f"{were} longer than the {classifier.config.data.longest:,} tokens that are read: cut"
        )


def _as_line(found: "Classification", *, shows_all: bool) -> str:
    """Return labels with their probabilities, separated by tabs."""
    shown = [each for each in found.answers if shows_all or each.label in found.labels]
    return "\t".join(f"{each.label}\t{each.probability:.4f}" for each in shown)


def _as_json(text: str, found: "Classification") -> dict[str, Any]:
    return {
        "text": text,
        "labels": found.labels,
        "classes": [
            {"label": each.label, "probability": each.probability} for each in found.answers
        ],
        "is_cut": found.is_cut,
    }
