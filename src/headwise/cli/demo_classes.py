"""`headwise demo --task questions`, `digits` and `speech`: train a classifier, and ask it."""

import shlex
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.cli.demo import DemoWatch, after_training
from headwise.cli.demo_report import command, filled, heading, row, width
from headwise.cli.output import show, show_styled, shown_text
from headwise.cli.watch import watch
from headwise.durations import duration

if TYPE_CHECKING:
    from headwise.workflows.demo_classes import ClassDemoReport

HELP = "Enter classifies it; an empty line ends."


def class_demo(
    name: str,
    run: Path | None,
    *,
    minutes: float | None,
    overrides: Sequence[str],
    fresh: bool,
    began: float,
) -> None:
    """Train, test, show ten examples, and classify what is typed."""
    from headwise.workflows.demo_classes import evaluate_class_demo
    from headwise.workflows.demo_runs import train_files_demo

    demo = import_module(f"headwise.workflows.demo_{name}").DEMO

    try:
        with watch() as watcher:
            demo_watch = DemoWatch(watcher, width())
            training = train_files_demo(
                demo,
                run,
                minutes=minutes,
                overrides=overrides,
                fresh=fresh,
                say=demo_watch.say,
                on_event=demo_watch.event,
                on_progress=watcher.progress,
            )
            after_training(training, demo_watch)
            report = evaluate_class_demo(demo, training, on_progress=watcher.progress)
    except KeyboardInterrupt:
        show("stopped: what is done is kept, and the same command resumes from there")
        raise SystemExit(130) from None
    show_styled(report_text(report, seconds=time.monotonic() - began))
    if sys.stdin.isatty() and sys.stdout.isatty():
        from headwise.cli.prompt import classify_lines

        show_styled(f"\n{heading('Your turn')}\n{filled(demo.try_out)}\n{filled(HELP)}")
        classify_lines(report.classifier)


def report_text(report: "ClassDemoReport", *, seconds: float) -> str:
    """Format the report, `seconds` after the command started."""
    parts = [
        [heading("Score"), *_score(report)],
        [heading(f"Some of the {report.demo.unit} it never saw")],
        *_samples(report),
        [heading("Measured"), *_measured(report, seconds)],
        [heading("Try next"), *_next(report)],
    ]
    return "\n".join("\n".join([*part, ""]) for part in parts).rstrip("\n")


def _score(report: "ClassDemoReport") -> list[str]:
    evaluation = report.evaluation
    scores = evaluation.runs[0].scores
    interval = scores.accuracy_interval
    spread = "" if interval is None else f" ± {100 * interval.margin:.1f}"
    lines = [
        f"{100 * scores.accuracy:.1f}{spread} % of {scores.examples:,} {report.demo.unit} it never "
        "saw are put into the right class",
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


def _samples(report: "ClassDemoReport") -> list[list[str]]:
    label = {"questions": "question", "images": "image", "sounds": "sound"}[report.demo.unit]
    return [
        [
            *row(label, shown_text(given)),
            *row("class", shown_text(found), colour="cyan"),
            *([] if found == right else row("right", right)),
        ]
        for given, found, right in report.samples
    ]


def _measured(report: "ClassDemoReport", seconds: float) -> list[str]:
    state, found = report.training.state, report.evaluation.runs[0]
    rows = {
        "training": f"{duration(60 * state.minutes)}: {state.step:,} updates",
        "classifying": f"{found.examples / found.seconds:,.0f} {report.demo.unit} a second",
        "altogether": f"{duration(seconds)} since the command started",
        "report": f"{report.page}: open it in a browser",
    }
    return [line for label, text in rows.items() for line in row(label, text)]


def _next(report: "ClassDemoReport") -> list[str]:
    run = shlex.quote(str(report.training.run.path))
    example = report.demo.example(report.training.test)
    if report.classifier.input != "text":
        example = shlex.quote(example)
    test = report.demo.options.format(shlex.quote(str(report.training.test)))
    return [
        "Classify one, or those named on the lines of a file:"
        if report.classifier.input != "text"
        else "Classify a question, or the lines of a file:",
        *command(f"headwise classify {run}", "--top 3", example),
        "The same test, by class, with the most confident mistakes:",
        *command(f"headwise evaluate {run}", test, "--baseline"),
        "What it attends to:",
        *command(f"headwise attention {run}", example, "--out attention.html"),
        "Classify in a browser:",
        *command(f"headwise serve {run}"),
    ]
