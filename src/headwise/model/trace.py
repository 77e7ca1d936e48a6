"""Attention weights, recorded on request."""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class StackTrace:
    """The attention weights of one stack, a tensor for each layer, filled as the stack runs."""

    self_attention: list[Tensor] = field(default_factory=list)  # each [B, H, T, T]
    cross_attention: list[Tensor] = field(default_factory=list)  # each [B, H, T, S]


@dataclass(frozen=True)
class Trace:
    """Every attention weight of one pass; pass an empty one to a model's `hidden`.

    What a model does not have stays empty: a language model fills `decoder.self_attention` only.
    """

    encoder: StackTrace = field(default_factory=StackTrace)
    decoder: StackTrace = field(default_factory=StackTrace)
