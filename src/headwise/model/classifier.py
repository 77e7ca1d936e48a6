"""An encoder whose output becomes a class.

Paper: §3.1, the encoder alone (Devlin et al., 2019).
"""

import torch
from torch import Tensor, nn

from headwise.config import ModelConfig, Vocab
from headwise.model.embeddings import make_norm, make_positions, make_types
from headwise.model.encoder import encode_source
from headwise.model.initialise import initialise
from headwise.model.inputs import make_source_embedding, positions_of, real_positions
from headwise.model.layers import Stack
from headwise.model.trace import Trace


class SequenceClassifier(nn.Module):
    """The paper's encoder, pooled to one vector, and a linear layer that scores each class.

    The source is ids, the first of which is the class token; or vectors, such as the patches of an
    image, and the class token is put before them. With `pooling` "class-token" the vector at its
    position stands for the source; with "mean", the mean of the vectors of all positions.
    The embedding and the encoder have the names that they have in `Transformer`.
    """

    def __init__(self, config: ModelConfig, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.vocab = config, vocab
        self.source_embedding = make_source_embedding(vocab, config)
        self.source_positions = make_positions(config)
        self.source_types = make_types(config)
        self.source_norm = make_norm(config)
        self.encoder = Stack(config, attends_to_memory=False)
        self.head = nn.Linear(config.d_model, vocab.target_size)
        initialise(self)
        nn.init.normal_(self.head.weight, std=config.d_model**-0.5)
        nn.init.zeros_(self.head.bias)

    def forward(
        self, src: Tensor, lengths: Tensor | None = None, *, trace: Trace | None = None
    ) -> Tensor:
        """Return the score of every class [B, V] for ids [B, S] or vectors [B, S-1, W].

        `lengths` [B] count the positions of each source, the class token among them; the others are
        padding. Without it, there is none.
        """
        scores: Tensor = self.head(self.pooled(src, lengths, trace=trace))  # [B, V]
        return scores

    def pooled(
        self, src: Tensor, lengths: Tensor | None = None, *, trace: Trace | None = None
    ) -> Tensor:
        """Return the vector that stands for each source [B, D]."""
        real = None if lengths is None else real_positions(lengths, positions_of(src))
        encoded = encode_source(self, src, real, trace)  # [B, S, D]
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
