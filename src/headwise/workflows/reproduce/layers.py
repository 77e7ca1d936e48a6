"""The kinds of layers that the paper compares (§4): how each lets positions influence each other.

A layer here is its mixing product alone, without the projections around it: products of queries,
keys and values, of a hidden state with its weights, or of a convolution's kernel with its input.
Inputs and outputs are [n, d].
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.model import Allowed
from headwise.model.attention import attention
from headwise.model.attention.window import window_attention

KERNEL = 3
WINDOW = 33
"""Positions that restricted attention sees: as many on either side."""
_WIDEST_HEAD = 64


@dataclass(frozen=True, kw_only=True)
class LayerKind:
    """One row of Table 1."""

    name: str
    title: str
    complexity: str
    sequential: str
    path: str
    """What the paper prints: operations of a layer, those one after the other, longest path."""
    apply: Callable[[Tensor, Tensor, int], Tensor]
    """(x [n, d], weights, number of the layer) -> [n, d]"""
    weights: Callable[[int], Tensor]
    """The weights that a layer of width d has."""
    flops: Callable[[int, int], int]
    """(n, d) -> of the mixing product, forward: two for each multiplication and addition."""
    exponents: tuple[int, int]
    """With which powers of n and of d the work grows."""
    sequential_operations: Callable[[int], int]
    longest_path: Callable[[int], int]
    """n -> as the formula of the layer says."""


def _heads(x: Tensor) -> Tensor:
    """Return [n, d] as heads [1, H, n, d/H] of at most 64, as the paper has them."""
    count = max(1, x.shape[1] // _WIDEST_HEAD)
    return x.view(1, x.shape[0], count, -1).transpose(1, 2)


def _self_attention(x: Tensor, weights: Tensor, layer: int) -> Tensor:
    heads = _heads(x)
    return attention(heads, heads, heads, Allowed())[0].transpose(0, 1).flatten(1)


def _restricted(x: Tensor, weights: Tensor, layer: int) -> Tensor:
    heads = _heads(x)
    attended = window_attention(heads, heads, heads, Allowed(window=WINDOW))
    return attended[0].transpose(0, 1).flatten(1)


def _recurrent(x: Tensor, weights: Tensor, layer: int) -> Tensor:
    hidden, outputs = torch.zeros_like(x[:1]), []
    for position in x.split(1):
        hidden = torch.tanh(position + hidden @ weights)
        outputs.append(hidden)
    return torch.cat(outputs)


def _convolution(x: Tensor, weights: Tensor, layer: int) -> Tensor:
    return _convolved(x, weights, 1)


def _dilated(x: Tensor, weights: Tensor, layer: int) -> Tensor:
    return _convolved(x, weights, KERNEL**layer)


def _convolved(x: Tensor, weights: Tensor, gap: int) -> Tensor:
    """Convolve a position with those before it, as a decoder has to."""
    earlier = F.pad(x.t()[None], ((KERNEL - 1) * gap, 0))
    return F.conv1d(earlier, weights, dilation=gap)[0].t()


def _no_weights(width: int) -> Tensor:
    return torch.zeros(0)


def _square(width: int) -> Tensor:
    return torch.randn(width, width).div_(4 * math.sqrt(width))


def _kernel(width: int) -> Tensor:
    return torch.randn(width, width, KERNEL).div_(math.sqrt(KERNEL * width))


KINDS: tuple[LayerKind, ...] = (
    LayerKind(
        name="self-attention",
        title="Self-attention",
        complexity="O(n²·d)",
        sequential="O(1)",
        path="O(1)",
        apply=_self_attention,
        weights=_no_weights,
        flops=lambda n, d: 4 * n * n * d,
        exponents=(2, 1),
        sequential_operations=lambda n: 1,
        longest_path=lambda n: 1,
    ),
    LayerKind(
        name="recurrent",
        title="Recurrent",
        complexity="O(n·d²)",
        sequential="O(n)",
        path="O(n)",
        apply=_recurrent,
        weights=_square,
        flops=lambda n, d: 2 * n * d * d,
        exponents=(1, 2),
        sequential_operations=lambda n: n,
        longest_path=lambda n: n,
    ),
    LayerKind(
        name="convolutional",
        title=f"Convolutional, k = {KERNEL}, contiguous",
        complexity="O(k·n·d²)",
        sequential="O(1)",
        path="O(n/k)",
        apply=_convolution,
        weights=_kernel,
        flops=lambda n, d: 2 * KERNEL * n * d * d,
        exponents=(1, 2),
        sequential_operations=lambda n: 1,
        longest_path=lambda n: math.ceil((n - 1) / (KERNEL - 1)),
    ),
    LayerKind(
        name="dilated",
        title=f"Convolutional, k = {KERNEL}, dilated",
        complexity="O(k·n·d²)",
        sequential="O(1)",
        path="O(log_k(n))",
        apply=_dilated,
        weights=_kernel,
        flops=lambda n, d: 2 * KERNEL * n * d * d,
        exponents=(1, 2),
        sequential_operations=lambda n: 1,
        longest_path=lambda n: next(layers for layers in range(1, n) if KERNEL**layers >= n),
    ),
    LayerKind(
        name="restricted",
        title=f"Self-attention restricted to r = {WINDOW}",
        complexity="O(r·n·d)",
        sequential="O(1)",
        path="O(n/r)",
        apply=_restricted,
        weights=_no_weights,
        flops=lambda n, d: 4 * sum(_seen(place, n) for place in range(n)) * d,
        exponents=(1, 1),
        sequential_operations=lambda n: 1,
        longest_path=lambda n: math.ceil((n - 1) / (WINDOW // 2)),
    ),
)


def _seen(place: int, length: int) -> int:
    """Return how many positions the window of a position has in it."""
    reach = WINDOW // 2
    return min(length, place + reach + 1) - max(0, place - reach)
