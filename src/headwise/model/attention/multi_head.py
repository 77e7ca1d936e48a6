"""Attention with several heads.

Paper: §3.2.2.
"""

from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model.attention.full import attention
from headwise.model.heads import split_heads
from headwise.model.linear import Linear, linear
from headwise.model.masks import Allowed
from headwise.model.positions import rotate


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
        rotation: Tensor | None = None,
        *,
        trace: list[Tensor] | None = None,
    ) -> Tensor:
        """Attend from x to x.

        Paper: §3.2.3, self-attention in encoder and decoder.
        Departs from the paper with `rotation`, which turns queries and keys by their positions.
        """
        h, k, v = self.num_heads, self.d_k, self.d_v
        queries, keys, values = split_heads(self.in_projection(x), h, (k, k, v))
        if rotation is not None:
            queries, keys = rotate(queries, rotation), rotate(keys, rotation)
        return self._attend(queries, keys, values, allowed, trace)

    def cross(
        self,
        x: Tensor,
        memory: tuple[Tensor, Tensor],
        allowed: Allowed,
        rotation: Tensor | None = None,
        *,
        trace: list[Tensor] | None = None,
    ) -> Tensor:
        """Attend from x to the keys and values that `keys_values` made of the memory.

        Paper: §3.2.3, encoder-decoder attention.
        Departs from the paper with `rotation`, which turns queries by positions in the memory.
        """
        rows = slice(0, self.num_heads * self.d_k)
        (queries,) = split_heads(self._project(x, rows), self.num_heads, (self.d_k,))
        if rotation is not None:
            queries = rotate(queries, rotation)
        return self._attend(queries, *memory, allowed, trace)

    def keys_values(self, memory: Tensor, rotation: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Project the memory to the keys and values of every head."""
        h, k, v = self.num_heads, self.d_k, self.d_v
        keys, values = split_heads(self._project(memory, slice(h * k, None)), h, (k, v))
        return keys if rotation is None else rotate(keys, rotation), values

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
