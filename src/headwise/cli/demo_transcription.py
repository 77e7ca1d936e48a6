"""`headwise demo --task reading` and `listening`: train a transcriber, and ask it."""

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
    from headwise.workflows.demo_transcription import TranscriptionDemoReport

HELP = "Enter transcribes it; an empty line ends."


def transcription_demo(
    name: str,
    run: Path | None,
    *,
    minutes: float | None,
    overrides: Sequence[str],
    fresh: bool,
    began: float,
) -> None:
    """Train, test, show ten examples, and transcribe what is typed."""
    from headwise.workflows.demo_runs import train_files_demo
    from headwise.workflows.demo_transcription import evaluate_transcription_demo

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
            report = evaluate_transcription_demo(demo, training, on_progress=watcher.progress)
    except KeyboardInterrupt:
        show("stopped: what is done is kept, and the same command resumes from there")
        raise SystemExit(130) from None
    show_styled(report_text(report, seconds=time.monotonic() - began))
    if sys.stdin.isatty() and sys.stdout.isatty():
        from headwise.cli.prompt import transcribe_files

        show_styled(f"\n{heading('Your turn')}\n{filled(demo.try_out)}\n{filled(HELP)}")
        transcribe_files(report.transcriber)


def report_text(report: "TranscriptionDemoReport", *, seconds: float) -> str:
    """Format the report, `seconds` after the command started."""
    parts = [
        [heading("Score"), *_score(report)],
        [heading(f"Some of the {report.demo.unit} it never saw")],
        *_samples(report),
        [heading("Measured"), *_measured(report, seconds)],
        [heading("Try next"), *_next(report)],
    ]
    return "\n".join("\n".join([*part, ""]) for part in parts).rstrip("\n")


def _score(report: "TranscriptionDemoReport") -> list[str]:
    errors = report.found.errors
    interval = errors.exact_interval
    spread = "" if interval is None else f" ± {100 * interval.margin:.1f}"
    return [
        f"{100 * errors.exact:.1f}{spread} % of {errors.examples:,} {report.demo.unit} it never "
        "saw are transcribed exactly right",
        *row("characters", f"{100 * errors.characters.rate:.2f} % are wrong"),
    ]


def _samples(report: "TranscriptionDemoReport") -> list[list[str]]:
    label = {"images": "image", "sounds": "sound"}[report.demo.unit]
    return [
        [
            *row(label, shown_text(given)),
            *row("text", shown_text(found), colour="cyan"),
            *([] if found == right else row("right", shown_text(right))),
        ]
        for given, found, right in report.samples
    ]


def _measured(report: "TranscriptionDemoReport", seconds: float) -> list[str]:
    state, found = report.training.state, report.found
    speed = found.errors.examples / found.seconds
    rows = {
        "training": f"{duration(60 * state.minutes)}: {state.step:,} updates",
        "transcribing": f"{speed:,.0f} {report.demo.unit} a second",
        "altogether": f"{duration(seconds)} since the command started",
        "report": f"{report.page}: open it in a browser",
    }
    return [line for label, text in rows.items() for line in row(label, text)]


def _next(report: "TranscriptionDemoReport") -> list[str]:
    run = shlex.quote(str(report.training.run.path))
    example = shlex.quote(report.demo.example(report.training.test))
    test = report.demo.options.format(shlex.quote(str(report.training.test)))
    return [
        "Transcribe one, or those named on the lines of a file:",
        *command(f"headwise transcribe {run}", example),
        "The same test, with the worst mistakes:",
        *command(f"headwise evaluate {run}", test),
        "What it attends to:",
        *command(f"headwise attention {run}", example, "--out attention.html"),
        "Transcribe in a browser:",
        *command(f"headwise serve {run}"),
    ]
