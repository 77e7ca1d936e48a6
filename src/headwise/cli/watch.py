"""Show the progress of long work on stderr: live on a terminal, as plain lines elsewhere."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from headwise.cli.figures import figures
from headwise.cli.output import colour
from headwise.durations import duration
from headwise.visible import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from headwise.training.estimate import Estimate
    from headwise.training.events import Event, Updated, Validated


_SILENCE_SECONDS = 60.0
"""The longest time without a line in a log."""


@contextmanager
def watch() -> Iterator["PlainWatch | LiveWatch"]:
    """Yield an object whose methods show progress, events and messages."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield PlainWatch()
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield LiveWatch(console, live)


class PlainWatch:
    """Print lines for a log."""

    def __init__(self) -> None:
        self._left = TimeLeft()
        self._last_line = time.monotonic()

    def progress(self, what: str, done: int, of: int | None) -> None:
        """Print at most a line a minute."""
        if time.monotonic() - self._last_line > _SILENCE_SECONDS:
            self.say(f"{what}: {done:,}")

    def say(self, line: str, is_warning: bool = False) -> None:
        """Print a line."""
        self._last_line = time.monotonic()
        text = visible(f"warning: {line}" if is_warning else line, keep="\n")
        click.echo(text, err=True, color=colour())

    def event(self, event: "Event") -> None:
        """Print an event; of updates, those that are logged, or one a minute."""
        from headwise.training.events import Updated

        if isinstance(event, Updated):
            left = self._left.after(event)
            if event.logged or time.monotonic() - self._last_line > _SILENCE_SECONDS:
                self.say(f"{_figures(event)}  {left}".rstrip())
            return
        for line, is_warning in _lines(event):
            self.say(line, is_warning)


class LiveWatch:
    """Show a bar and the latest figures below the printed lines."""

    def __init__(self, console: "Console", live: "Live") -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._console, self._live = console, live
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("")
        self._what = ""

    def progress(self, what: str, done: float, of: float | None, figures: str = "") -> None:
        """Update the bar."""
        from rich.console import Group
        from rich.text import Text

        if what != self._what:
            self._what = what
            self._bar.reset(self._task)
        self._bar.update(self._task, description=visible(what), completed=done, total=of)
        count = f"{done:,}" if of is None else f"{done:,} of {of:,}"
        self._live.update(Group(self._bar, Text(figures or count, style="dim")))

    def say(self, line: str, is_warning: bool = False) -> None:
        """Print a line above the bar."""
        from rich.text import Text

        style = "yellow" if is_warning else ""
        self._console.print(Text(visible(line, keep="\n"), style=style), soft_wrap=True)

    def event(self, event: "Event") -> None:
        """Show an event."""
        from headwise.training.events import Updated

        if isinstance(event, Updated):
            self.progress("training", event.share_done, 1.0, _figures(event))
            return
        for line, is_warning in _lines(event):
            self.say(line, is_warning)


class TimeLeft:
    """Estimate the time left from the speed since the first update."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None

    def after(self, event: "Updated") -> str:
        """Return the time left after an update."""
        if self._first is None:
            self._first = event.minutes, event.share_done
        minutes, share = event.minutes - self._first[0], event.share_done - self._first[1]
        if minutes <= 0 or share <= 0:
            return ""
        return f"{duration(60 * minutes / share * (1 - event.share_done))} left"


def _figures(event: "Updated") -> str:
    means = event.means
    return (
        f"step {event.step:,}  epoch {event.epoch:.2f}  loss {means.loss:.3f}  "
        f"perplexity {means.perplexity:.2f}  rate {means.rate:.2e}  "
        f"{' + '.join(f'{speed:,.0f}' for speed in means.tokens_per_second.values())} tokens/s  "
        f"{event.memory_mib:,.0f} MiB"
    )


def _lines(event: "Event") -> list[tuple[str, bool]]:
    """Describe any event but an update in lines, each with whether it is a warning."""
    from headwise.training.estimate import Estimate
    from headwise.training.events import Note, Saved, Validated

    match event:
        case Estimate():
            return estimate_lines(event)
        case Validated():
            return [(_validated(event), False)]
        case Saved(step=step, path=path):
            return [(f"step {step:,}  saved {visible(str(path))}", False)]
        case Note(text=text, is_warning=is_warning):
            return [(visible(text), is_warning)]
    return []


def _validated(event: "Validated") -> str:
    best = "  (best)" if event.is_best else ""
    return f"step {event.step:,}  validation {'  '.join(figures(event.result))}{best}"


def estimate_lines(estimate: "Estimate") -> list[tuple[str, bool]]:
    """Describe the time and memory of a run, with warnings if they are too large."""
    available = ""
    if estimate.available_mib is not None:
        available = f" of {estimate.available_mib:,.0f} MiB available"
    lines = [
        (
            f"about {duration(60 * estimate.minutes)}, at {estimate.target_tokens_per_second:,.0f} "
            f"target tokens/s and {duration(estimate.update_seconds)} an update, with "
            f"{estimate.memory_mib:,.0f} MiB{available}",
            False,
        )
    ]
    if estimate.too_long:
        lines.append(
            (
                f"{duration(60 * estimate.minutes)} is too long: this machine is too small for the "
                "recipe. `headwise train multi30k-tiny` fits one like it; or set a limit, as in "
                "--set train.max_minutes=60",
                True,
            )
        )
    if estimate.too_large:
        lines.append(
            (
                "that is more memory than is available: lower train.batch_tokens, and raise "
                "train.accumulate by as much for the same updates",
                True,
            )
        )
    return lines
