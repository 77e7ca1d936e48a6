"""`headwise classify`: classes of arguments, or of lines from stdin or a file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwise.cli.line_filter import filter_lines, require_one_input
from headwise.cli.output import error_line, note
from headwise.cli.text_options import FILE
from headwise.errors import DataError

if TYPE_CHECKING:
    from headwise.tasks.classification.classifier import Classification, Classifier
    from headwise.tasks.encoders import Encoded

EPILOG = """\b
Examples:
  headwise classify runs/questions "Who wrote Hamlet?"
  headwise classify runs/questions < lines.txt > classes.txt
  headwise classify runs/questions --top 3 < lines.txt    the three most probable
  headwise classify runs/questions --json < lines.txt     one JSON object for each line
  headwise classify runs/digits seven.png                 an image, or a sound
  ls photos/*.jpg | headwise classify runs/photos         one path on each line

Each text or file, or each line of the input, gives one line: its class, a tab and the
probability. With --top, or where there may be several labels, more of them follow on
the same line. Without texts and --input, lines are read from stdin; at a terminal, each
is classified at once. Put -- before a text that begins with a dash.
"""


@click.command(epilog=EPILOG)
@click.argument("run", type=FILE)
@click.argument("texts", metavar="[TEXT|FILE]...", nargs=-1)
@click.option("--input", "source", type=FILE, help="Read from a file instead of stdin.")
@click.option("--output", "target", type=FILE, help="Write to a file instead of stdout.")
@click.option("--top", type=click.IntRange(min=1), help="How many classes of each text.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each line.")
@click.option("--checkpoint", help="averaged, best, last or a step; by default in that order.")
@click.option("--batch-size", type=click.IntRange(min=1), help="Examples classified at a time.")
@click.option(
    "--lenient",
    is_flag=True,
    help="Replace bytes that are not UTF-8 text; give an empty line for a file that is unreadable.",
)
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
    """Classify texts, or the lines of a text; or images or sounds, by their paths."""
    require_one_input(texts, source)

    from headwise.tasks.classification.classifier import Classifier
    from headwise.tasks.classification.kinds import kind_of

    classifier = Classifier.load(run, checkpoint=checkpoint, device=device, batch_size=batch_size)
    note(f"using {classifier.name}")
    kind = kind_of(classifier.config)
    count, cut = top or 1, 0
    faults: list[str] = []
    if classifier.is_multi_label and top is None:
        count = len(classifier.classes)

    def lines_of(lines: list[str], first: int, name: str) -> list[str]:
        nonlocal cut
        found: list[Classification | DataError] = []
        if lenient and classifier.input != "text":
            found += _readable(classifier, lines, count)
        else:
            found += classifier.classify(lines, top=count)
        faults.extend(str(each) for each in found if isinstance(each, DataError))
        cut += sum(not isinstance(each, DataError) and each.is_cut for each in found)
        if as_json:
            key = "text" if classifier.input == "text" else "file"
            pairs = zip(lines, found, strict=True)
            return [json.dumps(_as_json(key, *pair), ensure_ascii=False) for pair in pairs]
        return [_as_line(each, shows_all=top is not None) for each in found]

    filter_lines(texts, source, target, lines_of, lenient=lenient, doing="classifying")
    if cut:
        error_line(f"{_were(cut, kind.unit)} cut off after {kind.most(classifier.config.data)}")
    if faults:
        error_line(f"{_were(len(faults), kind.unit)} not readable; the first: {faults[0]}")


def _were(count: int, unit: str) -> str:
    return f"1 of the {unit} was" if count == 1 else f"{count:,} {unit} were"


def _readable(
    classifier: "Classifier", paths: list[str], top: int
) -> "list[Classification | DataError]":
    """Classify the files that can be read; return for each its classes, or what is wrong."""
    faults: dict[int, DataError] = {}

    def encoded() -> "Iterator[Encoded]":
        for number, path in enumerate(paths):
            try:
                yield classifier.encoder.encode(classifier.encoder.given(path))
            except DataError as error:
                faults[number] = error

    found = iter(classifier.classify(encoded(), top=top))
    return [faults[number] if number in faults else next(found) for number in range(len(paths))]


def _as_line(found: "Classification | DataError", *, shows_all: bool) -> str:
    """Return labels with their probabilities, separated by tabs."""
    if isinstance(found, DataError):
        return ""
    shown = [each for each in found.answers if shows_all or each.label in found.labels]
    return "\t".join(f"{each.label}\t{each.probability:.4f}" for each in shown)


def _as_json(key: str, given: str, found: "Classification | DataError") -> dict[str, Any]:
    if isinstance(found, DataError):
        return {key: given, "error": str(found)}
    return {
        key: given,
        "labels": found.labels,
        "classes": [
            {"label": each.label, "probability": each.probability} for each in found.answers
        ],
        "is_cut": found.is_cut,
    }
