"""Split the output of one projection into the heads of queries, keys and values."""

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def split_heads(projected: Tensor, num_heads: int, widths: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Cut [B, T, sum of H*width] into one [B, H, T, width] for each width, without copying.

    Paper: §3.2.2, the h projections of each operand stand next to each other in one matrix.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return _views(projected, num_heads, widths)
    return _SplitHeads.apply(projected, num_heads, widths)  # type: ignore[no-any-return, no-untyped-call]


def _views(projected: Tensor, num_heads: int, widths: tuple[int, ...]) -> tuple[Tensor, ...]:
    batch, length, size = projected.shape
    if len(set(widths)) == 1 and size == len(widths) * num_heads * widths[0]:
        # The paper's case, in three calls instead of nine, which shows in a step of decoding.
        parts = projected.view(batch, length, len(widths), num_heads, widths[0])
        return parts.permute(2, 0, 3, 1, 4).unbind(0)  # each [B, H, T, K]
    starts = accumulate((num_heads * width for width in widths), initial=0)
    return tuple(
        projected.narrow(2, start, num_heads * width)
        .view(*projected.shape[:2], num_heads, width)
        .transpose(1, 2)  # [B, H, T, K]
        for start, width in zip(starts, widths, strict=False)
    )


class _SplitHeads(torch.autograd.Function):
    """Split, with a gradient that writes each operand's part directly to its place.

    Autograd's own gradient of transpose, view and slice copies every part three times.
    """

    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, num_heads: int, widths: tuple[int, ...]
    ) -> tuple[Tensor, ...]:
        ctx.num_heads, ctx.widths = num_heads, widths
        return _views(projected, num_heads, widths)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        batch, num_heads, length, _ = grads[0].shape
        grad = grads[0].new_empty(batch, length, num_heads * sum(ctx.widths))
        for part, given in zip(_views(grad, num_heads, ctx.widths), grads, strict=True):
            part.copy_(given)
        return grad, None, None
