"""The processes that train one model together, under torchrun; or one process alone.

Each process takes its share of an update's batches. DistributedDataParallel brings their gradients
together; what else must be the same everywhere (when to stop, when to save) is agreed here.
"""

import os
from datetime import timedelta
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from headwise.errors import HeadwiseError
from headwise.runs.device import choose_device

_PATIENCE = timedelta(days=1)
"""How long processes wait for the first one to prepare the data; torchrun ends those whose
neighbour is gone."""


class World:
    """This process among those that train together."""

    def __init__(self, *, rank: int, size: int, device: torch.device) -> None:
        self.rank, self.size, self.device = rank, size, device

    @classmethod
    def join(cls, device: str | None) -> Self:
        """Join the processes that torchrun started, or be alone without it.

        `device` is "cpu", "cuda", or anything torch knows; by default an accelerator if there is
        one.
        """
        rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        chosen = choose_device(device, int(os.environ.get("LOCAL_RANK", 0)))
        if size > 1 and not dist.is_initialized():
            # torchrun keeps its store when it starts workers again, and with it the addresses of
            # those that are gone: each attempt needs names of its own.
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            store, rank, size = next(rendezvous("env://", timeout=_PATIENCE))
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo",
                store=dist.PrefixStore(f"attempt-{attempt}", store),  # type: ignore[attr-defined]
                rank=rank,
                world_size=size,
                timeout=_PATIENCE,
            )
        return cls(rank=rank, size=size, device=chosen)

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    def share(self, step: nn.Module) -> nn.Module:
        """Wrap a training step so that its gradients are averaged over all processes."""
        if self.size == 1:
            return step
        devices = [self.device.index] if self.device.type == "cuda" else None
        # Buffers are left alone: each process's table of positions is as long as it has needed.
        buffers = [name for name, _ in step.named_buffers()]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(step, buffers)
        return DistributedDataParallel(step, device_ids=devices, gradient_as_bucket_view=True)

    def sum(self, values: list[float]) -> list[float]:
        """Sum numbers over all processes."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def largest(self, values: list[float]) -> list[float]:
        """Take the largest of each number over all processes."""
        return self._reduce(values, dist.ReduceOp.MAX)

    def wait(self) -> None:
        """Wait until every process has come this far."""
        self._reduce([0.0], dist.ReduceOp.SUM)

    def leave(self) -> None:
        """Take leave of the other processes."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def _reduce(self, values: list[float], operation: "dist.ReduceOp.RedOpType") -> list[float]:
        if self.size == 1:
            return values
        tensor: Tensor = torch.tensor(values, dtype=torch.float64)
        try:
            dist.all_reduce(tensor, operation)
        except RuntimeError as error:
            raise HeadwiseError("another process of this training has ended: see there") from error
        return [float(value) for value in tensor]
