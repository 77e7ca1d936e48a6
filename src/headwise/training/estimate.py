"""What a run will take on this machine, measured on a few real steps before it starts."""

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headwise.config import AnyConfig
from headwise.data.batches import Batches, Indices, on_device
from headwise.training.memory import available_mib
from headwise.training.products import fast_float32_products

PROBE_TOKENS = 1024
"""Tokens of a batch that is timed."""
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
    objective: nn.Module,
    config: AnyConfig,
    batch: tuple[Tensor, ...],
    *,
    epoch_tokens: int | None,
    processes: int,
    device: torch.device,
    targets_each: float = 1.0,
) -> Estimate:
    """Time a small batch forward and backward, and count what it keeps in memory between the two.

    `epoch_tokens` are the target tokens of the whole data, if there is any. `targets_each` are the
    targets for each position of a batch: far fewer than one where a whole text has one class.
    Gradients are thrown away, so that the run is the same with or without this.
    """
    train = config.train
    batch = on_device(batch, device)
    saved = _SavedBytes(objective)
    best = float("inf")
    with fast_float32_products(device):
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            half = torch.autocast(
                device.type, torch.bfloat16, enabled=train.precision == "bfloat16"
            )
            with half, torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
                sums, count = objective(*batch)
            (sums.smoothed / count).backward()
            tokens = int(count)
            best = min(best, time.perf_counter() - start)
            saved_bytes = saved.reset()
    objective.zero_grad()

    budget = max(1, round(train.batch_tokens * targets_each))
    batch_tokens = min(budget, epoch_tokens or budget)
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
    parameters = sum(p.numel() * p.element_size() for p in objective.parameters())
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


def small_batch(batches: Batches) -> Indices:
    """Take as much of the first batch as can be timed quickly."""
    examples = next(batches.epoch(0))
    kept = 1
    while (
        kept < len(examples) and max(batches.tokens(examples[: kept + 1]).values()) <= PROBE_TOKENS
    ):
        kept += 1
    return examples[:kept]


class _SavedBytes:
    """Add up the storage that autograd keeps beside the weights, however many tensors share it."""

    def __init__(self, objective: nn.Module) -> None:
        self._weights = {p.untyped_storage().data_ptr() for p in objective.parameters()}
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
