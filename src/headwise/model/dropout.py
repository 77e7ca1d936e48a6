"""Dropout with random numbers that are cheap on CPU.

`F.dropout` on CPU draws one double per element from a serial generator: in a small model that
is a third of the whole step. Here one 64-bit word serves four elements: it is cut into 16-bit
lanes, and a lane below the threshold drops its element. Sixteen bits keep the rate within
2^-17 of the requested one, and the kept elements are scaled by the actual rate, so the
expectation is exact.

The words come from torch's default generator, so seeding that (see `training.step.keyed_dropout`)
determines every mask.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

_LANES = 2**16


def dropout(x: Tensor, rate: float) -> Tensor:
    """Zero each element of x with the given probability and scale up the rest.

    Paper: §5.4, residual dropout.
    """
    if rate == 0.0:
        return x
    if _native_is_better(x):
        return F.dropout(x, rate)
    return _Dropout.apply(x, rate)  # type: ignore[no-any-return, no-untyped-call]


def add_dropped(x: Tensor, update: Tensor, rate: float) -> Tensor:
    """Return x + Dropout(update) in one pass over memory.

    Paper: §3.1 and §5.4, the sum that every sub-layer ends with.
    """
    if rate == 0.0:
        return x + update
    if _native_is_better(update):
        return x + F.dropout(update, rate)
    return _AddDropped.apply(x, update, rate)  # type: ignore[no-any-return, no-untyped-call]


def _native_is_better(x: Tensor) -> bool:
    """Accelerators draw random numbers in parallel; a compiler fuses its own generator."""
    return x.device.type != "cpu" or torch.compiler.is_compiling()


def _scaled_mask(like: Tensor, rate: float) -> Tensor:
    """Draw 0 where an element is dropped and 1 / (1 - rate) where it is kept."""
    dropped_lanes = min(round(rate * _LANES), _LANES - 1)
    count = like.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64)
    # The full range needs the open end: plain random_() on int64 never sets the sign bit,
    # which would skew one lane in four.
    words.random_(-(2**63), None)
    lanes = words.view(torch.int16)[:count].view(like.shape)
    kept = lanes.ge_(dropped_lanes - _LANES // 2)
    return torch.mul(kept, _LANES / (_LANES - dropped_lanes), out=torch.empty_like(like))


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, rate: float) -> Tensor:
        mask = _scaled_mask(x, rate)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return grad * mask, None


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, update: Tensor, rate: float) -> Tensor:
        mask = _scaled_mask(update, rate)
        ctx.save_for_backward(mask)
        return torch.addcmul(x, update, mask)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (mask,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return grad, grad * mask, None
