"""Find a task by its name in the table of config/experiment.py."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.config import AnyConfig, task_row
from headwise.errors import ConfigError

if TYPE_CHECKING:
    from headwise.tasks.inputs import TaskInputs
    from headwise.training.task import Task


def load_task(name: str) -> "Task":
    """Import a task; this imports torch."""
    task: Task = _load(task_row(name).module)
    return task


def task_inputs(name: str) -> "TaskInputs":
    """Import the options of a task on the command line; this imports little."""
    inputs: TaskInputs = _load(task_row(name).inputs)
    return inputs


def served_task(name: str) -> Any:
    """Import how a task is served, a `headwise.serving.task_api.ServedTask`."""
    place = task_row(name).served
    if not place:
        raise ConfigError(f"runs of the task {name} cannot be served")
    return _load(place)


def require_task(name: str, config: AnyConfig, run: Path) -> None:
    """Raise ConfigError, naming the verb to use, unless a run is of a task."""
    if config.task != name:
        verb = task_row(config.task).verb
        raise ConfigError(f"{run} is a run of {config.task}: use `headwise {verb} {run}`")


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
