"""The Transformer beside the recurrent models it replaced, with equal parameters and minutes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headwise.config import AnyConfig, Config, RecurrentConfig, Vocab
from headwise.data import Text, load_subwords
from headwise.errors import ConfigError
from headwise.files import Folder
from headwise.recipes import load_recipe
from headwise.training.task import Progress
from headwise.workflows.reproduce.baseline_text import BaselineText, baseline_text
from headwise.workflows.reproduce.cell import Training
from headwise.workflows.reproduce.pooled import Spread, pool
from headwise.workflows.reproduce.store import CellStore, only_writer
from headwise.workflows.reproduce.trainings import (
    folder_of,
    machine_conditions,
    run_missing,
    sessions_of,
    text_conditions,
)

_VALIDATIONS = 10
"""Of each training: the points of its curve."""

_BLEU_PAIRS = 200
"""Translated at each of them."""

_WIDEST = 4096

_TAKEN = ("train.max_minutes", "train.seed")
"""Settings that the comparison makes."""

_RECURRENT = {
    "Bahdanau": RecurrentConfig(cell="gru", attention="additive", num_layers=1),
    "Sutskever": RecurrentConfig(cell="lstm", attention="none", num_layers=2),
}

MODELS = ("Transformer", *_RECURRENT)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One of the models, with its results by seed."""

    name: str
    parameters: int
    d_model: int
    cells: tuple[dict[str, Any], ...]

    def test(self, part: str, score: str) -> tuple[float, ...]:
        """Return a score of the "usual" or the "long" test sentences; empty if there are none."""
        parts = [cell["test"][part] for cell in self.cells]
        return tuple(part[score] for part in parts if part is not None)

    def mean(self, key: str) -> float:
        """Return the mean of a number over the seeds."""
        return math.fsum(cell[key] or 0.0 for cell in self.cells) / len(self.cells)

    def curve(self, score: str) -> list[tuple[float, float]]:
        """Return the means over seeds of a validation score, by the minute."""
        curves = [cell["curve"] for cell in self.cells]
        return [
            (
                math.fsum(point["minutes"] for point in points) / len(points),
                math.fsum(point[score] for point in points) / len(points),
            )
            for points in zip(*curves, strict=False)
            if all(score in point for point in points)
        ]


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The comparison."""

    conditions: dict[str, Any]
    models: tuple[Compared, ...]
    text: BaselineText
    bleu_spread: Spread | None
    """None with a single seed."""
    sessions: tuple[str, ...] = ()
    """In what the versions differ that the models were trained with."""


def reproduce_baseline(
    text: Text,
    out: Path,
    *,
    valid: Text | None = None,
    minutes: float = 10.0,
    seeds: int = 1,
    jobs: int = 1,
    overrides: Sequence[str] = (),
    on_progress: Progress = lambda *_: None,
    say: Callable[[str], None] = lambda _: None,
) -> Baseline:
    """Train the three models for equally long, or go on; results are in baseline.json."""
    for override in overrides:
        if override.partition("=")[0].strip() in _TAKEN:
            raise ConfigError(f"--set {override}: give --minutes or --seeds instead")
    conditions = {
        "minutes": minutes,
        "jobs": jobs,  # Trainings side by side slow each other down, and time is the budget.
        "settings": list(overrides),
        **text_conditions(text, valid),
        **machine_conditions(jobs=jobs),
    }
    path, folder = out / "baseline.json", out / f"baseline-{folder_of(conditions)}"
    with only_writer(path):
        store = CellStore(path, conditions)
        store.save()
        transformer = transformer_config(minutes, overrides)
        split = baseline_text(text, valid, transformer, folder / "text", on_progress)
        if not split.long_sentences:
            say(
                "the text is too small to hold sentences out that are longer than any in "
                "training: that test is left out"
            )
        source, target = load_subwords(Folder.of(split.data))
        vocab = Vocab(source_size=len(source), target_size=len(target))
        configs: dict[str, AnyConfig] = {"Transformer": transformer}
        for name, model in _RECURRENT.items():
            configs[name] = recurrent_config(transformer, model, vocab)
        trainings = [
            Training(
                name=f"{name}, seed {seed}",
                config=replace(config, train=replace(config.train, seed=seed)),
                run=folder / f"{name.lower()}-seed-{seed}",
                data=split.data,
                test=split.test,
            )
            for seed in range(1, seeds + 1)
            for name, config in configs.items()
        ]
        costs = {each.name: minutes for each in trainings}
        run_missing(trainings, store, costs=costs, jobs=jobs, on_progress=on_progress, say=say)
        models = tuple(
            Compared(
                name=name,
                parameters=config.model.count_parameters(vocab),
                d_model=config.model.d_model,
                cells=tuple(store[f"{name}, seed {seed}"] for seed in range(1, seeds + 1)),
            )
            for name, config in configs.items()
        )
        found = Baseline(
            conditions=conditions,
            models=models,
            text=split,
            bleu_spread=pool(model.test("usual", "bleu") for model in models),
            sessions=sessions_of(store, [each.name for each in trainings])[1],
        )
        store.save(
            models=[
                {key: value for key, value in asdict(model).items() if key != "cells"}
                for model in models
            ]
        )
        return found


def transformer_config(minutes: float, overrides: Sequence[str] = ()) -> Config:
    """Return the demo's model, trained for so long."""
    settings = (
        "data.source_language=",
        "data.target_language=",
        f"train.max_minutes={minutes}",
        f"train.save_every_minutes={minutes / _VALIDATIONS}",
        f"train.bleu_pairs={_BLEU_PAIRS}",
    )
    return load_recipe("demo", [*settings, *overrides])


def recurrent_config(transformer: Config, model: RecurrentConfig, vocab: Vocab) -> AnyConfig:
    """Return a recurrent model with as many parameters, but for less than a step of its width.

    Its gradients are clipped, as in both papers; all else is trained alike.
    """
    wanted = transformer.model.count_parameters(vocab)
    model = replace(model, dropout=transformer.model.dropout, tying=transformer.model.tying)
    sizes = (replace(model, d_model=width) for width in range(2, _WIDEST + 1, 2))
    nearest = min(sizes, key=lambda sized: abs(sized.count_parameters(vocab) - wanted))
    return Config(
        data=transformer.data,
        model=nearest,
        train=replace(transformer.train, clip_norm=1.0),
        decode=transformer.decode,
    )
