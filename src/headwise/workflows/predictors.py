"""Load a run of any task as the Python object that uses it: a Translator, a Generator, ..."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from headwise.errors import ConfigError
from headwise.inspect.attention import Traceable
from headwise.runs.directory import RunDirectory
from headwise.tasks.table import load_task


@runtime_checkable
class HasPredictor(Protocol):
    """A task whose runs can be used."""

    def predictor(self, run: Path, *, checkpoint: str | None = None) -> Any:
        """Load a run's "averaged", "best", "last" or a step; by default the first there is.

        The predictor's `name` says which. If it shows its attention, it is a
        `headwise.inspect.attention.Traceable`.
        """
        ...


def load_predictor(run: RunDirectory, *, checkpoint: str | None = None) -> Any:
    """Load a run as the predictor of its task."""
    config = run.config()
    task = load_task(config)
    if not isinstance(task, HasPredictor):
        raise ConfigError(f"{run.path} is a run of {config.task}, which has no predictor")
    return task.predictor(run.path, checkpoint=checkpoint)


def load_traceable(run: RunDirectory, *, checkpoint: str | None = None) -> Traceable:
    """Load a run as a predictor that shows its attention."""
    predictor = load_predictor(run, checkpoint=checkpoint)
    if not isinstance(predictor, Traceable):
        raise ConfigError(f"{run.path} is a run of {run.config().task}, which shows no attention")
    return predictor
