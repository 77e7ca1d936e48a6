"""What a run will take on this machine, measured on a few real steps before it starts."""

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.config import Config, Vocab
from headwise.data.batches import Batch, Batches
from headwise.training.memory import available_mib
from headwise.training.step import TrainingStep

_PROBE_TOKENS = 1024
_USUAL_LENGTH = 25
_ROUNDS = 3
_ABSURD_DAYS = 30
_MIB = 2**20
_RUNTIME_MIB = 300
"""What Python and torch take before any model."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a run will take."""

    update_seconds: float
    updates: int
    """How many there will be until the first limit by steps, epochs or tokens."""
    minutes: float
    """How long those will take, or the limit by the clock if that is less."""
    memory_mib: float
    available_mib: float | None
    target_tokens_per_second: float

    @property
    def too_long(self) -> bool:
        """Whether nobody would wait for it."""
        return self.minutes > _ABSURD_DAYS * 24 * 60

    @property
    def too_large(self) -> bool:
        """Whether it needs more memory than there is."""
        return self.available_mib is not None and self.memory_mib > self.available_mib


def estimate(
    step: TrainingStep,
    config: Config,
    batch: Batch,
    *,
    epoch_tokens: int | None,
    processes: int,
    device: torch.device,
) -> Estimate:
    """Time a small batch forward and backward, and count what it keeps in memory between the two.

    `epoch_tokens` are the target tokens of the whole data, if there is any. Gradients are thrown
    away, so that the run is the same with or without this.
    """
    train = config.train
    batch = batch.to(device)
    saved = _SavedBytes(step)
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        half = torch.autocast(device.type, torch.bfloat16, enabled=train.precision == "bfloat16")
        with half, torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
            sums, count = step(batch.src, batch.tgt_in, batch.tgt_out)
        (sums.smoothed / count).backward()
        tokens = int(count)
        best = min(best, time.perf_counter() - start)
        saved_bytes = saved.reset()
    step.zero_grad()

    batch_tokens = min(train.batch_tokens, epoch_tokens or train.batch_tokens)
    update_tokens = batch_tokens * train.accumulate * processes
    rate = tokens / best * processes
    updates = train.max_steps
    if train.max_epochs and epoch_tokens:
        updates = min(updates, -(-train.max_epochs * epoch_tokens // update_tokens))
    if train.max_tokens:
        updates = min(updates, -(-train.max_tokens // update_tokens))
    minutes = updates * update_tokens / rate / 60
    if train.max_minutes:
        minutes = min(minutes, train.max_minutes)
    parameters = sum(p.numel() * p.element_size() for p in step.parameters())
    # Weights, gradients and Adam's two means; and what one batch keeps for its backward pass.
    needed = 4 * parameters + saved_bytes * batch_tokens / tokens
    return Estimate(
        update_seconds=update_tokens / rate,
        updates=updates,
        minutes=minutes,
        memory_mib=needed / _MIB + _RUNTIME_MIB,
        available_mib=available_mib(device),
        target_tokens_per_second=rate,
    )


def small_batch(batches: Batches) -> Batch:
    """Take as much of the first batch as can be timed quickly."""
    pairs = next(batches.epoch(0))
    kept = 1
    while kept < len(pairs) and max(batches.tokens(pairs[: kept + 1])) <= _PROBE_TOKENS:
        kept += 1
    return batches.collate(pairs[:kept])


def invented_batch(vocab: Vocab) -> Batch:
    """Make up a batch of sentences of a usual length, where there is no text yet."""
    shape = (_PROBE_TOKENS // _USUAL_LENGTH, _USUAL_LENGTH)
    first = Vocab.eos + 1
    src = torch.arange(math.prod(shape)).view(shape) % (vocab.source_size - first) + first
    tgt = torch.arange(math.prod(shape)).view(shape) % (vocab.target_size - first) + first
    return Batch(src=src, tgt_in=tgt, tgt_out=tgt)


class _SavedBytes:
    """Add up the storage that autograd keeps beside the weights, however many tensors share it."""

    def __init__(self, step: TrainingStep) -> None:
        self._weights = {p.untyped_storage().data_ptr() for p in step.parameters()}
        self._storages: dict[int, int] = {}

    def pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._weights:
            self._storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    @staticmethod
    def unpack(tensor: Tensor) -> Tensor:
        return tensor

    def reset(self) -> int:
        total = sum(self._storages.values())
        self._storages = {}
        return total
