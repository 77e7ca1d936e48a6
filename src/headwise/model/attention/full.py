"""Scaled dot-product attention, computed the fastest way for its arguments.

Paper: §3.2.1.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.model.attention.short import short_attention, suits_short_attention
from headwise.model.attention.window import suits_window_attention, window_attention
from headwise.model.dropout import dropout
from headwise.model.masks import Allowed


def attention(
    q: Tensor,  # [B, H, T, K]
    k: Tensor,  # [B, H, S, K]
    v: Tensor,  # [B, H, S, Kv]
    allowed: Allowed,
    *,
    dropout_rate: float = 0.0,
    trace: list[Tensor] | None = None,
) -> Tensor:  # [B, H, T, Kv]
    """Compute softmax(Q K^T / sqrt(d_k)) V by the fastest path for the arguments.

    With a trace the weights are computed explicitly and appended to it; the other paths may never
    store them. All paths agree (tests/unit/model/test_attention.py).

    Paper: §3.2.1, eq. 1.
    """
    num_queries, num_keys = q.shape[2], k.shape[2]
    if allowed.window is not None and trace is None and suits_window_attention(q, k, allowed):
        return window_attention(q, k, v, allowed, dropout_rate)
    if trace is not None or (dropout_rate and q.device.type == "cpu"):
        # torch's fused CPU kernel refuses dropout, and its fallback draws slow random numbers.
        mask = allowed.mask(num_queries, num_keys, q.device)
        return explicit_attention(q, k, v, mask, dropout_rate, trace)
    if suits_short_attention(q, k, v):
        # Adding minus infinity is vectorised; masked_fill is not.
        return short_attention(q, k, v, allowed.bias(num_queries, num_keys, q))
    if allowed.causal and allowed.keys is None and allowed.window is None:
        # Without a mask tensor torch may pick its flash kernel. Its causal mask is aligned to the
        # top left, which is correct here: a causal call always has as many queries as keys.
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_rate, is_causal=True)
    mask = allowed.mask(num_queries, num_keys, q.device)
    return F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout_rate)


def explicit_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout_rate: float = 0.0,
    trace: list[Tensor] | None = None,
) -> Tensor:
    """Compute attention operation by operation, as in the formula."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # [B, H, T, S]
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=-1)
    if trace is not None:
        trace.append(weights.detach())
    return dropout(weights, dropout_rate) @ v  # [B, H, T, Kv]
