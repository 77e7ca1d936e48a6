"""Exact attention for short sequences on CPU, for which torch's fused kernel is slow.

A sentence has tens of tokens. At that size torch's fused CPU kernel spends its time on calls for
tiny matrices, and torch's `softmax` on rows that do not fill a vector register (rows of 15 take ten
times as long as rows of 16). Batched matrix products, with the softmax of short rows written as
operations on whole tensors, are faster, forward and backward, up to about 128 keys; `make bench`
measures it.
"""

import math

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

LONGEST = 128
"""The most keys for which this was faster than torch's fused kernel."""

_FEW_QUERIES = 16
"""For this few queries, as in a step of decoding, it was 1.2 to 4 times as fast as torch's fused
kernel with any number of keys from 160 to 1,024. Only without gradients, which need all weights."""

_VECTOR = 16
"""For rows shorter than a vector register, torch's softmax uses scalar code."""

_FEW_ROWS = 32
"""For this few rows, that code takes less time than the calls that would replace it."""


def suits_short_attention(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether `short_attention` is the better choice for these operands."""
    return (
        q.is_cpu
        and (k.shape[2] <= LONGEST or (q.shape[2] <= _FEW_QUERIES and not torch.is_grad_enabled()))
        and q.dtype in (torch.float32, torch.float64)
        and q.dtype == k.dtype == v.dtype
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
    )


def short_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Compute softmax(Q K^T / sqrt(d_k) + bias) V; the bias broadcasts to [B, H, T, S].

    Paper: §3.2.1, eq. 1.
    """
    if not torch.is_grad_enabled():
        # Calling autograd would take 2 to 8 % of a step of decoding.
        return _attend(q, k, v, bias)[0]
    return _ShortAttention.apply(q, k, v, bias)  # type: ignore[no-any-return, no-untyped-call]


def _attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the attended values, and what their gradient needs."""
    batch, num_heads, num_queries, d_k = q.shape
    num_keys, d_v = v.shape[2:]
    size = batch * num_heads
    queries, values = q.reshape(size, num_queries, d_k), v.reshape(size, num_keys, d_v)
    # Small products are much faster when the right factor is not transposed in place.
    keys = k.transpose(2, 3).reshape(size, d_k, num_keys)
    weights = torch.bmm(queries, keys).mul_(1 / math.sqrt(d_k))  # [B*H, T, S]
    if bias is not None:
        weights.view(batch, num_heads, num_queries, num_keys).add_(bias)
    weights = _softmax(weights)
    heads = torch.bmm(weights, values).view(batch, num_heads, num_queries, d_v)
    return heads, queries, keys, values, weights


def _softmax(scores: Tensor) -> Tensor:
    """Turn scores into weights, the fastest way for the length of their rows.

    The scores may be overwritten.
    """
    if scores.shape[-1] >= _VECTOR or scores.shape[0] * scores.shape[1] <= _FEW_ROWS:
        # Not in place, which takes torch up to 1.8 times as long.
        return torch.softmax(scores, dim=-1)
    scores.sub_(scores.amax(-1, keepdim=True)).exp_()
    return scores.div_(scores.sum(-1, keepdim=True))


def _softmax_gradient_(grad: Tensor, weights: Tensor) -> Tensor:
    """Turn d loss / d weights into d loss / d scores: w * (g - sum of w * g)."""
    if weights.shape[-1] >= _VECTOR:
        return torch.ops.aten._softmax_backward_data(grad, weights, -1, weights.dtype)  # type: ignore[no-any-return]
    grad.mul_(weights)
    return grad.addcmul_(weights, grad.sum(-1, keepdim=True), value=-1)


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        heads, *saved = _attend(q, k, v, bias)
        ctx.save_for_backward(*saved)
        return heads

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        queries, keys, values, weights = ctx.saved_tensors  # type: ignore[attr-defined]
        batch_heads = grad.shape[:2]
        grad = grad.reshape(-1, *grad.shape[2:])  # [B*H, T, Kv]
        grad_v = torch.bmm(weights.transpose(1, 2), grad)
        grad_weights = torch.bmm(grad, values.transpose(1, 2).contiguous())  # [B*H, T, S]
        grad_scores = _softmax_gradient_(grad_weights, weights)
        grad_scores.mul_(1 / math.sqrt(queries.shape[2]))
        grad_q = torch.bmm(grad_scores, keys.transpose(1, 2))
        grad_k = torch.bmm(grad_scores.transpose(1, 2), queries)
        grad_q, grad_k, grad_v = (g.unflatten(0, batch_heads) for g in (grad_q, grad_k, grad_v))
        return grad_q, grad_k, grad_v, None
