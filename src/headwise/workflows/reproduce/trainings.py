"""What the trainings of a table have in common: the text, the machine, the stored results."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headwise.data import ParallelFiles, Text
from headwise.durations import duration
from headwise.errors import ConfigError, DataError
from headwise.runs.device import choose_device
from headwise.runs.directory import RunDirectory
from headwise.runs.environment import describe
from headwise.runs.metrics import read_metrics
from headwise.training.task import Progress
from headwise.workflows.reproduce.cell import Training
from headwise.workflows.reproduce.children import run_trainings, threads_each
from headwise.workflows.reproduce.store import CellStore

_PARTS = 1000
"""Of all work, that progress is counted in."""


def text_conditions(text: Text, valid: Text | None) -> dict[str, Any]:
    """Return what tells a text, and the validation text, from others."""
    return {
        "text": _digests(text),
        "validation text": None if valid is None else _digests(valid),
    }


def machine_conditions(*, jobs: int) -> dict[str, Any]:
    """Return what the speed of trainings depends on: the machine, the libraries, the threads."""
    return {**describe(choose_device(None), 1), "threads": threads_each(jobs)}


def folder_of(conditions: Mapping[str, Any]) -> str:
    """Return a name for the runs under these conditions, and under no others."""
    content = json.dumps(conditions, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:8]


def file_names(text: Sequence[Sequence[str]]) -> str:
    """Name the files of a text's conditions."""
    return ", ".join(name for _, name, _ in text)


def run_missing(
    trainings: Sequence[Training],
    store: CellStore,
    *,
    costs: Mapping[str, float],
    jobs: int,
    on_progress: Progress,
    say: Callable[[str], None],
) -> None:
    """Run the trainings whose results are not stored, and store them one by one.

    `costs` says how much of the whole work each training is, in any unit, by its name.
    """
    for training in trainings:
        _check_stored(training, store)
    missing = [training for training in trainings if training.name not in store]
    total = sum(costs[each.name] for each in trainings)

    def look() -> None:
        done = sum(costs[each.name] * _share_done(each, store) for each in trainings)
        on_progress("training", round(_PARTS * done / total), _PARTS)

    def keep(training: Training, result: dict[str, Any]) -> None:
        store.cell(training.name, lambda: result)
        for warning in result["warnings"]:
            say(f"{training.name}: {warning}")
        left = sum(each.name not in store for each in trainings)
        say(
            f"{training.name}: perplexity {result['perplexity']:.2f}, BLEU "
            f"{result['bleu'] or 0:.1f}, {duration(60 * result['minutes'])}; {left} of "
            f"{len(trainings)} trainings left"
        )

    if missing:
        say(f"{len(missing)} of {len(trainings)} trainings to do, {jobs} at a time")
        look()
        run_trainings(missing, jobs=jobs, on_result=keep, on_look=look)


def sessions_of(store: CellStore, names: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what all results were trained on, and in sentences what only some were."""
    values: dict[str, dict[str, list[str]]] = {}
    for name in names:
        for session in store[name]["sessions"]:
            for key, value in session.items():
                values.setdefault(key, {}).setdefault(str(value), []).append(name)
    common = {key: next(iter(found)) for key, found in values.items() if len(found) == 1}
    differing = tuple(
        f"Not all trainings had the same {key}: "
        + "; ".join(f"{value} ({', '.join(dict.fromkeys(of))})" for value, of in found.items())
        + "."
        for key, found in values.items()
        if len(found) > 1
    )
    return common, differing


def _check_stored(training: Training, store: CellStore) -> None:
    """Raise ConfigError if a stored result is from other settings than the training has now."""
    if training.name not in store:
        return
    ours = json.loads(json.dumps(training.config.to_dict()))
    theirs = store[training.name]["config"]
    if differing := list(_differing(theirs, ours)):
        raise ConfigError(
            f"{store.path}: {training.name} was trained with other settings: "
            f"{'; '.join(differing)}. Choose another --out"
        )


def _differing(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    for section in sorted({*theirs, *ours}):
        old, new = theirs.get(section), ours.get(section)
        if isinstance(old, dict) and isinstance(new, dict):
            for key in sorted({*old, *new}):
                if old.get(key) != new.get(key):
                    yield f"{section}.{key} was {old.get(key)!r} and is {new.get(key)!r}"
        elif old != new:
            yield f"{section} was {old!r} and is {new!r}"


def _share_done(training: Training, store: CellStore) -> float:
    if training.name in store:
        return 1.0
    if not training.run.is_dir():
        return 0.0
    metrics, train = RunDirectory(training.run).metrics_file, training.config.train
    if not metrics.exists():
        return 0.0
    lines = list(read_metrics(metrics))
    if not lines:
        return 0.0
    by_clock = lines[-1]["minutes"] / train.max_minutes if train.max_minutes else 0.0
    return float(min(1.0, max(by_clock, lines[-1]["step"] / train.max_steps)))


def _digests(text: Text) -> list[list[str]]:
    """Return what each file of a text is for, its name and its digest."""
    if isinstance(text, ParallelFiles):
        sides = (("source", text.sources), ("target", text.targets))
        return [[side, path.name, _digest(path)] for side, paths in sides for path in paths]
    columns = f"columns {text.source_column},{text.target_column}"
    return [[columns, text.path.name, _digest(text.path)]]


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
