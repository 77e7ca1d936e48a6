"""What `headwise evaluate` needs of a task whose runs it measures on files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from headwise.training.task import Progress
from headwise.visible import visible


class EvaluationResult(Protocol):
    """How one run or several do on the same files."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        ...

    def text(self) -> str:
        """Return a report for people; names of runs are made visible."""
        ...


@runtime_checkable
class EvaluatesFiles(Protocol):
    """A task that measures its runs on the files that its `evaluation_options` name."""

    def evaluate(
        self,
        runs: Sequence[Path],
        values: Mapping[str, Any],
        *,
        checkpoint: str | None,
        overrides: Sequence[str],
        on_progress: Progress,
    ) -> EvaluationResult:
        """Measure runs of this task; `values` are those of the options."""
        ...


@dataclass(frozen=True)
class Figures:
    """Named numbers of each run: an `EvaluationResult` for tasks with nothing more to say."""

    runs: Mapping[str, Mapping[str, float]]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {"runs": [{"run": run, **figures} for run, figures in self.runs.items()]}

    def text(self) -> str:
        """Return a line for each run."""
        return "\n".join(
            f"{visible(run)}: {', '.join(f'{name} {value:.4g}' for name, value in figures.items())}"
            for run, figures in self.runs.items()
        )
