"""The section [model] of a recurrent model."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from headwise.checks import (
    check_types,
    require,
    require_at_least,
    require_at_most,
    require_share,
)
from headwise.config.model import Assembly, Vocab, embedding_rows


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """An encoder-decoder of recurrent layers: what the paper measures itself against (§1).

    With additive attention it is that of Bahdanau et al. (2015), without that of Sutskever et al.
    (2014).
    """

    name: ClassVar[str] = "model"

    kind: Literal["recurrent"] = "recurrent"
    """The architecture."""
    cell: Literal["lstm", "gru"] = "lstm"
    """The recurrent unit: LSTM, or the GRU, which Bahdanau et al. have."""
    attention: Literal["additive", "none"] = "additive"
    """How the decoder reads the source: by attention over the output of a bidirectional encoder, or
    by the last state of an encoder that reads the source backwards."""
    d_model: int = 512
    """Width of the embeddings and of every layer's output; a bidirectional layer has half of it for
    each direction."""
    num_layers: int = 2
    """Layers of the encoder, and as many of the decoder."""
    tying: Literal["three-way", "two-way", "untied"] = "three-way"
    """One matrix for both embeddings and the output; for target and output; or three matrices."""
    dropout: float = 0.1
    """Rate on the embeddings, between layers, and on what the output is computed from."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(self, 1, "d_model", "num_layers")
        require_at_most(self, 1_000, "num_layers")
        if self.attention == "additive":
            is_even = self.d_model % 2 == 0
            require(self, "d_model", is_even, "even, for the two directions of the encoder")
        require_share(self, "dropout")

    @property
    def num_decoder_layers(self) -> int:
        """As many as the encoder's."""
        return self.num_layers

    @property
    def num_heads(self) -> int:
        """Attention weights are one matrix."""
        return 1

    @property
    def longest(self) -> int | None:
        """The longest sequence that the model takes; None: any."""
        return None

    def count_attention_weights(self, source: int, target: int) -> int:
        """Return how many weights a `Trace` of a pair with so many tokens has."""
        return source * target

    def fitting(self, tokens: int) -> int:
        """Return so many tokens: a recurrent model reads sequences of any length."""
        return tokens

    def count_parameters(self, vocab: Vocab, assembly: Assembly = "seq2seq") -> int:
        """Count the trainable parameters without building the model."""
        d, gates = self.d_model, 4 if self.cell == "lstm" else 3
        layer = _recurrent_parameters(gates, d, d)
        layers = 2 * self.num_layers * layer
        if self.attention == "additive":
            half = _recurrent_parameters(gates, d, d // 2)
            layers += self.num_layers * (2 * half - layer)
            layers += _recurrent_parameters(gates, 2 * d, d) - layer  # It reads the source, too.
            layers += (d + 1) * d + d * d + d  # The query, the keys, and their score.
            layers += (2 * d + 1) * d  # Output and context, joined.
        return layers + embedding_rows(self.tying, vocab) * d


def _recurrent_parameters(gates: int, inputs: int, outputs: int) -> int:
    """Count those of one direction of a torch layer, which has two biases."""
    return gates * outputs * (inputs + outputs + 2)
