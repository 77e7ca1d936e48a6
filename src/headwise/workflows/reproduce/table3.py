"""Table 3: the paper's variations on the Transformer, all scaled by one factor."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headwise.config import Config
from headwise.data import Text, TokenShards
from headwise.data.prepare import prepare
from headwise.errors import ConfigError
from headwise.paper import EXPERIMENTS, Experiment
from headwise.recipes import load_recipe
from headwise.recipes.overrides import apply_override
from headwise.tasks.table import load_task
from headwise.training.task import Progress
from headwise.workflows.reproduce.cell import Training
from headwise.workflows.reproduce.children import run_trainings
from headwise.workflows.reproduce.pooled import Spread, pool
from headwise.workflows.reproduce.store import CellStore
from headwise.workflows.reproduce.trainings import run_missing, training_conditions
from headwise.workflows.runs import training_batches

GROUPS = ("base", "A", "B", "C", "D", "E", "big")

FACTORS = (1, 2, 4, 8, 16)
"""By what sizes can be divided: the smallest of the table is 16."""

_EXPERIMENTS = tuple(each for each in EXPERIMENTS if each.recipe.startswith("table3-"))

_SETTINGS = (
    "data.holdout_pairs=1000",
    "model.norm_order=pre",
    "train.batch_tokens=1024",
    "train.schedule=cosine",
    "train.peak_rate=2e-3",
    "train.clip_norm=1",
    "train.keep_last=2",
)
"""How all rows depart from the paper: as is usual for minutes of training on one core."""

_VALIDATIONS = 10
"""Of each training, at equal distances; a killed one loses less than what is between two."""

_TRIAL_SHARE = 0.05
"""Of `minutes`: how long base is trained to find out its speed."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table: what was measured, by seed, beside what the paper prints."""

    recipe: str
    group: str
    title: str
    parameters: int
    perplexities: tuple[float, ...]
    bleus: tuple[float, ...]
    minutes: tuple[float, ...]
    overfits: bool
    """Whether the perplexity had been lower before the end, by more than a hundredth."""
    paper: Experiment

    @property
    def log_perplexities(self) -> tuple[float, ...]:
        """What intervals are computed from: seeds change a perplexity by a factor."""
        return tuple(math.log(value) for value in self.perplexities)

    @property
    def perplexity(self) -> float:
        """The geometric mean over seeds."""
        return math.exp(math.fsum(self.log_perplexities) / len(self.perplexities))

    @property
    def bleu(self) -> float:
        """The mean over seeds."""
        return math.fsum(self.bleus) / len(self.bleus)


@dataclass(frozen=True, kw_only=True)
class Table3:
    """The rows, and how much of a difference the seeds explain."""

    conditions: dict[str, Any]
    rows: tuple[Row, ...]
    target_tokens: int
    """That each training saw."""
    train_pairs: int
    epochs: float
    log_spread: Spread | None
    """Of the logarithm of the perplexity; None with a single seed."""
    bleu_spread: Spread | None

    @property
    def base(self) -> Row:
        """The row that others are compared with."""
        return self.rows[0]


def reproduce_table3(
    text: Text,
    out: Path,
    *,
    valid: Text | None = None,
    groups: Sequence[str] = GROUPS,
    factor: int = 4,
    minutes: float | None = None,
    tokens: int | None = None,
    seeds: int = 2,
    jobs: int = 1,
    overrides: Sequence[str] = (),
    on_progress: Progress = lambda *_: None,
    say: Callable[[str], None] = lambda _: None,
) -> Table3:
    """Train every row on equally many target tokens, or go on; results are in table3.json.

    The tokens are given, or as many as base is trained on in so many minutes. Base is always
    trained: the others are compared with it.
    """
    if (minutes is None) == (tokens is None):
        raise ConfigError("give either --minutes, of the base model, or --tokens")
    base, folder = scaled("table3-base", factor, overrides), out / "table3"
    conditions = {
        "factor": factor,
        "budget": f"{tokens:,} target tokens" if tokens else f"{minutes:g} minutes of base",
        "settings": list(overrides),
        **training_conditions(text, valid, jobs=jobs),
    }
    store = CellStore(out / "table3.json", conditions)
    store.save()  # Before there is anything to go on with under other conditions.
    data = folder / "data"
    if not data.is_dir():
        prepare(text, base, data, valid=valid, on_progress=on_progress)
    if tokens is None:
        assert minutes is not None
        tokens = _tokens_in(minutes, base, folder, store, jobs, say)
    steps, update_tokens, epoch_tokens = _steps(base, data, tokens)
    wanted = [each for each in _EXPERIMENTS if _group(each) in ("base", *groups)]
    trainings = [
        Training(
            name=f"{_short(each)}, seed {seed}",
            config=_trained(scaled(each.recipe, factor, overrides), steps, seed),
            run=folder / f"{_short(each)}-seed-{seed}",
            data=data,
        )
        for seed in range(1, seeds + 1)
        for each in wanted
    ]
    run_missing(trainings, store, jobs=jobs, on_progress=on_progress, say=say)
    rows = tuple(_row(each, store, seeds) for each in wanted)
    table = Table3(
        conditions=conditions,
        rows=rows,
        target_tokens=store[trainings[0].name]["tokens"],
        train_pairs=len(TokenShards(data / "train")),
        epochs=steps * update_tokens / epoch_tokens,
        log_spread=pool(row.log_perplexities for row in rows),
        bleu_spread=pool(row.bleus for row in rows),
    )
    store.save(rows=[asdict(row) for row in rows])
    return table


def scaled(recipe: str, factor: int, overrides: Sequence[str] = ()) -> Config:
    """Return a row of the table with all widths and the vocabulary divided by a factor.

    Heads and layers stay, and so do all ratios of the table; parameters become fewer by the square
    of the factor.
    """
    config = load_recipe(recipe, _SETTINGS)
    model = config.model
    sizes = {name: getattr(model, name) // factor for name in ("d_model", "d_ff", "d_k", "d_v")}
    values = config.to_dict()
    values["model"].update(sizes)
    values["data"]["vocab_size"] //= factor
    return _overridden(Config.from_dict(values), overrides)


def _overridden(config: Config, overrides: Sequence[str]) -> Config:
    values = config.to_dict()
    for override in overrides:
        values = apply_override(values, override)
    return Config.from_dict(values)


def _tokens_in(
    minutes: float,
    base: Config,
    folder: Path,
    store: CellStore,
    jobs: int,
    say: Callable[[str], None],
) -> int:
    """Return the target tokens that base is trained on in so many minutes, from a short trial."""
    limit = minutes * _TRIAL_SHARE
    limits = replace(base.train, max_minutes=limit, save_every_minutes=limit, warmup_steps=100)
    trial = Training(
        name="speed of base",
        config=replace(base, train=limits),
        run=folder / "speed",
        data=folder / "data",
        translates=False,
    )
    if trial.name not in store:
        say(f"measuring the speed of base, {60 * limit:.0f} s")
        run_trainings([trial], jobs=jobs, on_result=lambda _, r: store.cell(trial.name, lambda: r))
    found = store[trial.name]
    # Until the validation at the end, which is a large part of a trial and a small one of a row.
    speed: float = found["tokens"] / found["curve"][-1]["minutes"]
    return max(1, round(minutes * speed))


def _steps(base: Config, data: Path, tokens: int) -> tuple[int, float, int]:
    """Return the updates that have so many target tokens, those of an update, and of an epoch.

    Rows have the same batches in the same order, so that equal updates are equal tokens.
    """
    batches = training_batches(TokenShards(data / "train"), base, load_task(base))
    updates = sum(1 for _ in batches.epoch(0)) / base.train.accumulate
    update = batches.target_tokens / updates
    return max(1, round(tokens / update)), update, batches.target_tokens


def _trained(config: Config, steps: int, seed: int) -> Config:
    train = replace(
        config.train,
        max_steps=steps,
        warmup_steps=max(1, steps // 10),
        save_every_steps=max(1, steps // _VALIDATIONS),
        save_every_minutes=0.0,
        log_every_steps=max(1, steps // 100),
        seed=seed,
    )
    return replace(config, train=train)


def _short(experiment: Experiment) -> str:
    return experiment.recipe.removeprefix("table3-")


def _group(experiment: Experiment) -> str:
    first = _short(experiment).partition("-")[0]
    return first.upper() if len(first) == 1 else first


def _row(experiment: Experiment, store: CellStore, seeds: int) -> Row:
    cells = [store[f"{_short(experiment)}, seed {seed}"] for seed in range(1, seeds + 1)]
    lowest = [min(point["perplexity"] for point in cell["curve"]) for cell in cells]
    return Row(
        recipe=experiment.recipe,
        group=_group(experiment),
        title=experiment.title.removeprefix("Table 3 ").removeprefix("row "),
        parameters=cells[0]["parameters"],
        perplexities=tuple(cell["perplexity"] for cell in cells),
        bleus=tuple(cell["bleu"] or 0.0 for cell in cells),
        minutes=tuple(cell["minutes"] for cell in cells),
        overfits=all(
            cell["perplexity"] > 1.01 * low for cell, low in zip(cells, lowest, strict=True)
        ),
        paper=experiment,
    )
