"""Find a task by its name in the table of config.py."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwise.config import task_row

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


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
