"""`headwise demo --task questions`: train a classifier within minutes and ask it."""

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.cli.demo import DemoWatch, after_training
from headwise.cli.demo_report import command, filled, heading, row, width
from headwise.cli.output import show, show_styled, shown_text
from headwise.cli.watch import watch
from headwise.durations import duration

if TYPE_CHECKING:
    from headwise.workflows.demo_questions import QuestionsReport

HELP = "Enter classifies a question; an empty line ends."
EXAMPLE = "For example: Who discovered radium?"


def questions_demo(
    run: Path | None,
    *,
    minutes: float | None,
    overrides: Sequence[str],
    fresh: bool,
    began: float,
) -> None:
    """Train, test, show ten questions, and classify what is typed."""
    from headwise.workflows.demo_questions import evaluate_questions_demo, train_questions_demo

    try:
        with watch() as watcher:
            demo_watch = DemoWatch(watcher, width())
            training = train_questions_demo(
                run,
                minutes=minutes,
                overrides=overrides,
                fresh=fresh,
                say=demo_watch.say,
                on_event=demo_watch.event,
                on_progress=watcher.progress,
            )
            after_training(training, demo_watch)
            report = evaluate_questions_demo(training, on_progress=watcher.progress)
    except KeyboardInterrupt:
        show("stopped: what is done is kept, and the same command resumes from there")
        raise SystemExit(130) from None
    show_styled(report_text(report, seconds=time.monotonic() - began))
    if sys.stdin.isatty() and sys.stdout.isatty():
        from headwise.cli.prompt import classify_lines

        show_styled(f"\n{heading('Your turn')}\n{filled(EXAMPLE)}\n{filled(HELP)}")
        classify_lines(report.classifier)


def report_text(report: "QuestionsReport", *, seconds: float) -> str:
    """Format the report, `seconds` after the command started."""
    parts = [
        [heading("Score"), *_score(report)],
        [heading(f"The first {len(report.samples)} of the questions it never saw")],
        *_samples(report),
        [heading("Measured"), *_measured(report, seconds)],
        [heading("Try next"), *_next(report)],
    ]
    return "\n".join("\n".join([*part, ""]) for part in parts).rstrip("\n")


def _score(report: "QuestionsReport") -> list[str]:
    evaluation = report.evaluation
    scores = evaluation.runs[0].scores
    interval = scores.accuracy_interval
    spread = "" if interval is None else f" ± {100 * interval.margin:.1f}"
    lines = [
        f"{100 * scores.accuracy:.1f}{spread} % of {scores.examples} questions it never saw are "
        "put into the right class",
        *row("macro F1", f"{100 * scores.macro_f1:.1f} %"),
    ]
    if evaluation.baseline is None:
        return [*lines, *row("baseline", "needs scikit-learn: pip install 'headwise[baseline]'")]
    accuracy = 100 * evaluation.baseline.scores.accuracy
    name = evaluation.baseline.run.removeprefix("baseline: ")
    (verdict,) = evaluation.verdicts()
    return [
        *lines,
        *row("baseline", f"{accuracy:.1f} %: {name}"),
        *row("so", verdict.partition(": ")[2]),
    ]


def _samples(report: "QuestionsReport") -> list[list[str]]:
    return [
        [
            *row("question", question),
            *row("class", shown_text(found), colour="cyan"),
            *([] if found == right else row("right", right)),
        ]
        for question, found, right in report.samples
    ]


def _measured(report: "QuestionsReport", seconds: float) -> list[str]:
    state, found = report.training.state, report.evaluation.runs[0]
    rows = {
        "training": f"{duration(60 * state.minutes)}: {state.step:,} updates",
        "classifying": f"{found.texts / found.seconds:,.0f} questions a second",
        "altogether": f"{duration(seconds)} since the command started",
        "report": f"{report.page}: open it in a browser",
    }
    return [line for label, text in rows.items() for line in row(label, text)]


def _next(report: "QuestionsReport") -> list[str]:
    run = shlex.quote(str(report.training.run.path))
    test = shlex.quote(str(report.training.test))
    columns = "--text-column text --label-column label"
    return [
        "Classify a question, or the lines of a file:",
        *command(f"headwise classify {run}", "--top 3", '"Who discovered radium?"'),
        "The same test, by class, with the most confident mistakes:",
        *command(f"headwise evaluate {run}", f"--table {test}", columns, "--baseline"),
        "What it attends to:",
        *command(f"headwise attention {run}", '"Who discovered radium?"', "--out attention.html"),
        "Classify in a browser, as you type:",
        *command(f"headwise serve {run}"),
    ]
