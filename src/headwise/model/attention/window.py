"""Self-attention restricted to a window of r positions, in time and memory linear in their number.

The positions are cut into blocks, at least as long as the window reaches. The keys that a block of
queries may see then lie in its own block and parts of its two neighbours. So each block is a small
attention over less than two blocks of keys, and all of them are one batched product: r * n products
instead of n * n.

Paper: §4, where it is proposed for very long sequences, and the last row of Table 1.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from headwise.model.dropout import dropout
from headwise.model.masks import Allowed

_SHORTEST_BLOCK = 64
"""Smaller blocks waste less on keys outside the window, but more on calls for tiny products."""

_FEWEST_BLOCKS = 3
"""For fewer blocks, a mask over all pairs costs no more."""


class _Layout(NamedTuple):
    """How sequences are cut into blocks.

    The blocks of all heads of all sequences stand in one row, each head's with one more block after
    them. So the keys of every block begin one block after those of the block before, and are views
    of one tensor. Keys stand `before` positions later than queries.
    """

    size: int
    """Positions of a block."""
    num_blocks: int
    """Blocks of a head, with the one after them."""
    before: int
    """How many positions before its own a query sees."""
    after: int

    @property
    def width(self) -> int:
        """Keys of a block."""
        return self.size + self.before + self.after


def suits_window_attention(q: Tensor, k: Tensor, allowed: Allowed) -> bool:
    """Return whether `window_attention` is the better choice for these operands."""
    layout = _layout(q.shape[2], allowed)
    return q.shape[2] == k.shape[2] and layout.num_blocks > _FEWEST_BLOCKS


def window_attention(
    q: Tensor,  # [B, H, T, K]
    k: Tensor,  # [B, H, T, K]
    v: Tensor,  # [B, H, T, Kv]
    allowed: Allowed,
    dropout_rate: float = 0.0,
) -> Tensor:  # [B, H, T, Kv]
    """Compute softmax(Q K^T / sqrt(d_k)) V over the window of each position."""
    layout = _layout(q.shape[2], allowed)
    bias = _bias(layout, q, allowed)
    if torch.compiler.is_compiling():  # A compiler makes its own gradients.
        return _attend(q, k, v, bias, layout, dropout_rate)[0]
    attended: Tensor = _WindowAttention.apply(q, k, v, bias, layout, dropout_rate)  # type: ignore[no-untyped-call]
    return attended


def _layout(length: int, allowed: Allowed) -> _Layout:
    before, after = allowed.reach
    size = max(_SHORTEST_BLOCK, before + after)
    return _Layout(size, -(-length // size) + 1, before, after)


def _bias(layout: _Layout, q: Tensor, allowed: Allowed) -> Tensor:
    """Return what to add to the scores [B or 1, 1, C, size, width]; once for all layers."""
    length = q.shape[2]
    return allowed.cached(
        ("window", length, q.dtype), lambda: _make_bias(layout, length, q, allowed.keys)
    )


def _make_bias(layout: _Layout, length: int, q: Tensor, keys: Tensor | None) -> Tensor:
    rows = torch.arange(layout.size, device=q.device)[:, None]
    distance = torch.arange(layout.width, device=q.device) - layout.before - rows
    is_near = (-layout.before <= distance) & (distance <= layout.after)  # [size, width]
    real = keys
    if real is None:
        real = torch.ones(1, length, dtype=torch.bool, device=q.device)
    # Keys stand `before` positions later, and the last block's need room for another block.
    room = (layout.num_blocks + 1) * layout.size - layout.before - length
    padded = F.pad(real, (layout.before, room))  # [B, (C + 1) * size]
    is_real = padded.unfold(1, layout.width, layout.size)[:, : layout.num_blocks]  # [B, C, width]
    # A position always sees itself, so that padding far from any token has something to see.
    seen = is_near & (is_real[:, :, None] | (distance == 0))  # [B, C, size, width]
    # Finite, and as good as minus infinity: the weights are 0 where anything else is seen.
    hidden = torch.finfo(q.dtype).min / 2
    return torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill_(~seen, hidden)[
        :, None
    ]


def _blocks(x: Tensor, layout: _Layout, shift: int, spare: int) -> Tensor:
    """Copy [B, H, T, K] to blocks [B*H*C + spare, size, K], `shift` positions later."""
    batch, heads, length, width = x.shape
    blocks = x.new_zeros(batch * heads * layout.num_blocks + spare, layout.size, width)
    whole = blocks[: batch * heads * layout.num_blocks].view(batch, heads, -1, width)
    whole[:, :, shift : shift + length] = x
    return blocks


def _unblocked(blocks: Tensor, shape: torch.Size, shift: int = 0) -> Tensor:
    """Return the positions [B, H, T, K] of blocks."""
    whole = blocks.reshape(shape[0], shape[1], -1, blocks.shape[-1])
    return whole[:, :, shift : shift + shape[2]]


def _windows(blocks: Tensor, layout: _Layout) -> Tensor:
    """Return the keys or values that each block sees [B*H*C, width, K], as views."""
    count, size, width = blocks.shape[0] - 1, layout.size, blocks.shape[2]
    strides = (size * width, width, 1)
    return blocks.as_strided((count, layout.width, width), strides)


def _added(windows: Tensor, layout: _Layout) -> Tensor:
    """Add the gradients of windows up where they overlap: the reverse of `_windows`."""
    count, _, width = windows.shape
    blocks = windows.new_zeros(count + 1, layout.size, width)
    blocks[:-1] += windows[:, : layout.size]
    blocks[1:, : layout.width - layout.size] += windows[:, layout.size :]
    return blocks[:-1]


def _attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, layout: _Layout, dropout_rate: float
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Return the attended values, and what their gradient needs."""
    queries = _blocks(q, layout, 0, 0).mul_(1 / math.sqrt(q.shape[3]))
    keys, values = (_blocks(x, layout, layout.before, 1) for x in (k, v))
    scores = torch.bmm(queries, _windows(keys, layout).transpose(1, 2))  # [B*H*C, size, width]
    scores.view(*q.shape[:2], layout.num_blocks, layout.size, layout.width).add_(bias)
    weights = torch.softmax(scores, dim=-1).to(q.dtype)
    kept = dropout(torch.ones_like(weights), dropout_rate) if dropout_rate else None
    used = weights if kept is None else weights * kept
    heads = torch.bmm(used, _windows(values, layout))
    return _unblocked(heads, q.shape), (queries, keys, values, weights, kept)


class _WindowAttention(torch.autograd.Function):
    """Autograd would add the gradients of overlapping views up one by one."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor,
        layout: _Layout,
        dropout_rate: float,
    ) -> Tensor:
        heads, saved = _attend(q, k, v, bias, layout, dropout_rate)
        ctx.layout = layout
        ctx.save_for_backward(*saved)
        return heads

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layout: _Layout = ctx.layout
        queries, keys, values, weights, kept = ctx.saved_tensors
        scale, shape, before = 1 / math.sqrt(queries.shape[2]), grad.shape, layout.before
        grads = _blocks(grad, layout, 0, 0)
        used = weights if kept is None else weights * kept
        grad_v = _added(torch.bmm(used.transpose(1, 2), grads), layout)
        grad_weights = torch.bmm(grads, _windows(values, layout).transpose(1, 2))
        if kept is not None:
            grad_weights.mul_(kept)
        grad_scores = torch.ops.aten._softmax_backward_data(
            grad_weights, weights, -1, weights.dtype
        )
        grad_q = torch.bmm(grad_scores, _windows(keys, layout)).mul_(scale)
        # The queries are scaled already.
        grad_k = _added(torch.bmm(grad_scores.transpose(1, 2), queries), layout)
        return (
            _unblocked(grad_q, shape),
            _unblocked(grad_k, shape, before),
            _unblocked(grad_v, shape, before),
            None,
            None,
            None,
        )
