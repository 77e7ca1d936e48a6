"""The layer that encoder and decoder are stacks of, and the stack.

Paper: §3.1 and §3.3.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model.activations import ACTIVATIONS
from headwise.model.attention import MultiHeadAttention
from headwise.model.dropout import add_dropped
from headwise.model.linear import Linear
from headwise.model.masks import Allowed
from headwise.model.trace import StackTrace


@dataclass(frozen=True)
class Memory:
    """One layer's keys and values of the encoder's output: projected once, used at every step."""

    keys: Tensor  # [B, H, S, K]
    values: Tensor  # [B, H, S, Kv]
    allowed: Allowed


class LayerNorm(nn.LayerNorm):
    """Normalise each position's vector.

    Paper: §3.1, after Ba et al. (2016). It is silent on epsilon: `model.norm_epsilon`.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.d_model, eps=config.norm_epsilon)

    def forward(self, x: Tensor) -> Tensor:
        return self.as_function()(x)

    def as_function(self) -> Callable[[Tensor], Tensor]:
        """Return the norm with its weights as they are now.

        A step of decoding calls a dozen norms: looking up a module's weights and hooks each time
        would take as long as the norm itself.
        """
        shape, weight, bias, epsilon = self.normalized_shape, self.weight, self.bias, self.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)


class FeedForward(nn.Module):
    """Apply max(0, x W1 + b1) W2 + b2 to each position alike.

    Paper: §3.3, eq. 2.
    Departs from the paper with `activation`: another function than max(0, ·).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = Linear(config.d_model, config.d_ff)
        self.activation = ACTIVATIONS[config.activation]
        self.activation_name = config.activation
        self.outer = Linear(config.d_ff, config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        # An activation in place is safe, but only on the flat product itself: on a view of it
        # autograd would copy the whole.
        hidden = self.activation(self.inner(x.flatten(0, 1)))  # [B*T, F]
        output: Tensor = self.outer(hidden).view_as(x)  # [B, T, D]
        return output


class Residual(nn.Module):
    """Wrap a sub-layer in its residual connection, dropout and layer normalisation.

    Paper: §3.1, LayerNorm(x + Sublayer(x)), with the dropout of §5.4.
    Departs from the paper with `norm_order = "pre"`: x + Sublayer(LayerNorm(x)), which trains
    deep stacks without warm-up.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = LayerNorm(config)
        self.normalise_first = config.norm_order == "pre"
        self.dropout_rate = config.dropout

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        rate = self.dropout_rate if self.training else 0.0
        if self.normalise_first:
            return add_dropped(x, sublayer(self.norm(x)), rate)
        normalised: Tensor = self.norm(add_dropped(x, sublayer(x), rate))
        return normalised


class Layer(nn.Module):
    """One layer: self-attention, attention over a memory if it has one, feed-forward.

    With attention over a memory it is the paper's decoder layer; without, its encoder layer, and
    the layer of a decoder-only model.

    Paper: §3.1.
    """

    def __init__(self, config: ModelConfig, *, attends_to_memory: bool) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.cross_attention = MultiHeadAttention(config) if attends_to_memory else None
        self.cross_attention_residual = Residual(config) if attends_to_memory else None
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x: Tensor,
        allowed: Allowed,
        memory: Memory | None = None,
        rotation: Tensor | None = None,
        memory_rotation: Tensor | None = None,
        *,
        trace: StackTrace | None = None,
    ) -> Tensor:
        self_trace = None if trace is None else trace.self_attention
        x = self.self_attention_residual(
            x, lambda y: self.self_attention(y, allowed, rotation, trace=self_trace)
        )
        cross = self.cross_attention
        if cross is not None and self.cross_attention_residual is not None:
            assert memory is not None, "a layer that attends to a memory was given none"
            keys_values, memory_allowed = (memory.keys, memory.values), memory.allowed
            cross_trace = None if trace is None else trace.cross_attention
            x = self.cross_attention_residual(
                x,
                lambda y: cross.cross(
                    y, keys_values, memory_allowed, memory_rotation, trace=cross_trace
                ),
            )
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output

    def remember(self, memory: Tensor, allowed: Allowed, rotation: Tensor | None = None) -> Memory:
        """Project a memory to this layer's keys and values."""
        assert self.cross_attention is not None, "this layer attends to no memory"
        return Memory(*self.cross_attention.keys_values(memory, rotation), allowed)


class Stack(nn.Module):
    """N layers over embedded input: encoder, decoder, or either alone.

    With a memory it is the paper's decoder. Without one it is the encoder or, given a causal
    `Allowed`, a language model. What was embedded may be tokens, patches or frames.

    Paper: §3.1. No norm follows the post-norm stack; pre-norm leaves its sum unnormalised and
    needs one.
    """

    def __init__(self, config: ModelConfig, *, attends_to_memory: bool) -> None:
        super().__init__()
        num_layers = config.num_decoder_layers if attends_to_memory else config.num_layers
        self.layers = nn.ModuleList(
            Layer(config, attends_to_memory=attends_to_memory) for _ in range(num_layers)
        )
        self.final_norm = LayerNorm(config) if config.norm_order == "pre" else None

    def forward(
        self,
        x: Tensor,  # [B, T, D]
        allowed: Allowed,
        memories: list[Memory] | None = None,
        rotation: Tensor | None = None,
        memory_rotation: Tensor | None = None,
        *,
        trace: StackTrace | None = None,
    ) -> Tensor:  # [B, T, D]
        for number, layer in enumerate(self.layers):
            memory = None if memories is None else memories[number]
            x = layer(x, allowed, memory, rotation, memory_rotation, trace=trace)
        return x if self.final_norm is None else self.final_norm(x)

    def remember(
        self, memory: Tensor, allowed: Allowed, rotation: Tensor | None = None
    ) -> list[Memory]:
        """Project a memory for every layer, once for all the steps that will attend to it."""
        return [
            layer.remember(memory, allowed, rotation)  # type: ignore[operator]
            for layer in self.layers
        ]
