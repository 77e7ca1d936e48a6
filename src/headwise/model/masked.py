"""An encoder that predicts masked tokens from all others.

Paper: §3.1, the encoder alone, trained as Devlin et al. (2019) train it.
"""

from torch import Tensor, nn

from headwise.config import ModelConfig, Vocab
from headwise.model.embeddings import make_norm, make_positions, make_types
from headwise.model.encoder import encode_source
from headwise.model.initialise import initialise
from headwise.model.layers import Stack
from headwise.model.masks import real_keys
from headwise.model.trace import Trace


class MaskedLanguageModel(nn.Module):
    """The paper's encoder, and the output projection of its decoder.

    `tying` "three-way" and "two-way" both share the embedding with the output. The embedding and
    the encoder have the names that they have in `Transformer` and `SequenceClassifier`, which can
    start from their weights. BERT has another layer and biases before the softmax.
    """

    def __init__(self, config: ModelConfig, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.vocab = config, vocab
        self.source_embedding = nn.Embedding(vocab.source_size, config.d_model)
        self.source_positions = make_positions(config)
        self.source_types = make_types(config)
        self.source_norm = make_norm(config)
        self.encoder = Stack(config, attends_to_memory=False)
        self.output = nn.Linear(config.d_model, vocab.source_size, bias=False)
        initialise(self)
        if config.tying != "untied":
            self.output.weight = self.source_embedding.weight

    def forward(self, src: Tensor, *, trace: Trace | None = None) -> Tensor:
        """Return the logits [B, S, V] of the token at each position. Training uses `hidden`."""
        logits: Tensor = self.output(self.hidden(src, trace=trace))  # [B, S, V]
        return logits

    def hidden(self, src: Tensor, *, trace: Trace | None = None) -> Tensor:
        """Return the encoder's output [B, S, D] for ids [B, S]."""
        return encode_source(self, src, real_keys(src, self.vocab.pad), trace)
