"""`headwise demo --task parsing`: train a parser within minutes and draw trees with it."""

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.cli.demo import DemoWatch, after_training
from headwise.cli.demo_report import command, filled, heading, row, width
from headwise.cli.output import show, show_styled
from headwise.cli.watch import watch
from headwise.durations import duration

if TYPE_CHECKING:
    from headwise.workflows.demo_parsing import ParsingDemoReport

HELP = "Enter draws the tree of a sentence; an empty line ends."


def parsing_demo(
    run: Path | None,
    trees: Sequence[Path],
    *,
    minutes: float | None,
    overrides: Sequence[str],
    fresh: bool,
    began: float,
) -> None:
    """Train, test, show ten trees, and draw what is typed."""
    from headwise.workflows.demo_parsing import evaluate_parsing_demo, train_parsing_demo

    try:
        with watch() as watcher:
            demo_watch = DemoWatch(watcher, width())
            training = train_parsing_demo(
                run,
                trees,
                minutes=minutes,
                overrides=overrides,
                fresh=fresh,
                say=demo_watch.say,
                on_event=demo_watch.event,
                on_progress=watcher.progress,
            )
            after_training(training, demo_watch)
            report = evaluate_parsing_demo(training, on_progress=watcher.progress)
    except KeyboardInterrupt:
        show("stopped: what is done is kept, and the same command resumes from there")
        raise SystemExit(130) from None
    show_styled(report_text(report, seconds=time.monotonic() - began))
    if sys.stdin.isatty() and sys.stdout.isatty():
        from headwise.cli.prompt import draw_trees

        show_styled(f"\n{heading('Your turn')}\n{filled(HELP)}")
        draw_trees(report.parser)


def report_text(report: "ParsingDemoReport", *, seconds: float) -> str:
    """Format the report, `seconds` after the command started."""
    parts = [
        [heading("Score"), *_score(report)],
        [heading(f"{len(report.samples)} short sentences that it never saw")],
        *([*row("sentence", " ".join(parse.words)), parse.pretty()] for parse in report.samples),
        [heading("Measured"), *_measured(report, seconds)],
        [heading("Try next"), *_next(report)],
    ]
    return "\n".join("\n".join([*part, ""]) for part in parts).rstrip("\n")


def _score(report: "ParsingDemoReport") -> list[str]:
    found = report.found
    overall, interval = found.scores.overall, found.scores.interval
    margin = "" if interval is None else f" ± {interval.margin:.1f}"
    return [
        f"F1 {overall.f1:.1f}{margin} on {len(found.parses):,} sentences it never saw, as EVALB",
        *row("recall", f"{overall.recall:.1f}"),
        *row("precision", f"{overall.precision:.1f}"),
        *row("complete", f"{overall.complete_match:.1f} % of the trees are exactly right"),
        *row("tags", f"{overall.tagging_accuracy:.1f} % are right"),
    ]


def _measured(report: "ParsingDemoReport", seconds: float) -> list[str]:
    state, found = report.training.state, report.found
    rows = {
        "training": f"{duration(60 * state.minutes)}: {state.step:,} updates, "
        f"{state.tokens:,} symbols",
        "parsing": f"{len(found.parses) / found.seconds:.0f} sentences a second, with a beam of "
        f"{report.parser.config.decode.beam}",
        "altogether": f"{duration(seconds)} since the command started",
        "report": f"{report.page}: open it in a browser",
    }
    return [line for label, text in rows.items() for line in row(label, text)]


def _next(report: "ParsingDemoReport") -> list[str]:
    run = shlex.quote(str(report.training.run.path))
    test = shlex.quote(str(report.training.test))
    return [
        "Draw a tree:",
        *command(f"headwise parse {run}", "--draw", '"The dog sleeps."'),
        "The same test, by length and by label:",
        *command(f"headwise evaluate {run}", f"--trees {test}"),
        "Draw trees in a browser, as you type:",
        *command(f"headwise serve {run}"),
    ]
