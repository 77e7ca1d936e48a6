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
from headwise.workflows.reproduce.flops import pair_flops
from headwise.workflows.reproduce.pooled import Spread, pool, pool_paired
from headwise.workflows.reproduce.store import CellStore, only_writer
from headwise.workflows.reproduce.trainings import (
    folder_of,
    run_missing,
    sessions_of,
    text_conditions,
)
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

_LIMITS = (
    "max_steps",
    "max_epochs",
    "max_tokens",
    "max_minutes",
    "patience",
    "warmup_steps",
    "decay_by",
    "save_every_steps",
    "save_every_minutes",
    "average_last",
    "seed",
)
"""Settings of training that the table makes, so that rows are trained on equally many tokens."""

_PAIR_LENGTH = 15
"""Tokens of each side, to compare the work of rows."""

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
    log_paired: Spread | None
    """The same for differences of rows, which have seeds in common."""
    bleu_paired: Spread | None
    sessions: tuple[str, ...] = ()
    """In what the machines and versions differ that rows were trained on."""

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
    base = scaled("table3-base", factor, overrides)
    check_overrides(overrides)
    conditions = {
        "factor": factor,
        "budget": f"{tokens:,} target tokens" if tokens else f"{minutes:g} minutes of base",
        "settings": list(overrides),
        **text_conditions(text, valid),
    }
    path, folder = out / "table3.json", out / f"table3-{folder_of(conditions)}"
    with only_writer(path):
        store = CellStore(path, conditions)
        store.save()  # Before there is anything to go on with under other conditions.
        data = folder / "data"
        if not data.is_dir():
            prepare(text, base, data, valid=valid, on_progress=on_progress)
        if tokens is None:
            assert minutes is not None
            tokens = _tokens_in(minutes, base, folder, store, jobs, say)
        steps, update_tokens, epoch_tokens = _steps(base, data, tokens)
        epochs = steps * update_tokens / epoch_tokens
        say(f"each row: {tokens:,} target tokens, {epochs:.1f} passes over the text")
        wanted = [each for each in _EXPERIMENTS if _group(each) in ("base", *groups)]
        trainings, costs = _trainings(wanted, factor, overrides, steps, seeds, folder)
        run_missing(trainings, store, costs=costs, jobs=jobs, on_progress=on_progress, say=say)
        return _table(wanted, store, seeds, len(TokenShards(data / "train")), epochs)


def _trainings(
    wanted: Sequence[Experiment],
    factor: int,
    overrides: Sequence[str],
    steps: int,
    seeds: int,
    folder: Path,
) -> tuple[list[Training], dict[str, float]]:
    """Return the trainings and the work of each: seed by seed, and base first, then the largest.

    A large one that begins last would run alone.
    """
    found: list[Training] = []
    costs: dict[str, float] = {}
    for seed in range(1, seeds + 1):
        of_seed = []
        for each in wanted:
            config = scaled(each.recipe, factor, overrides)
            training = Training(
                name=f"{_short(each)}, seed {seed}",
                config=_trained(config, steps, seed),
                run=folder / f"{_short(each)}-seed-{seed}",
                data=folder / "data",
            )
            vocab = config.row.vocab(config)
            costs[training.name] = float(
                pair_flops(config.model, vocab, _PAIR_LENGTH, _PAIR_LENGTH)
            )
            of_seed.append(training)
        first, *others = of_seed
        found += [first, *sorted(others, key=lambda other: -costs[other.name])]
    return found, costs


def _table(
    wanted: Sequence[Experiment], store: CellStore, seeds: int, train_pairs: int, epochs: float
) -> Table3:
    names = [f"{_short(each)}, seed {seed}" for seed in range(1, seeds + 1) for each in wanted]
    for seed in range(1, seeds + 1):
        tokens = {store[name]["tokens"] for name in names if name.endswith(f"seed {seed}")}
        if len(tokens) > 1:
            raise ConfigError(
                "the rows were trained on different numbers of tokens, since row (E) reads pairs "
                f"of at most {load_recipe('table3-e-learned').model.max_positions:,} tokens: lower "
                "train.batch_tokens, and choose another --out"
            )
    rows = tuple(_row(each, store, seeds) for each in wanted)
    common, differing = sessions_of(store, names)
    table = Table3(
        conditions={**store.conditions, **common},
        rows=rows,
        target_tokens=store[names[0]]["tokens"],
        train_pairs=train_pairs,
        epochs=epochs,
        log_spread=pool(row.log_perplexities for row in rows),
        bleu_spread=pool(row.bleus for row in rows),
        log_paired=pool_paired(row.log_perplexities for row in rows),
        bleu_paired=pool_paired(row.bleus for row in rows),
        sessions=differing,
    )
    store.save(rows=[asdict(row) for row in rows])
    return table


def scaled(recipe: str, factor: int, overrides: Sequence[str] = ()) -> Config:
    """Return a row of the table with all widths and the vocabulary divided by a factor.

    Heads and layers stay, and so do all ratios of the table; parameters become fewer by the square
    of the factor. The paper's learning rate falls with the root of d_model (§5.3, eq. 3), so that
    a row of another width has another peak rate.
    """
    config = load_recipe(recipe, _SETTINGS)
    model = config.model
    sizes = {name: getattr(model, name) // factor for name in ("d_model", "d_ff", "d_k", "d_v")}
    values = config.to_dict()
    values["model"].update(sizes)
    values["data"]["vocab_size"] //= factor
    config = _overridden(Config.from_dict(values), overrides)
    if config.train.schedule == "paper":
        return config
    base = load_recipe("table3-base").model.d_model // factor
    rate = config.train.peak_rate * math.sqrt(base / config.model.d_model)
    return replace(config, train=replace(config.train, peak_rate=rate))


def check_overrides(overrides: Sequence[str]) -> None:
    """Raise ConfigError for a setting that rows differ in, or that the table makes itself."""
    base = load_recipe("table3-base").to_dict()
    taken = {f"train.{key}" for key in _LIMITS}
    for experiment in _EXPERIMENTS:
        row = load_recipe(experiment.recipe).to_dict()
        for section in ("model", "train"):
            changed = (key for key, value in row[section].items() if base[section][key] != value)
            taken |= {f"{section}.{key}" for key in changed}
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key in taken:
            raise ConfigError(
                f"--set {override}: Table 3 sets {key} itself, for its rows or for its budget"
            )


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
