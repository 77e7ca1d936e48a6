"""What this machine has, what a recipe would need on it, and what is wrong with files."""

import importlib.util
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headwise.config import AnyConfig
from headwise.data import TokenShards
from headwise.files import Folder
from headwise.model.build import build_model
from headwise.runs.device import choose_device
from headwise.runs.environment import describe
from headwise.tasks.table import load_task
from headwise.training.estimate import PROBE_TOKENS, Estimate, estimate, small_batch
from headwise.training.memory import available_mib
from headwise.training.products import fast_float32_products
from headwise.training.task import PreparedReport, Progress, Source
from headwise.workflows.runs import training_batches

_EXTRAS = {
    "audio": ("soundfile", "soxr"),
    "baseline": ("sklearn",),
    "ctranslate2": ("ctranslate2",),
    "images": ("PIL",),
    "plot": ("matplotlib",),
    "serve": ("fastapi",),
    "tensorboard": ("tensorboard",),
}
"""What the optional parts import."""
_GEMM_SIZE = 1024


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What `headwise doctor` says."""

    environment: dict[str, Any]
    available_mib: float | None
    free_disk_mib: float
    gflops: float
    """Billions of operations a second in products of large matrices: the limit of any model."""
    extras: dict[str, bool]
    """Which of the optional parts are installed."""
    parameters: int
    estimate: Estimate
    files: PreparedReport | None = None
    unit: str = ""
    """What an example is called, in the plural."""
    too_long: int = 0
    """Examples that fit no batch."""
    padding: float = 0.0
    """Share of the positions of a pass over the data that would hold padding."""


def diagnose(
    config: AnyConfig,
    *,
    source: Source | None = None,
    valid: Source | None = None,
    device: str | None = None,
    processes: int | None = None,
    on_progress: Progress = lambda *_: None,
) -> Diagnosis:
    """Look at this machine and, if they are given, at files, as training with a recipe would.

    The files are prepared in a temporary place, faults and all, so that everything said of them is
    what training would meet.
    """
    place, task = choose_device(device), load_task(config)
    assembly = config.row.assembly
    report, too_long, padding, epoch_tokens, targets_each = None, 0, 0.0, None, 1.0
    vocab = task.vocab(config, None)
    batch = None
    if source is not None:
        with tempfile.TemporaryDirectory(prefix="headwise-doctor-") as name:
            directory = Path(name) / "data"
            report = task.prepare(
                source,
                config,
                directory,
                valid=valid,
                lenient=True,
                processes=processes,
                tokenizer_from=None,
                on_progress=on_progress,
            )
            vocab = task.vocab(config, Folder.of(directory))
            batches = training_batches(TokenShards(directory / "train"), config, task)
            too_long = len(batches.too_long)
            if len(batches):
                rows = batches.read(small_batch(batches))
                batch = task.collate(rows, vocab, (config.train.seed, 0))
                padding, epoch_tokens = batches.padding(), batches.target_tokens
                targets_each = batches.targets_each()
    if batch is None:
        batch = task.example_batch(config, vocab, PROBE_TOKENS)
        if not task.fields[-1].in_budget:
            targets_each = len(batch[-1]) / PROBE_TOKENS
    model = build_model(config.model, vocab, assembly).to(place)
    return Diagnosis(
        environment=describe(place, 1),
        available_mib=available_mib(place),
        free_disk_mib=shutil.disk_usage(".").free / 2**20,
        gflops=gemm_rate(place),
        extras=installed_extras(),
        parameters=config.model.count_parameters(vocab, assembly),
        estimate=estimate(
            task.objective(model, config),
            config,
            batch,
            epoch_tokens=epoch_tokens,
            targets_each=targets_each,
            processes=1,
            device=place,
        ),
        files=report,
        unit=task.unit,
        too_long=too_long,
        padding=padding,
    )


def installed_extras() -> dict[str, bool]:
    """Return which of the optional parts are there with all that they import."""
    return {
        extra: all(importlib.util.find_spec(module) is not None for module in modules)
        for extra, modules in _EXTRAS.items()
    }


def gemm_rate(device: torch.device) -> float:
    """Return the rate of a large product, computed as in training, in GFLOP/s."""
    a = torch.randn(_GEMM_SIZE, _GEMM_SIZE, device=device)
    best = float("inf")
    with fast_float32_products(device):
        for _ in range(8):
            start = time.perf_counter()
            float((a @ a)[0, 0])  # Reading a number waits for a device that works on its own.
            best = min(best, time.perf_counter() - start)
    return float(2 * _GEMM_SIZE**3 / best / 1e9)
