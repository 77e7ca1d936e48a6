"""`headwise demo`: train a translator within minutes and show its results."""

import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click

from headwise.cli.output import show, show_styled
from headwise.cli.text_options import FILE
from headwise.durations import duration
from headwise.visible import visible

if TYPE_CHECKING:
    from headwise.cli.watch import LiveWatch, PlainWatch
    from headwise.training.events import Event
    from headwise.workflows.demo import DemoTraining
    from headwise.workflows.demo_runs import TrainedDemo
    from headwise.workflows.demo_tasks import TaskName

_Other = Literal["questions", "digits", "speech", "reading", "listening", "parsing"]
"""The demos of other tasks than translation."""

EPILOG = """\b
Examples:
  headwise demo                            English to Spanish, in three minutes of training
  headwise demo --minutes 10 --run runs/demo-10
                                           train longer, in another run
  headwise demo --task numbers             without any download: "three hundred and five"
                                           to "305 = trescientos cinco"
  headwise demo --task reverse --minutes 1
                                           the smallest: words backwards
  headwise demo --task questions           what a question asks for: a classifier
  headwise demo --task digits              handwritten digits
  headwise demo --task speech              spoken digits
  headwise demo --task reading             lines of several handwritten digits, in ten minutes
  headwise demo --task listening           strings of spoken digits
  headwise demo --task parsing --trees craft.mrg
                                           a parser, in five minutes, from a treebank of yours

The same command again resumes a stopped demo, and shows the results of a finished one.
The text is downloaded once, with pip, to demo-data beside the run.
"""


@click.command(epilog=EPILOG)
@click.option(
    "--task",
    type=click.Choice(["tatoeba", "numbers", "reverse", *get_args(_Other)]),
    help="What to learn; default: tatoeba, or numbers if that cannot be downloaded.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="How long to train; default: 3, for questions 2, for parsing 5, for reading and "
    "listening as their recipes say.",
)
@click.option("--trees", type=FILE, multiple=True, help="Bracketed trees, for --task parsing.")
@click.option("--run", type=FILE, help="The run directory; default: runs/demo or runs/demo-TASK.")
@click.option("--fresh", is_flag=True, help="Start over, even if the demo is trained already.")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change one value.")
def demo(
    task: "TaskName | _Other | None",
    minutes: float | None,
    trees: tuple[Path, ...],
    run: Path | None,
    fresh: bool,
    overrides: tuple[str, ...],
) -> None:
    """Train a translator within minutes and see what it can do.

    It learns from real sentences, is scored on a thousand held-out ones, shows ten of them, and
    translates what you type. With --task questions, digits or speech it learns to classify texts,
    images or sounds, with --task reading or listening to transcribe strings of digits, and with
    --task parsing to draw the trees of sentences.
    """
    began = time.monotonic()
    if task == "parsing":
        from headwise.cli.demo_parsing import parsing_demo

        parsing_demo(run, trees, minutes=minutes, overrides=overrides, fresh=fresh, began=began)
        return
    if trees:
        raise click.UsageError("--trees is for --task parsing")
    match task:
        case "questions" | "digits" | "speech":
            from headwise.cli.demo_classes import class_demo

            class_demo(task, run, minutes=minutes, overrides=overrides, fresh=fresh, began=began)
            return
        case "reading" | "listening":
            from headwise.cli.demo_transcription import transcription_demo

            transcription_demo(
                task, run, minutes=minutes, overrides=overrides, fresh=fresh, began=began
            )
            return
    from headwise.cli.demo_report import filled, heading, report_text, width
    from headwise.cli.watch import watch
    from headwise.workflows.demo import evaluate_demo, train_demo

    try:
        with watch() as watcher:
            demo_watch = DemoWatch(watcher, width())
            training = train_demo(
                run,
                task=task,
                minutes=minutes,
                overrides=overrides,
                fresh=fresh,
                say=demo_watch.say,
                on_event=demo_watch.event,
                on_progress=watcher.progress,
            )
            after_training(training, demo_watch)
            report = evaluate_demo(training, on_progress=watcher.progress)
    except KeyboardInterrupt:
        show("stopped: what is done is kept, and the same command resumes from there")
        raise SystemExit(130) from None
    show_styled(report_text(report, seconds=time.monotonic() - began))
    if sys.stdin.isatty() and sys.stdout.isatty():
        from headwise.cli.prompt import HELP, converse

        example = report.training.text.task.examples[0]
        show_styled(
            f"\n{heading('Your turn')}\n{filled(f'For example: {example}')}\n{filled(HELP)}"
        )
        converse(report.translator)


def after_training(training: "DemoTraining | TrainedDemo", watch: "DemoWatch") -> None:
    """Say how training ended; exit if a signal stopped it."""
    if training.signal:
        step = training.state.step
        saved = f"saved step {step:,}" if step else "no update was made yet"
        show(f"stopped: {saved}; the same command resumes from there")
        raise SystemExit(128 + training.signal)
    time_taken = duration(60 * training.state.minutes)
    if training.is_new:
        watch.say(f"Trained for {time_taken}; now the test.")
    else:
        watch.say(
            f"{training.run.path} is trained already, for {time_taken}: here it is again. "
            "--fresh starts over."
        )


class DemoWatch:
    """Show training in fewer lines than `headwise train`, wrapped to the terminal."""

    def __init__(self, watcher: "PlainWatch | LiveWatch", width: int) -> None:
        self._watcher, self._width = watcher, width

    def say(self, line: str, is_warning: bool = False) -> None:
        self._watcher.say(textwrap.fill(visible(line), self._width), is_warning)

    def event(self, event: "Event") -> None:
        from headwise.cli.watch import estimate_lines
        from headwise.training.estimate import Estimate
        from headwise.training.events import Note, Saved, Updated, Validated

        match event:
            case Updated():
                # In a log, one line a minute is enough.
                self._watcher.event(replace(event, logged=False))
            case Validated(step=step, result=result):
                self.say(f"step {step:,}: validation perplexity {result.perplexity:.2f} a token")
            case Note(text=text, is_warning=is_warning):
                self.say(text, is_warning)
            case Estimate():
                for line, is_warning in estimate_lines(event):
                    if is_warning:
                        self.say(line, is_warning)
            case Saved():
                pass
