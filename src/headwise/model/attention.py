"""Scaled dot-product attention and its multi-head form.

Paper: §3.2.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model.dropout import dropout
from headwise.model.heads import split_heads
from headwise.model.linear import Linear, linear
from headwise.model.masks import Allowed
from headwise.model.short_attention import short_attention, suits_short_attention


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
    if trace is not None or (dropout_rate and q.device.type == "cpu"):
        # torch's fused CPU kernel refuses dropout, and its fallback draws slow random numbers.
        mask = allowed.mask(num_queries, num_keys, q.device)
        return explicit_attention(q, k, v, mask, dropout_rate, trace)
    if suits_short_attention(q, k, v):
        # Adding minus infinity is vectorised; masked_fill is not.
        return short_attention(q, k, v, allowed.bias(num_queries, num_keys, q))
    if allowed.causal and allowed.keys is None:
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


class MultiHeadAttention(nn.Module):
    """Attend with h heads in parallel, each with its own projections.

    One matrix holds the projections of queries, keys and values, in that order and head by head,
    so that self-attention projects with a single multiplication.

    Paper: §3.2.2. The printed formula has no biases, but Table 3's parameter counts need them;
    `model.attention_bias` removes them.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.d_k, self.d_v = config.d_k, config.d_v
        self.dropout_rate = config.attention_dropout
        h, k, v = config.num_heads, config.d_k, config.d_v
        bias = config.attention_bias
        self.in_projection = Linear(config.d_model, h * (2 * k + v), bias=bias)
        self.out_projection = Linear(h * v, config.d_model, bias=bias)

    def forward(
        self,
        x: Tensor,
        allowed: Allowed,
        *,
        trace: list[Tensor] | None = None,
    ) -> Tensor:
        """Attend from x to x.

        Paper: §3.2.3, self-attention in encoder and decoder.
        """
        h, k, v = self.num_heads, self.d_k, self.d_v
        queries, keys, values = split_heads(self.in_projection(x), h, (k, k, v))
        return self._attend(queries, keys, values, allowed, trace)

    def cross(
        self,
        x: Tensor,
        memory: tuple[Tensor, Tensor],
        allowed: Allowed,
        *,
        trace: list[Tensor] | None = None,
    ) -> Tensor:
        """Attend from x to the keys and values that `keys_values` made of the memory.

        Paper: §3.2.3, encoder-decoder attention.
        """
        rows = slice(0, self.num_heads * self.d_k)
        (queries,) = split_heads(self._project(x, rows), self.num_heads, (self.d_k,))
        return self._attend(queries, *memory, allowed, trace)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project the memory to the keys and values of every head."""
        h, k, v = self.num_heads, self.d_k, self.d_v
        keys, values = split_heads(self._project(memory, slice(h * k, None)), h, (k, v))
        return keys, values

    def _project(self, x: Tensor, rows: slice) -> Tensor:
        bias = self.in_projection.bias
        return linear(x, self.in_projection.weight[rows], None if bias is None else bias[rows])

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, allowed: Allowed, trace: list[Tensor] | None
    ) -> Tensor:
        rate = self.dropout_rate if self.training else 0.0
        heads = attention(q, k, v, allowed, dropout_rate=rate, trace=trace)
        output: Tensor = self.out_projection(heads.transpose(1, 2).flatten(2))  # [B, T, D]
        return output
