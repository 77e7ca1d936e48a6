"""What the trainings of a table have in common: the text, the machine, the stored results."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headwise.data import ParallelFiles, Text
from headwise.errors import DataError
from headwise.runs.device import choose_device
from headwise.runs.environment import describe
from headwise.training.task import Progress
from headwise.workflows.reproduce.cell import Training
from headwise.workflows.reproduce.children import run_trainings, threads_each
from headwise.workflows.reproduce.store import CellStore


def text_digest(text: Text) -> dict[str, str]:
    """Return the digest of each file of a text, by name."""
    if isinstance(text, ParallelFiles):
        return {path.name: _digest(path) for path in (*text.sources, *text.targets)}
    columns = f"{text.source_column},{text.target_column}"
    return {f"{text.path.name} columns {columns}": _digest(text.path)}


def training_conditions(text: Text, valid: Text | None, *, jobs: int) -> dict[str, Any]:
    """Return what all trainings of a table must share: the text, the machine and its threads."""
    return {
        "text": text_digest(text),
        "validation text": None if valid is None else text_digest(valid),
        **describe(choose_device(None), 1),
        "threads": threads_each(jobs),
    }


def run_missing(
    trainings: Sequence[Training],
    store: CellStore,
    *,
    jobs: int,
    on_progress: Progress,
    say: Callable[[str], None],
) -> None:
    """Run the trainings whose results are not stored, and store them one by one."""
    missing = [training for training in trainings if training.name not in store]
    done = len(trainings) - len(missing)
    on_progress("training", done, len(trainings))

    def keep(training: Training, result: dict[str, Any]) -> None:
        nonlocal done
        store.cell(training.name, lambda: result)
        done += 1
        say(
            f"{training.name}: perplexity {result['perplexity']:.2f}, BLEU "
            f"{result['bleu'] or 0:.1f}, {result['minutes']:.1f} minutes"
        )
        on_progress("training", done, len(trainings))

    run_trainings(missing, jobs=jobs, on_result=keep)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
