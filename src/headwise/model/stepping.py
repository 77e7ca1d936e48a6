"""One step of decoding through a decoder layer, written out.

`Layer` computes the same for whole targets, with dropout, gradients and traces. A step is so small
that what Python and torch do around each product shows: here rows are flat, [R, D], and the weights
are at hand, so that no module is called and none is asked for them: a layer of multi30k-tiny takes
two thirds of the time for one sentence. Both ways agree (tests/unit/model/test_transformer.py).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.model.attention import attention
from headwise.model.cache import KeyValueCache
from headwise.model.heads import split_heads
from headwise.model.layers import Layer, LayerNorm, Memory
from headwise.model.linear import Linear
from headwise.model.masks import Allowed


@dataclass(frozen=True)
class _Affine:
    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, linear: Linear, rows: slice = slice(None)) -> "_Affine":
        """Take a projection's weights, or those of some of its outputs."""
        weight, bias = linear.weight, linear.bias
        return cls(weight[rows], None if bias is None else bias[rows])

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class _Norm:
    shape: tuple[int, ...]
    weight: Tensor
    bias: Tensor
    epsilon: float

    @classmethod
    def of(cls, norm: LayerNorm) -> "_Norm":
        return cls(norm.normalized_shape, norm.weight, norm.bias, norm.eps)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.epsilon)


class LayerStep:
    """A decoder layer as its weights are now, for as many steps as they stay so."""

    def __init__(self, layer: Layer) -> None:
        own, cross = layer.self_attention, layer.cross_attention
        cross_residual = layer.cross_attention_residual
        assert cross is not None, "only a decoder's layer takes steps"
        assert cross_residual is not None, "only a decoder's layer takes steps"
        self._normalise_first = layer.self_attention_residual.normalise_first
        self._norms = tuple(
            _Norm.of(residual.norm)
            for residual in (
                layer.self_attention_residual,
                cross_residual,
                layer.feed_forward_residual,
            )
        )
        self._num_heads = own.num_heads
        self._widths = (own.d_k, own.d_k, own.d_v)
        self._own_in = _Affine.of(own.in_projection)
        self._own_out = _Affine.of(own.out_projection)
        self._queries_in = _Affine.of(cross.in_projection, slice(0, cross.num_heads * cross.d_k))
        self._cross_out = _Affine.of(cross.out_projection)
        self._inner = _Affine.of(layer.feed_forward.inner)
        self._outer = _Affine.of(layer.feed_forward.outer)

    def __call__(
        self,
        x: Tensor,  # [R, D]
        group: int,
        own: Allowed,
        memory: Memory,
        cache: KeyValueCache,
    ) -> Tensor:  # [R, D]
        """Take one step; each source has `group` rows, next to each other."""
        norms, first = self._norms, self._normalise_first
        x = x + self._attend_to_own(norms[0](x) if first else x, group, own, cache)
        x = x if first else norms[0](x)
        x = x + self._attend_to_memory(norms[1](x) if first else x, group, memory)
        x = x if first else norms[1](x)
        x = x + self._outer(self._inner(norms[2](x) if first else x).relu_())
        return x if first else norms[2](x)

    def _attend_to_own(self, x: Tensor, group: int, own: Allowed, cache: KeyValueCache) -> Tensor:
        projected = self._own_in(x)
        q, k, v = split_heads(
            projected.view(-1, group, projected.shape[1]), self._num_heads, self._widths
        )
        heads = attention(q, *cache.append(k, v), own)  # [B, H, W, Kv]
        return self._own_out(heads.transpose(1, 2).reshape(x.shape[0], -1))

    def _attend_to_memory(self, x: Tensor, group: int, memory: Memory) -> Tensor:
        queries = self._queries_in(x).view(-1, group, self._num_heads, self._widths[0])
        heads = attention(queries.transpose(1, 2), memory.keys, memory.values, memory.allowed)
        return self._cross_out(heads.transpose(1, 2).reshape(x.shape[0], -1))
