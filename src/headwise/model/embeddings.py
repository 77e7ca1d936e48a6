"""From token ids to the input of a stack.

Paper: §3.4, §3.5.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headwise.config import ModelConfig, Vocab
from headwise.errors import ConfigError
from headwise.model.dropout import dropout
from headwise.model.inputs import VectorEmbedding
from headwise.model.layers import LayerNorm
from headwise.model.positions import LearnedPositions, SinusoidalPositions, rotations


def check_tying(tying: str, vocab: Vocab) -> None:
    """Raise ConfigError if one matrix is asked for two vocabularies."""
    if tying == "three-way" and vocab.source_size != vocab.target_size:
        raise ConfigError(
            f"model.tying = 'three-way' needs one vocabulary, but the source has "
            f"{vocab.source_size} entries and the target {vocab.target_size}: "
            "learn a joint vocabulary or choose 'two-way'"
        )


def make_positions(config: ModelConfig) -> nn.Module:
    """Make the positional encodings that the config asks for.

    Paper: §3.5 and Table 3 (E).
    Departs from the paper with "rotary": a table of rotations for queries and keys.
    """
    if config.positions == "learned":
        return LearnedPositions(config.d_model, config.max_positions)
    if config.positions == "rotary":
        return SinusoidalPositions(config.d_k, rotations)
    return SinusoidalPositions(config.d_model)


def make_types(config: ModelConfig) -> nn.Embedding | None:
    """Make the vectors that are added to tokens of each type, if the config asks for them.

    Departs from the paper with `token_types`: BERT tells two texts apart by them (Devlin et al.,
    2019). Our models read one text, whose tokens all have the first type.
    """
    return nn.Embedding(config.token_types, config.d_model) if config.token_types else None


def make_norm(config: ModelConfig) -> LayerNorm | None:
    """Make the norm of what enters the stack, if the config asks for it.

    Departs from the paper with `embedding_norm`: BERT has it.
    """
    return LayerNorm(config) if config.embedding_norm else None


class Placed(NamedTuple):
    """Where positions enter the model: with the embeddings, or in every self-attention."""

    added: Tensor | None
    rotation: Tensor | None

    @classmethod
    def of(cls, positions: Tensor, config: ModelConfig) -> "Placed":
        """Sort out what `make_positions`'s module has returned."""
        is_rotary = config.positions == "rotary"
        return cls(None, positions) if is_rotary else cls(positions, None)


def embed(
    ids: Tensor,  # [B, T], or what else the embedding takes
    embedding: nn.Embedding | VectorEmbedding,
    positions: Tensor | None,
    config: ModelConfig,
    also: Tensor | None = None,  # [B, T, D], or [D] for all
    norm: LayerNorm | None = None,
) -> Tensor:  # [B, T, D]
    """Embed ids, scale by sqrt(d_model), add positions if there are any and, in training, drop.

    Paper: §3.4 and §3.5; dropout of the sum: §5.4.
    Departs from the paper with `scale_embeddings = false`: GPT-2 adds embeddings unscaled. With
    `also`, which is added too: what each position reads of the encoder's output (`aligned_input`),
    or the vector of a type of tokens (`token_types`). And with `norm`, which normalises the sum
    (`embedding_norm`).
    """
    is_scaled = config.scale_embeddings and isinstance(embedding, nn.Embedding)
    scale = math.sqrt(config.d_model) if is_scaled else 1.0
    x = embedding(ids)
    summed = x * scale if positions is None else torch.add(positions, x, alpha=scale)
    if also is not None:
        summed = summed + also
    if norm is not None:
        summed = norm(summed)
    return dropout(summed, config.dropout if embedding.training else 0.0)


def read_at(memory: Tensor, aligned: Tensor) -> Tensor:
    """Return the vectors of the encoder's output [B, S, D] at source positions [B, T]."""
    batch, length, _ = memory.shape
    first = torch.arange(0, batch * length, length, device=memory.device)[:, None]
    # Not `gather`, whose backward pass is four times as slow.
    rows = memory.flatten(0, 1).index_select(0, (first + aligned).flatten())  # [B*T, D]
    return rows.view(*aligned.shape, -1)  # [B, T, D]
