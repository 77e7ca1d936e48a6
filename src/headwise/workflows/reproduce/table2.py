"""Table 2: what a training costs, by three ways of counting, beside the paper's figures."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from headwise.config import AnyConfig, ModelConfig, Vocab
from headwise.errors import ConfigError
from headwise.machine import num_cores
from headwise.recipes import load_recipe
from headwise.runs.checkpoint import read_state
from headwise.runs.directory import RunDirectory
from headwise.runs.environment import cpu_name
from headwise.runs.metrics import read_metrics
from headwise.tasks.table import load_task
from headwise.training.task import Progress
from headwise.workflows.doctor import gemm_rate
from headwise.workflows.reproduce.flops import count_training_flops, pair_flops
from headwise.workflows.reproduce.store import CellStore

_PROBE_TOKENS = 256
"""Of the batch whose operations are counted: they grow in proportion."""

_P100 = 9.5e12
"""Operations a second that the paper takes a P100 to sustain (§6.1, footnote 5)."""

_PAPER_HOURS = {"base": 12.0, "big": 84.0}
"""On 8 of them (§5.2)."""


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """A row of the paper's table."""

    model: str
    bleu: tuple[float | None, float | None]
    """English-German and English-French."""
    flops: tuple[float | None, float | None]


PAPER = (
    PaperRow(model="ByteNet", bleu=(23.75, None), flops=(None, None)),
    PaperRow(model="Deep-Att + PosUnk", bleu=(None, 39.2), flops=(None, 1.0e20)),
    PaperRow(model="GNMT + RL", bleu=(24.6, 39.92), flops=(2.3e19, 1.4e20)),
    PaperRow(model="ConvS2S", bleu=(25.16, 40.46), flops=(9.6e18, 1.5e20)),
    PaperRow(model="MoE", bleu=(26.03, 40.56), flops=(2.0e19, 1.2e20)),
    PaperRow(model="Deep-Att + PosUnk Ensemble", bleu=(None, 40.4), flops=(None, 8.0e20)),
    PaperRow(model="GNMT + RL Ensemble", bleu=(26.30, 41.16), flops=(1.8e20, 1.1e21)),
    PaperRow(model="ConvS2S Ensemble", bleu=(26.36, 41.29), flops=(7.7e19, 1.2e21)),
    PaperRow(model="Transformer (base)", bleu=(27.3, 38.1), flops=(3.3e18, 3.3e18)),
    PaperRow(model="Transformer (big)", bleu=(28.4, 41.8), flops=(2.3e19, 2.3e19)),
)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one training costs; what is not known is None."""

    name: str
    parameters: int
    target_tokens: float | None
    """None for a recipe that ends by the clock."""
    minutes: float | None
    flops_a_token: float
    """For each target token, by formula."""
    counted_ratio: float
    """Torch's count of one step by the formula's."""
    hardware_flops: float | None
    """As the paper counts: time, times devices, times the rate that a device sustains."""
    hardware: str
    perplexity: float | None = None
    """On the validation text, of a finished run."""
    bleu: float | None = None

    @property
    def flops(self) -> float | None:
        """Of the whole training, by formula."""
        return None if self.target_tokens is None else self.flops_a_token * self.target_tokens


@dataclass(frozen=True, kw_only=True)
class Table2:
    """The costs of recipes and runs."""

    conditions: dict[str, Any]
    costs: tuple[Cost, ...]


def reproduce_table2(
    names: Sequence[str], out: Path, *, on_progress: Progress = lambda *_: None
) -> Table2:
    """Compute the costs of recipes, and of runs, or go on; they are stored in table2.json."""
    conditions = {"cpu": cpu_name(), "cores": num_cores(), "threads": torch.get_num_threads()}
    store = CellStore(out / "table2.json", conditions)
    rate: float = store.cell(
        "rate of training's products", lambda: gemm_rate(torch.device("cpu")) * 1e9
    )
    costs = []
    for number, name in enumerate(names):
        path = Path(name)
        # A run may have been trained further since: only what a recipe costs is final.
        if (path / "config.toml").exists():
            costs.append(_run_cost(RunDirectory(path), rate))
        else:
            found = store.cell(f"recipe {name}", partial(_recipe_cell, name, rate))
            costs.append(Cost(**found))
        on_progress("counting", number + 1, len(names))
    table = Table2(conditions={**conditions, "rate": rate}, costs=tuple(costs))
    store.save(costs=[asdict(cost) for cost in costs])
    return table


def _recipe_cell(name: str, rate: float) -> dict[str, Any]:
    return asdict(_recipe_cost(name, rate))


def _recipe_cost(name: str, rate: float) -> Cost:
    config = load_recipe(name)
    train = config.train
    tokens = None
    if not train.max_minutes:
        tokens = float(train.max_steps * train.batch_tokens * train.accumulate)
    minutes: float | None = train.max_minutes or None
    hardware, seconds = f"{minutes} minutes × this machine's {_giga(rate)} GFLOP/s", rate
    if name in _PAPER_HOURS:
        minutes, seconds = 60 * _PAPER_HOURS[name], 8 * _P100
        hardware = f"{_PAPER_HOURS[name]:g} hours × 8 P100 × 9.5 TFLOP/s"
    return Cost(
        name=name,
        minutes=minutes,
        target_tokens=tokens,
        hardware_flops=None if minutes is None else 60 * minutes * seconds,
        hardware="" if minutes is None else hardware,
        **_sizes(config, config.row.vocab(config)),
    )


def _run_cost(run: RunDirectory, rate: float) -> Cost:
    config: AnyConfig = run.config()
    metrics = list(read_metrics(run.metrics_file))
    lines = [line for line in metrics if line.get("kind") == "train"]
    if not lines:
        raise ConfigError(f"{run.path} has not been trained yet: its metrics are empty")
    steps = run.steps()
    if not steps:
        raise ConfigError(f"{run.path} has no checkpoint, which says what it was trained on")
    state = read_state(run.step_directory(steps[-1]))
    valid = [line for line in metrics if line.get("kind") == "valid"]
    minutes = state.minutes
    vocab = load_task(config).vocab(config, run.folder)
    return Cost(
        name=str(run.path),
        minutes=minutes,
        target_tokens=float(state.tokens),
        hardware_flops=60 * minutes * rate,
        hardware=f"{minutes:.1f} minutes × this machine's {_giga(rate)} GFLOP/s",
        perplexity=valid[-1].get("perplexity") if valid else None,
        bleu=valid[-1].get("bleu") if valid else None,
        **_sizes(config, vocab),
    )


def _sizes(config: AnyConfig, vocab: Vocab) -> dict[str, Any]:
    """Return the parameters of a model and its operations a token."""
    if config.task != "translation" or not isinstance(config.model, ModelConfig):
        raise ConfigError(
            f"task = {config.task!r}, model.kind = {config.model.kind!r}: Table 2 is about "
            "Transformers that translate"
        )
    counted, pairs, length = count_training_flops(config, vocab, _PROBE_TOKENS)
    formula = pair_flops(config.model, vocab, length, length)
    return {
        "parameters": config.model.count_parameters(vocab),
        "flops_a_token": formula / length,
        "counted_ratio": counted / (pairs * formula),
    }


def _giga(rate: float) -> str:
    return f"{rate / 1e9:.0f}"
