"""Find a task by its name in the table of config/tasks.py."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.config import AnyConfig, TaskRow
from headwise.errors import ConfigError

if TYPE_CHECKING:
    from headwise.tasks.inputs import TaskInputs
    from headwise.training.task import Task


def load_task(config: AnyConfig) -> "Task":
    """Import the task of a config; this imports torch."""
    task: Task = _load(config.row.module)
    return task


def task_inputs(row: TaskRow) -> "TaskInputs":
    """Import the options of a task on the command line; this imports little."""
    inputs: TaskInputs = _load(row.inputs)
    return inputs


def served_task(config: AnyConfig) -> Any:
    """Import how a task is served, a `headwise.serving.task_api.ServedTask`."""
    place = config.row.served
    if not place:
        raise ConfigError(f"runs of the task {config.task} cannot be served")
    return _load(place)


def require_task(name: str, config: AnyConfig, run: Path) -> None:
    """Raise ConfigError, naming the verb to use, unless a run is of a task."""
    if config.task != name:
        verb = config.row.verb
        raise ConfigError(f"{run} is a run of {config.task}: use `headwise {verb} {run}`")


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
