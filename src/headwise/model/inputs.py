"""Patches and frames instead of words: vectors into the encoder.

Departs from the paper: its inputs are words. Dosovitskiy et al. (2021) read images in this way.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.config import CONVOLVED_FRAMES, ModelConfig, Vocab
from headwise.model.masks import real_keys


class StridedConvolutions(nn.Module):
    """Turn positions of four frames each [B, S, 4M] into vectors [B, S, D] by two convolutions.

    Each halves the length. The last frame that a position depends on is its own fourth: padding
    after a sequence changes none of it.
    Departs from the paper, which replaces convolutions (`model.subsampling = "convolution"`).
    """

    def __init__(self, width: int, d_model: int) -> None:
        super().__init__()
        bands = width // CONVOLVED_FRAMES
        self.first = nn.Conv1d(bands, d_model, 3, stride=2, padding=1)
        self.second = nn.Conv1d(d_model, d_model, 3, stride=2, padding=1)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return a vector for each position."""
        frames = vectors.unflatten(2, (CONVOLVED_FRAMES, -1)).flatten(1, 2)  # [B, 4S, M]
        x = F.gelu(self.first(frames.transpose(1, 2)))  # [B, D, 2S]
        return F.gelu(self.second(x)).transpose(1, 2)  # [B, S, D]


class VectorEmbedding(nn.Module):
    """Project vectors [B, S, W] to d_model, and put a learned vector, the class token, before them.

    It stands where a text's embedding does. Its output is not scaled by sqrt(d_model), which is for
    rows of a matrix that the output shares (§3.4).
    """

    def __init__(self, width: int, config: ModelConfig) -> None:
        super().__init__()
        d_model = config.d_model
        self.projection: nn.Linear | StridedConvolutions = (
            nn.Linear(width, d_model)
            if config.subsampling == "stack"
            else StridedConvolutions(width, d_model)
        )
        self.class_token = nn.Parameter(torch.empty(d_model))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the embedded class token and vectors [B, S+1, D]."""
        projected = self.projection(vectors)  # [B, S, D]
        first = self.class_token.to(projected.dtype).expand(len(vectors), 1, -1)  # [B, 1, D]
        return torch.cat((first, projected), dim=1)


def make_source_embedding(vocab: Vocab, config: ModelConfig) -> nn.Embedding | VectorEmbedding:
    """Make what embeds a source of ids, or of vectors where the vocabulary says so."""
    if vocab.source_width:
        return VectorEmbedding(vocab.source_width, config)
    return nn.Embedding(vocab.source_size, config.d_model)


def source_keys(src: Tensor, lengths: Tensor | None, vocab: Vocab) -> Tensor | None:
    """Return where the source has no padding [B, S], or None where there is none at all.

    Of ids, padding is those of pad. Vectors need `lengths` [B], which count the class token too;
    without them, there is no padding.
    """
    if not vocab.source_width:
        assert lengths is None, "lengths are for a source of vectors"
        return real_keys(src, vocab.pad)
    return None if lengths is None else real_positions(lengths, positions_of(src))


def positions_of(source: Tensor) -> int:
    """Return how many positions the embedded source has: ids [B, S], or vectors [B, S-1, W]."""
    return source.shape[1] + int(source.dim() == 3)


def real_positions(lengths: Tensor, positions: int) -> Tensor | None:
    """Return where sequences of these lengths are not padding, or None where there is none.

    As in `real_keys`, the test is made where it costs nothing.
    """
    real = torch.arange(positions, device=lengths.device) < lengths[:, None]  # [B, S]
    if lengths.device.type == "cpu" and not torch.compiler.is_compiling() and bool(real.all()):
        return None
    return real
