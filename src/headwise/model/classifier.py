"""An encoder whose output becomes a class.

Paper: §3.1, the encoder alone (Devlin et al., 2019).
"""

import torch
from torch import Tensor, nn

from headwise.config import ModelConfig, Vocab
from headwise.model.embeddings import make_positions
from headwise.model.encoder import encode_source
from headwise.model.initialise import initialise
from headwise.model.layers import Stack
from headwise.model.masks import real_keys
from headwise.model.trace import Trace


class SequenceClassifier(nn.Module):
    """The paper's encoder, pooled to one vector, and a linear layer that scores each class.

    Every source starts with the same id, the class token. With `pooling` "class-token" the vector
    at its position stands for the source; with "mean", the mean of the vectors of all positions.
    The embedding and the encoder have the names that they have in `Transformer`.
    """

    def __init__(self, config: ModelConfig, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.vocab = config, vocab
        self.source_embedding = nn.Embedding(vocab.source_size, config.d_model)
        self.source_positions = make_positions(config)
        self.encoder = Stack(config, attends_to_memory=False)
        self.head = nn.Linear(config.d_model, vocab.target_size)
        initialise(self)
        nn.init.normal_(self.head.weight, std=config.d_model**-0.5)
        nn.init.zeros_(self.head.bias)

    def forward(self, src: Tensor, *, trace: Trace | None = None) -> Tensor:
        """Return the score of every class [B, V] for source ids [B, S]."""
        scores: Tensor = self.head(self.pooled(src, trace=trace))  # [B, V]
        return scores

    def pooled(self, src: Tensor, *, trace: Trace | None = None) -> Tensor:
        """Return the vector that stands for each source [B, D]."""
        real = real_keys(src, self.vocab.pad)
        encoded = encode_source(self, src, real, trace)
        if self.config.pooling == "class-token":
            return encoded[:, 0]
        if real is None:
            return encoded.mean(1)
        # Not by a product with 0, which would leave NaN where padding has it.
        total = encoded.masked_fill(~real[:, :, None], 0.0).sum(1)
        return total / real.sum(1, keepdim=True)


def class_probabilities(scores: Tensor, *, is_multi_label: bool) -> Tensor:
    """Turn scores [B, V] into probabilities: of each class by itself, or 1 for all together."""
    # In double precision, so that the sum is 1 to many digits.
    return torch.sigmoid(scores.double()) if is_multi_label else scores.double().softmax(1)
