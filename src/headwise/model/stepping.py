"""One step of decoding through a decoder, with the weights at hand.

`Layer` computes the same for whole targets, with dropout, gradients and traces. A step is so small
that the overhead of modules and views shows: here rows are flat, [R, D], and weights are looked up
once for all steps, so that a layer of multi30k-tiny takes two thirds of the time for one sentence.
Norms and activations are the layer's own. Both ways agree (tests/unit/model/test_transformer.py,
tests/unit/model/test_language_model.py).
"""

from dataclasses import dataclass

from torch import Tensor

from headwise.model.attention import MultiHeadAttention, attention
from headwise.model.cache import KeyValueCache
from headwise.model.heads import split_heads
from headwise.model.layers import Layer, Memory, Stack
from headwise.model.linear import Linear, few_rows_linear
from headwise.model.masks import Allowed
from headwise.model.positions import rotate
from headwise.model.step_projection import StepProjection


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
        return few_rows_linear(x, self.weight, self.bias)


class _SelfAttentionStep:
    def __init__(self, module: MultiHeadAttention) -> None:
        self._num_heads = module.num_heads
        self._widths = (module.d_k, module.d_k, module.d_v)
        self._project_in = _Affine.of(module.in_projection)
        self._project_out = _Affine.of(module.out_projection)

    def __call__(
        self,
        x: Tensor,
        num_queries: int,
        seen: Allowed,
        cache: KeyValueCache,
        rotation: Tensor | None,
    ) -> Tensor:
        projected = self._project_in(x)
        q, k, v = split_heads(
            projected.view(-1, num_queries, projected.shape[1]), self._num_heads, self._widths
        )
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        heads = attention(q, *cache.append(k, v), seen)  # [B, H, W, Kv]
        return self._project_out(heads.transpose(1, 2).reshape(x.shape[0], -1))


class _CrossAttentionStep:
    def __init__(self, module: MultiHeadAttention) -> None:
        self._num_heads, self._d_k = module.num_heads, module.d_k
        queries = slice(0, module.num_heads * module.d_k)
        self._project_in = _Affine.of(module.in_projection, queries)
        self._project_out = _Affine.of(module.out_projection)

    def __call__(
        self, x: Tensor, num_queries: int, memory: Memory, rotation: Tensor | None
    ) -> Tensor:
        queries = self._project_in(x).view(-1, num_queries, self._num_heads, self._d_k)
        queries = queries.transpose(1, 2)
        if rotation is not None:
            queries = rotate(queries, rotation)
        heads = attention(queries, memory.keys, memory.values, memory.allowed)
        return self._project_out(heads.transpose(1, 2).reshape(x.shape[0], -1))


class LayerStep:
    """A decoder layer with its weights as they are when it is made."""

    def __init__(self, layer: Layer) -> None:
        self._normalise_first = layer.self_attention_residual.normalise_first
        self._attend_to_self = _SelfAttentionStep(layer.self_attention)
        self._self_norm = layer.self_attention_residual.norm.as_function()
        self._attend_to_memory: _CrossAttentionStep | None = None
        if layer.cross_attention is not None and layer.cross_attention_residual is not None:
            self._attend_to_memory = _CrossAttentionStep(layer.cross_attention)
            self._cross_norm = layer.cross_attention_residual.norm.as_function()
        inner = layer.feed_forward.inner
        self._inner = StepProjection(inner.weight, inner.bias, layer.feed_forward.activation_name)
        self._outer = _Affine.of(layer.feed_forward.outer)
        self._feed_forward_norm = layer.feed_forward_residual.norm.as_function()

    def __call__(
        self,
        x: Tensor,  # [R, D]
        num_queries: int,
        seen: Allowed,
        memory: Memory | None,
        cache: KeyValueCache,
        rotation: Tensor | None = None,
        memory_rotation: Tensor | None = None,
    ) -> Tensor:  # [R, D]
        """Compute `num_queries` adjacent rows of each source, and add them to its cache.

        They are the rows of a beam, one position each, or the positions of a prompt.
        """
        first = self._normalise_first
        norm = self._self_norm
        x = x + self._attend_to_self(norm(x) if first else x, num_queries, seen, cache, rotation)
        x = x if first else norm(x)
        if self._attend_to_memory is not None:
            assert memory is not None, "a layer that attends to a memory was given none"
            norm = self._cross_norm
            x = x + self._attend_to_memory(
                norm(x) if first else x, num_queries, memory, memory_rotation
            )
            x = x if first else norm(x)
        norm = self._feed_forward_norm
        x = x + self._outer(self._inner(norm(x) if first else x))
        return x if first else norm(x)


def layer_steps(decoder: Stack) -> list[LayerStep]:
    """Look up the weights of a decoder's layers."""
    return [LayerStep(layer) for layer in decoder.layers]  # type: ignore[arg-type]
