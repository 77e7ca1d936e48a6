"""`headwise reproduce table3` and `baseline`: tables whose cells are trainings."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwise.cli.output import note, show
from headwise.cli.reproduce import grid_text, out_option
from headwise.cli.text_options import translation_options
from headwise.cli.watch import watch
from headwise.config import TASKS
from headwise.tasks.table import task_inputs

if TYPE_CHECKING:
    from headwise.data import Text
    from headwise.inspect.table_page import Grid

TABLE3_EPILOG = """\b
Examples:
  headwise reproduce table3 --src train.en --tgt train.de --jobs 2
  headwise reproduce table3 --src train.en --tgt train.de --rows A,E --minutes 3
  headwise reproduce table3 --tsv pairs.tsv --tokens 2000000 --seeds 3

The whole table takes about 25 times as long as base, for each seed. A command that
was stopped goes on where it was when it is run again.
"""

BASELINE_EPILOG = """\b
Examples:
  headwise reproduce baseline --src train.en --tgt train.de
  headwise reproduce baseline --tsv pairs.tsv --minutes 3 --seeds 2 --jobs 2

Test sentences are held out of the text, and so are its longest sentences. A command
that was stopped goes on where it was when it is run again.
"""

_MINUTES = click.FloatRange(min=0, min_open=True)


def _training_options(seeds: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator with the options of all tables of trainings."""
    options = (
        click.option(
            "--seeds",
            type=click.IntRange(min=1, max=100),
            default=seeds,
            show_default=True,
            help="Trainings of each model; intervals need two.",
        ),
        click.option(
            "--jobs",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="Trainings at a time; several have one thread each.",
        ),
        click.option(
            "--set",
            "overrides",
            metavar="KEY=VALUE",
            multiple=True,
            help="Change one value of all.",
        ),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return translation_options(command)

    return decorate


def _texts(files: dict[str, Any]) -> tuple["Text", "Text | None"]:
    """Return the text to train on and the one to validate on, if it is given."""
    inputs: Any = task_inputs(TASKS["translation"])
    text = inputs.training(files)
    if text is None:
        raise click.UsageError(f"give the {inputs.needed}")
    return text, inputs.validation(files)


def _rows(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    known = ("A", "B", "C", "D", "E", "big")
    found = known if value is None else tuple(part.strip() for part in value.split(","))
    names = {name.lower(): name for name in (*known, "base")}
    if unknown := [name for name in found if name.lower() not in names]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(names.values())}")
    return tuple(names[name.lower()] for name in found)


@click.command(epilog=TABLE3_EPILOG)
@_training_options(seeds=2)
@click.option(
    "--rows",
    metavar="A,B,...",
    callback=_rows,
    help="Some of A, B, C, D, E and big; default: all. Base is always trained.",
)
@click.option("--minutes", type=_MINUTES, help="How long to train base; default: 12.")
@click.option("--tokens", type=click.IntRange(min=1), help="Target tokens instead of minutes.")
@click.option(
    "--factor",
    type=click.Choice(["1", "2", "4", "8", "16"]),
    default="4",
    show_default=True,
    help="What widths and vocabulary are divided by.",
)
@out_option("table3.html, table3.json and the runs")
def table3(
    rows: tuple[str, ...],
    minutes: float | None,
    tokens: int | None,
    factor: str,
    seeds: int,
    jobs: int,
    overrides: tuple[str, ...],
    out: Path,
    **files: Any,
) -> None:
    """Train the rows of Table 3, scaled down, on equally many target tokens each."""
    if minutes is not None and tokens is not None:
        raise click.UsageError("give either --minutes or --tokens, not both")
    text, valid = _texts(files)
    from headwise.workflows.reproduce.table3 import reproduce_table3
    from headwise.workflows.reproduce.table3_view import table3_grids, table3_page

    with watch() as watcher:
        table = reproduce_table3(
            text,
            out,
            valid=valid,
            groups=rows,
            factor=int(factor),
            minutes=12.0 if minutes is None and tokens is None else minutes,
            tokens=tokens,
            seeds=seeds,
            jobs=jobs,
            overrides=overrides,
            on_progress=watcher.progress,
            say=watcher.say,
        )
    _publish("table3", out, table3_page(table), table3_grids(table))


@click.command(epilog=BASELINE_EPILOG)
@_training_options(seeds=1)
@click.option(
    "--minutes", type=_MINUTES, default=10.0, show_default=True, help="How long to train each."
)
@out_option("baseline.html, baseline.json and the runs")
def baseline(
    minutes: float,
    seeds: int,
    jobs: int,
    overrides: tuple[str, ...],
    out: Path,
    **files: Any,
) -> None:
    """Compare the Transformer with recurrent models of equal parameters and minutes."""
    text, valid = _texts(files)
    from headwise.workflows.reproduce.baseline import reproduce_baseline
    from headwise.workflows.reproduce.baseline_view import baseline_grids, baseline_page

    with watch() as watcher:
        found = reproduce_baseline(
            text,
            out,
            valid=valid,
            minutes=minutes,
            seeds=seeds,
            jobs=jobs,
            overrides=overrides,
            on_progress=watcher.progress,
            say=watcher.say,
        )
    _publish("baseline", out, baseline_page(found), baseline_grids(found))


def _publish(name: str, out: Path, page: str, grids: "list[Grid]") -> None:
    """Write the page, and print its tables."""
    from headwise.files import replace_file

    path = out / f"{name}.html"
    replace_file(path, page.encode())
    for grid in grids:
        show(f"{grid_text(grid)}\n")
    note(f"wrote {path} and {out / f'{name}.json'}")
