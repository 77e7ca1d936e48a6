"""What this machine has, what a recipe would need on it, and what is wrong with a text."""

import importlib.util
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headwise.config import Config, Vocab
from headwise.data import PreparedReport, Text, TokenShards, prepare
from headwise.data.prepare import Progress
from headwise.model import Transformer
from headwise.runs.device import choose_device
from headwise.runs.environment import describe
from headwise.training.estimate import Estimate, estimate, invented_batch, small_batch
from headwise.training.memory import available_mib
from headwise.training.step import TrainingStep
from headwise.workflows.new_run import training_batches

_EXTRAS = {
    "ctranslate2": "ctranslate2",
    "plot": "matplotlib",
    "serve": "fastapi",
    "tensorboard": "tensorboard",
}
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
    text: PreparedReport | None = None
    too_long: int = 0
    """Pairs that fit no batch."""
    padding: float = 0.0
    """Share of the positions of a pass over the text that would hold padding."""


def diagnose(
    config: Config,
    *,
    text: Text | None = None,
    valid: Text | None = None,
    device: str | None = None,
    processes: int | None = None,
    on_progress: Progress = lambda *_: None,
) -> Diagnosis:
    """Look at this machine and, if there is one, at a text, as training with a recipe would.

    The text is prepared in a temporary place, faults and all, so that everything said of it is
    what training would meet.
    """
    place = choose_device(device)
    report, too_long, padding, epoch_tokens = None, 0, 0.0, None
    vocab = Vocab.shared(config.data.vocab_size)
    batch = None
    if text is not None:
        with tempfile.TemporaryDirectory(prefix="headwise-doctor-") as name:
            directory = Path(name) / "data"
            report = prepare(
                text,
                config,
                directory,
                valid=valid,
                lenient=True,
                processes=processes,
                on_progress=on_progress,
            )
            shards = TokenShards(directory / "train")
            batches = training_batches(shards, config)
            too_long = len(batches.too_long)
            if len(batches):
                batch, padding = small_batch(batches), batches.padding()
                epoch_tokens = batches.target_tokens
        vocab = Vocab(source_size=report.source_vocab, target_size=report.target_vocab)
    model = Transformer(config.model, vocab).to(place)
    return Diagnosis(
        environment=describe(place, 1),
        available_mib=available_mib(place),
        free_disk_mib=shutil.disk_usage(".").free / 2**20,
        gflops=_gemm_rate(place),
        extras={
            extra: importlib.util.find_spec(module) is not None for extra, module in _EXTRAS.items()
        },
        parameters=config.model.count_parameters(vocab),
        estimate=estimate(
            TrainingStep(model, label_smoothing=config.train.label_smoothing),
            config,
            batch or invented_batch(vocab),
            epoch_tokens=epoch_tokens,
            processes=1,
            device=place,
        ),
        text=report,
        too_long=too_long,
        padding=padding,
    )


def _gemm_rate(device: torch.device) -> float:
    a = torch.randn(_GEMM_SIZE, _GEMM_SIZE, device=device)
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        float((a @ a)[0, 0])  # Reading a number waits for a device that works on its own.
        best = min(best, time.perf_counter() - start)
    return float(2 * _GEMM_SIZE**3 / best / 1e9)
