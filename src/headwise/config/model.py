"""The section [model] of a config, and the vocabularies of a model."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from headwise.checks import (
    check_types,
    require,
    require_at_least,
    require_at_most,
    require_not_negative,
    require_share,
)
from headwise.config.classification import FEWEST_CLASSES
from headwise.config.sections import SMALLEST_VOCABULARY

CONVOLVED_FRAMES = 4
"""Frames of a sound that two convolutions of stride 2 turn into one position."""


@dataclass(frozen=True, kw_only=True)
class Vocab:
    """The sizes of a model's vocabularies and their special ids.

    Source sequences end in eos; targets start from `start` and end in eos. A model with a single
    vocabulary has two equal sizes. Of a classifier the target's entries are its classes, none of
    which is special. A source of patches or frames is no ids: it has a width instead of a size.
    """

    name: ClassVar[str] = "vocab"

    source_size: int
    target_size: int
    pad: int = 0
    unk: int = 1
    bos: int = 2
    eos: int = 3
    start: int = 2
    """The id that a decoder reads first: our own vocabularies start with bos."""
    mask: int = -1
    """The id that stands for a masked token; -1 where there is none."""
    source_width: int = 0
    """Floats of each position of the source, where these are vectors; 0 where they are ids."""

    def __post_init__(self) -> None:
        check_types(self)
        require_not_negative(self, "source_width")
        if self.source_width:
            require(self, "source_size", self.source_size == 0, "0 where the source is vectors")
        else:
            require_at_least(self, SMALLEST_VOCABULARY, "source_size")
        require_at_least(self, FEWEST_CLASSES, "target_size")

    def size(self, side: Literal["source", "target"]) -> int:
        """Return how many entries one of the vocabularies has."""
        return self.source_size if side == "source" else self.target_size

    @classmethod
    def shared(cls, size: int) -> Self:
        """Make the vocabulary that source and target have in common."""
        return cls(source_size=size, target_size=size)

    @classmethod
    def of_vectors(cls, width: int, target_size: int) -> Self:
        """Make the vocabulary of a target whose source is vectors of floats."""
        return cls(source_size=0, target_size=target_size, source_width=width)


Tying = Literal["three-way", "two-way", "untied"]


def embedding_rows(tying: Tying, vocab: Vocab) -> int:
    """Count the rows of the embeddings and the output of a model with an encoder."""
    return {
        "three-way": vocab.target_size,
        "two-way": vocab.source_size + vocab.target_size,
        "untied": vocab.source_size + 2 * vocab.target_size,
    }[tying]


Assembly = Literal["seq2seq", "decoder", "classifier", "masked"]
"""What a model is built of: encoder and decoder; a decoder alone (a language model); an encoder
whose output becomes a class; or one that predicts masked tokens."""

ENCODERS_ALONE: tuple[Assembly, ...] = ("classifier", "masked")
"""Those without a decoder."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The model (§3) and the dropout inside it (§5.4)."""

    name: ClassVar[str] = "model"

    kind: Literal["transformer"] = "transformer"
    """The architecture."""
    d_model: int = 512
    """Width of every sub-layer's input and output."""
    d_ff: int = 2048
    """Inner width of the feed-forward sub-layer."""
    num_layers: int = 6
    """Layers of the encoder, and as many of the decoder (the paper's N)."""
    num_decoder_layers: int = 0
    """Layers of the decoder, as a departure from the paper; 0 means num_layers and is replaced by
    it."""
    num_heads: int = 8
    """Attention heads (the paper's h)."""
    d_k: int = 0
    """Width of a head's queries and keys; 0 means d_model / num_heads and is replaced by it."""
    d_v: int = 0
    """Width of a head's values; 0 means d_model / num_heads and is replaced by it."""
    attention: Literal["full", "window"] = "full"
    """Whether a position attends to all others, or as a departure from the paper to a window of
    them (§4, restricted self-attention). Attention over the source stays full."""
    window: int = 0
    """Positions of the window, its own among them: around it in the encoder, the last ones in the
    decoder."""
    attention_bias: bool = True
    """Biases on attention's projections: absent from the formula, present in Table 3's counts."""
    norm_order: Literal["post", "pre"] = "post"
    """LayerNorm after the residual sum (the paper), or before the sub-layer with final norms."""
    norm_epsilon: float = 1e-6
    """What LayerNorm adds to the variance; the paper is silent, and this is the value of the
    authors' first public code."""
    activation: Literal["relu", "gelu", "gelu_tanh"] = "relu"
    """What stands between the two products of the feed-forward sub-layer (§3.3): ReLU, or as a
    departure from the paper GELU, exact or in its tanh approximation (GPT-2's)."""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """Fixed sinusoids of any length; a learned vector for each position (Table 3 E); or as a
    departure from the paper rotations of self-attention's queries and keys (Su et al., 2021)."""
    max_positions: int = 1024
    """Longest sequence that learned positions cover; sinusoids have no limit and ignore it."""
    tying: Literal["three-way", "two-way", "untied"] = "three-way"
    """One matrix for both embeddings and the output; for target and output; or three matrices."""
    scale_embeddings: bool = True
    """Whether embeddings are multiplied by sqrt(d_model) (§3.4); without it, a departure from the
    paper, they are added to the positions as they are (GPT-2)."""
    embedding_norm: bool = False
    """Whether LayerNorm follows the sum of embeddings and positions, before its dropout: a
    departure from the paper (BERT), for models that are an encoder alone."""
    token_types: int = 0
    """How many types of tokens have a learned vector that is added to their embeddings: a departure
    from the paper (BERT has 2), for models that are an encoder alone. They read a single text, all
    of whose tokens are of the first type."""
    dropout: float = 0.1
    """Rate on each sub-layer's output and on the sums of embeddings and positions."""
    attention_dropout: float = 0.0
    """Rate on the attention weights; the paper's parser uses it, its translation models do not."""
    aligned_input: bool = False
    """Whether the decoder's input also has the encoder's output at the next unread word: a
    departure from the paper, for tasks whose outputs follow the source word by word (parsing). With
    rotary positions, attention over the source then goes by the distance from that word."""
    subsampling: Literal["stack", "convolution"] = "stack"
    """How the frames of a sound become positions: `data.stack` of them are joined and projected; or
    as a departure from the paper, whose model has no convolution, by two convolutions that halve
    the length, for data.stack = 4."""
    pooling: Literal["class-token", "mean"] = "class-token"
    """What a classifier makes of the encoder's output: the vector of a token before the text, as in
    BERT, or the mean of all."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(self, 1, "d_model", "d_ff", "num_layers", "num_heads", "max_positions")
        require_not_negative(self, "num_decoder_layers", "token_types")
        require_at_most(self, 1_000, "num_layers", "num_decoder_layers")
        if self.num_decoder_layers == 0:
            object.__setattr__(self, "num_decoder_layers", self.num_layers)
        if self.positions == "sinusoidal":
            require(self, "d_model", self.d_model % 2 == 0, "even, to pair sines with cosines")
        require_not_negative(self, "d_k", "d_v")
        for key in ("d_k", "d_v"):
            if getattr(self, key) == 0:
                require(
                    self,
                    "num_heads",
                    self.d_model % self.num_heads == 0,
                    f"a divisor of model.d_model = {self.d_model}, or set model.d_k and model.d_v",
                )
                object.__setattr__(self, key, self.d_model // self.num_heads)
        if self.positions == "rotary":
            require(
                self,
                "d_k",
                self.d_k % 2 == 0,
                "even with model.positions = 'rotary', which turns pairs of components",
            )
        require_not_negative(self, "window")
        if self.attention == "window":
            require(self, "window", self.window > 0, "above 0 with model.attention = 'window'")
        else:
            require(self, "window", self.window == 0, "0 with model.attention = 'full'")
        require_share(self, "dropout", "attention_dropout")
        require(self, "norm_epsilon", 0 < self.norm_epsilon < math.inf, "a number above 0")

    def fitting(self, tokens: int) -> int:
        """Return so many tokens, or as many as a sequence may have besides its start or end."""
        return min(tokens, self.max_positions - 1) if self.positions == "learned" else tokens

    @property
    def longest(self) -> int | None:
        """The longest sequence that the model takes; None: any."""
        return self.max_positions if self.positions == "learned" else None

    def count_attention_weights(self, source: int, target: int) -> int:
        """Return how many weights a `Trace` of a pair with so many tokens has."""
        encoder = self.num_layers * source * source
        decoder = self.num_decoder_layers * target * (target + source)
        return self.num_heads * (encoder + decoder)

    def count_parameters(self, vocab: Vocab, assembly: Assembly = "seq2seq") -> int:
        """Count the trainable parameters without building the model."""
        d, h, biases = self.d_model, self.num_heads, int(self.attention_bias)
        projections = h * (2 * self.d_k + self.d_v)
        attention = (d + biases) * projections + h * self.d_v * d + biases * d
        feed_forward = (d + 1) * self.d_ff + (self.d_ff + 1) * d
        norm = 2 * d
        layer = attention + feed_forward + 2 * norm
        # Of vectors, the projection with its biases and the class token.
        source = vocab.source_width + 2 if vocab.source_width else vocab.source_size
        if vocab.source_width and self.subsampling == "convolution":
            source = 3 * (vocab.source_width // CONVOLVED_FRAMES) + 1 + 3 * d + 1 + 1
        stacks, head = 1, 0
        if assembly == "decoder":
            layers = self.num_layers * layer
            rows = (2 if self.tying == "untied" else 1) * vocab.target_size
        elif assembly == "classifier":
            layers, rows = self.num_layers * layer, source
            head = (d + 1) * vocab.target_size
        elif assembly == "masked":
            layers = self.num_layers * layer
            rows = (2 if self.tying == "untied" else 1) * vocab.source_size
        else:
            decoder = self.num_decoder_layers * (layer + attention + norm)
            stacks, layers = 2, self.num_layers * layer + decoder
            rows = embedding_rows(self.tying, vocab)
            if vocab.source_width:
                rows += source
        final_norms = stacks * norm if self.norm_order == "pre" else 0
        positions = stacks * self.max_positions * d if self.positions == "learned" else 0
        count = layers + final_norms + positions + rows * d + head
        if assembly in ENCODERS_ALONE:
            count += self.token_types * d + int(self.embedding_norm) * norm
        return count
