"""The encoder alone, for models without a decoder.

Paper: §3.1.
"""

from typing import Protocol

from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model.embeddings import Placed, embed
from headwise.model.inputs import VectorEmbedding, positions_of
from headwise.model.layers import LayerNorm, Stack
from headwise.model.masks import Allowed
from headwise.model.trace import Trace


class HasEncoder(Protocol):
    """A model that is an encoder alone, whose parts have their names in `Transformer`, if any."""

    config: ModelConfig
    source_positions: nn.Module
    source_types: nn.Embedding | None
    source_norm: LayerNorm | None
    encoder: Stack

    @property
    def source_embedding(self) -> nn.Embedding | VectorEmbedding: ...


def encode_source(
    model: HasEncoder, src: Tensor, real: Tensor | None, trace: Trace | None
) -> Tensor:
    """Return the encoder's output [B, S, D]; `real` [B, S] says what is no padding.

    The source is ids [B, S], or vectors [B, S-1, W] before which a class token is put.
    """
    config = model.config
    placed = Placed.of(model.source_positions(0, positions_of(src)), config)
    first_type = None if model.source_types is None else model.source_types.weight[0]  # [D]
    encoded: Tensor = model.encoder(
        embed(src, model.source_embedding, placed.added, config, first_type, model.source_norm),
        Allowed(keys=real, window=config.window or None),
        rotation=placed.rotation,
        trace=None if trace is None else trace.encoder,
    )
    return encoded
