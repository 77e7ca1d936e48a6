"""What `headwise demo` prints at the end: score, examples, measurements, files, next steps."""

import shlex
import shutil
import textwrap
from typing import TYPE_CHECKING

import click

from headwise.cli.output import shown_text
from headwise.config import Vocab
from headwise.durations import duration
from headwise.visible import IN_TEXT, visible

if TYPE_CHECKING:
    from headwise.workflows.demo import DemoReport

_WIDEST = 100
_LABEL = 13


def report_text(report: "DemoReport", *, seconds: float) -> str:
    """Format the report, `seconds` after the command started."""
    noun = report.training.text.task.noun
    parts = [
        [heading("Score"), *_score(report)],
        [heading(f"The first {len(report.samples)} of the {noun} it never saw")],
        *_samples(report),
        [heading("Measured"), *_measured(report, seconds)],
        [heading("Where it is"), *_places(report)],
        [heading("Try next"), *_next(report)],
    ]
    return "\n".join("\n".join([*part, ""]) for part in parts).rstrip("\n")


def _score(report: "DemoReport") -> list[str]:
    scores, task = report.scores.scores, report.training.text.task
    unseen = f"{scores.sentences:,} {task.noun} it never saw"
    if task.is_exact:
        return [f"{report.exact:.1%} of {unseen} are exactly right"]
    margin = "" if scores.bleu.interval is None else f" ± {scores.bleu.interval.margin:.1f}"
    return [
        f"BLEU {scores.bleu.value:.1f}{margin} on {unseen}",
        *row("signature", scores.bleu.signature),
        *row("chrF", f"{scores.chrf.value:.1f}"),
        *row("exact", f"{report.exact:.1%} equal a human translation exactly"),
    ]


def _samples(report: "DemoReport") -> list[list[str]]:
    return [
        [
            *row("source", sample.source),
            *row("ours", shown_text(sample.translation), colour="cyan"),
            *row("reference", sample.references[0]),
        ]
        for sample in report.samples
    ]


def _measured(report: "DemoReport", seconds: float) -> list[str]:
    training, config = report.training, report.translator.config
    state, counts = training.state, training.text.manifest
    source, target = training.run.subwords()
    vocab = Vocab(source_size=len(source), target_size=len(target))
    rate = state.tokens / (60 * state.minutes)
    rows = {
        "text": f"{counts['train_pairs']:,} pairs to train on, {counts['valid_pairs']:,} to "
        f"validate on, {counts['test_sentences']:,} {training.text.task.noun} to test on",
        "model": f"{config.model.count_parameters(vocab):,} parameters, a vocabulary of "
        f"{vocab.target_size:,}",
        "training": f"{duration(60 * state.minutes)}: {state.step:,} updates, "
        f"{state.tokens:,} target tokens, {rate:,.0f} a second",
        "translation": f"{report.scores.sentences_per_second:.0f} {training.text.task.noun} a "
        f"second, with a beam of {config.decode.beam}",
        "altogether": f"{duration(seconds)} since the command started",
    }
    return [line for label, text in rows.items() for line in row(label, text)]


def _places(report: "DemoReport") -> list[str]:
    training = report.training
    lines = [
        *row("report", f"{report.page}: open it in a browser"),
        *row("model", str(training.run.path)),
        *row("text", str(training.text.directory)),
    ]
    if training.text.task.credit:
        lines += row("credit", training.text.task.credit)
    return lines


def _next(report: "DemoReport") -> list[str]:
    text, run = report.training.text, shlex.quote(str(report.training.run.path))
    count = text.manifest["references"]
    numbers = f"{{{','.join(str(n + 1) for n in range(count))}}}" if count > 1 else "1"
    # The shell expands this to an option for each reference.
    references = f"--ref={shlex.quote(f'{text.directory}/test.{text.task.target}')}.{numbers}"
    return [
        "Text of your own, two files that correspond line by line:",
        *command("headwise train demo", "--src train.en", "--tgt train.es", "--run runs/mine"),
        "What each word attends to:",
        *command(
            f"headwise attention {run}",
            shlex.quote(text.task.examples[0]),
            "--out attention.html",
        ),
        "The same test, with all scores:",
        *command(
            f"headwise evaluate {run}", f"--src {shlex.quote(str(text.test_source))}", references
        ),
    ]


def command(*parts: str) -> list[str]:
    """Format a command; on several lines, with backslashes, if one is too short."""
    parts = tuple(map(visible, parts))
    line = f"  {' '.join(parts)}"
    if len(line) <= width():
        return [line]
    first, *rest = parts
    return [
        f"  {first} \\",
        *(f"      {part} \\" for part in rest[:-1]),
        f"      {rest[-1]}",
    ]


def filled(text: str) -> str:
    """Wrap text to the terminal's width."""
    return textwrap.fill(text, width())


def width() -> int:
    """Return the maximum width of a line."""
    return min(_WIDEST, shutil.get_terminal_size().columns)


def row(label: str, text: str, colour: str | None = None) -> list[str]:
    """Put a label before a text, which is wrapped in its own column."""
    lines = textwrap.wrap(visible(text, keep=IN_TEXT), max(20, width() - _LABEL)) or [""]
    return [
        click.style(f"{label if number == 0 else '':<{_LABEL}}", dim=True)
        + click.style(line, fg=colour)
        for number, line in enumerate(lines)
    ]


def heading(text: str) -> str:
    """Format a heading."""
    return click.style(text, bold=True)
