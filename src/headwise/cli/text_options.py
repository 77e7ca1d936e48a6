"""The options that name a task's files, the same on every verb that takes them."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwise.config import TASKS, TEXT, AnyConfig, TaskRow, task_rows
from headwise.tasks.inputs import InputOption, given_flag
from headwise.tasks.table import task_inputs
from headwise.visible import visible

if TYPE_CHECKING:
    from headwise.tasks.inputs import TaskInputs
    from headwise.training.task import PreparedReport, Source

FILE = click.Path(path_type=Path)


def is_column(text: str) -> bool:
    """Return whether it is the number of a column; what is longer than this is none."""
    return text.isdecimal() and len(text) < 10


def _columns(_: click.Context, __: click.Parameter, value: str) -> tuple[int, int]:
    first, _comma, second = value.partition(",")
    if not (is_column(first) and is_column(second)):
        raise click.BadParameter(f"{value!r} is not two column numbers, as in 1,2")
    return int(first), int(second)


_OPTIONS = (
    click.option(
        "--lenient", is_flag=True, help="Leave out lines that cannot be read, and count them."
    ),
    click.option(
        "--processes", type=click.IntRange(min=1), help="Processes that encode; one for each core."
    ),
)


def _by_name() -> dict[str, InputOption]:
    """Return the options of all tasks; one that several have is one option."""
    return {option.name: option for inputs in _all_inputs() for option in inputs.options}


def text_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options that name the files of every task."""
    for option in reversed((*map(_option, _by_name().values()), *_OPTIONS)):
        command = option(command)
    return command


def translation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options that name pairs of sentences."""
    for option in reversed(task_inputs(TASKS["translation"]).options):
        command = _option(option)(command)
    return command


def evaluation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options that name the files every task is evaluated on."""
    by_name = {o.name: o for inputs in _all_inputs() for o in inputs.evaluation_options}
    for option in reversed([*map(_option, by_name.values())]):
        command = option(command)
    return command


def given_flags(values: Mapping[str, Any], *, but: TaskRow) -> list[str]:
    """Return the flags of those `evaluation_options` that have a value and are not one task's."""
    own = {option.flag for option in task_inputs(but).evaluation_options}
    options = [option for inputs in _all_inputs() for option in inputs.evaluation_options]
    given = [o.flag for o in options if values.get(o.name) not in (None, (), False, o.default)]
    return [flag for flag in given if flag not in own]


def usual_recipe(values: Mapping[str, Any]) -> tuple[str, str]:
    """Return the recipe for the files that are given, and why it is that one.

    Files of translation, or of no task or of several, give no recipe and no reason.
    """
    given: dict[str, tuple[str, TaskRow]] = {}
    for task, row in task_rows():
        if flag := given_flag(task_inputs(row), values):
            given.setdefault(flag, (task, row))  # Of several tasks, the first in the table.
    if len(given) == 1:
        ((flag, (task, row)),) = given.items()
        if row.recipe:
            of = task if row.input == TEXT else f"{task} of {row.input}"
            return row.recipe, f"guessed from {flag}: {of}"
    return "", ""


def _all_inputs() -> "Iterator[TaskInputs]":
    for _, row in task_rows():
        yield task_inputs(row)


def _option(option: InputOption) -> Callable[..., Any]:
    if option.kind == "columns":
        return click.option(
            option.flag,
            option.name,
            metavar="N,N",
            default=option.default,
            callback=_columns,
            show_default=True,
            help=option.help,
        )
    if option.kind == "flag":
        return click.option(option.flag, option.name, is_flag=True, help=option.help)
    if option.kind == "text":
        return click.option(
            option.flag,
            option.name,
            type=click.Choice(option.choices) if option.choices else None,
            default=option.default,
            show_default=option.default is not None,
            help=option.help,
        )
    return click.option(
        option.flag, option.name, type=FILE, multiple=option.kind == "paths", help=option.help
    )


def training_files(config: AnyConfig, values: Mapping[str, Any]) -> "Source | None":
    """Return the files to train on that the options name; None if they name none."""
    _check_task(config, values)
    return task_inputs(config.row).training(values)


def validation_files(config: AnyConfig, values: Mapping[str, Any]) -> "Source | None":
    """Return the files to validate on that the options name."""
    return task_inputs(config.row).validation(values)


def _check_task(config: AnyConfig, values: Mapping[str, Any]) -> None:
    """Raise a usage error for an option of another task."""
    inputs = task_inputs(config.row)
    own = {option.name for option in inputs.options}
    for name, option in _by_name().items():
        is_given = values.get(name) not in (None, (), option.default)
        if name not in own and option.kind != "columns" and is_given:
            raise click.UsageError(
                f"{option.flag} is of another task: {config.task} takes its {inputs.needed}"
            )


def summary(report: "PreparedReport", out: Path) -> str:
    """Say what became of a task's files."""
    first, *others = report.lines()
    return "\n".join([f"{first}: {visible(str(out))}", *(f"  {line}" for line in others)])
