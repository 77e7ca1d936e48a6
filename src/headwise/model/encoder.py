"""The encoder alone, for models without a decoder.

Paper: §3.1.
"""

from typing import Protocol

from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model.embeddings import Placed, embed
from headwise.model.layers import Stack
from headwise.model.masks import Allowed
from headwise.model.trace import Trace


class HasEncoder(Protocol):
    """A model with an encoder, whose parts have the names that they have in `Transformer`."""

    config: ModelConfig
    source_embedding: nn.Embedding
    source_positions: nn.Module
    encoder: Stack


def encode_source(
    model: HasEncoder, src: Tensor, real: Tensor | None, trace: Trace | None
) -> Tensor:
    """Return the encoder's output [B, S, D] for ids [B, S]; `real` says what is no padding."""
    config = model.config
    placed = Placed.of(model.source_positions(0, src.shape[1]), config)
    encoded: Tensor = model.encoder(
        embed(src, model.source_embedding, placed.added, config),
        Allowed(keys=real, window=config.window or None),
        rotation=placed.rotation,
        trace=None if trace is None else trace.encoder,
    )
    return encoded
