"""The sections [data] and [decode] of each task.

`headwise.config.tasks` lists which task has which.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from headwise.checks import (
    check_types,
    require,
    require_at_least,
    require_at_most,
    require_not_negative,
)

SMALLEST_VOCABULARY = 5
"""The special ids and one token."""

WIDEST_BEAM = 10_000
"""Far beyond what helps: a wider one is a typing error, and takes all memory."""

STRONGEST_PENALTY = 10
"""Exponents of the length penalty are near 1; far larger ones overflow."""

LONGEST_CONTINUATION = 10_000_000
"""Tokens: more than any book has."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What the text is turned into (§5.1)."""

    name: ClassVar[str] = "data"

    source_language: str = ""
    """What the source is written in, as a code such as "en": for people and for the server."""
    target_language: str = ""
    """What the target is written in."""
    vocab_size: int = 37_000
    """Entries of the vocabulary, special ids included; of each, where there are two."""
    joint: bool = True
    """Whether both languages share one vocabulary."""
    subwords: Literal["bpe", "unigram"] = "bpe"
    """How subwords are learned: by merging byte pairs, or by pruning a unigram language model."""
    byte_fallback: bool = True
    """Whether a character outside the vocabulary is spelled in bytes instead of being lost."""
    normalization: Literal["identity", "nfkc", "nfkc_cf"] = "identity"
    """What is done to text before it is cut up: nothing, NFKC, or NFKC and case folding."""
    sample_pairs: int = 1_000_000
    """Most pairs, drawn at random, that the subwords are learned from."""
    holdout_pairs: int = 1000
    """About how many pairs to hold out for validation where no validation text is given."""
    drop_duplicates: bool = False
    """Leave out a pair that has been seen before, word for word."""
    drop_copies: bool = False
    """Leave out a pair whose target is its source."""
    max_ratio: float = 0.0
    """Leave out a pair one side of which has more than this times the other's tokens; 0: none."""
    max_tokens: int = 0
    """Leave out a pair one side of which has more tokens than this; 0: none."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(self, SMALLEST_VOCABULARY, "vocab_size")
        require_at_most(self, 10_000_000, "vocab_size")
        require_at_least(self, 1, "sample_pairs", "holdout_pairs")
        require_not_negative(self, "max_ratio", "max_tokens")
        require(self, "max_ratio", self.max_ratio == 0 or self.max_ratio >= 1, "0, or 1 or more")


@dataclass(frozen=True, kw_only=True)
class TextDataConfig:
    """What a language model's text is turned into."""

    name: ClassVar[str] = "data"

    language: str = ""
    """What the text is written in, as a code such as "en": for people."""
    context: int = 512
    """Tokens that the model reads at once: the text is cut into blocks of so many."""
    documents: Literal["blank-line", "line", "file"] = "blank-line"
    """Where a document of a plain text ends: at a blank line, at each line, or with its file.
    A record of a TSV, CSV or JSONL file is always one document."""
    vocab_size: int = 40_000
    """Entries of the vocabulary, special ids and the line break included."""
    subwords: Literal["bpe", "unigram"] = "bpe"
    """How subwords are learned, as for translation."""
    byte_fallback: bool = True
    """Whether a character outside the vocabulary is spelled in bytes instead of being lost."""
    normalization: Literal["identity", "nfkc", "nfkc_cf"] = "identity"
    """What is done to text before it is cut up: nothing, NFKC, or NFKC and case folding."""
    sample_lines: int = 1_000_000
    """Most lines, drawn at random, that the subwords are learned from."""
    holdout_bytes: int = 200_000
    """About how much text to hold out for validation where none is given; at most a tenth."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(self, SMALLEST_VOCABULARY, "vocab_size")
        require_at_most(self, 10_000_000, "vocab_size")
        require_at_least(self, 2, "context")
        require_at_most(self, 1_000_000, "context")
        require_at_least(self, 1, "sample_lines", "holdout_bytes")


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How translations and transcriptions are searched for (§6.1)."""

    name: ClassVar[str] = "decode"

    beam: int = 4
    """Hypotheses kept open for each sentence."""
    alpha: float = 0.6
    """Strength of the length penalty; 0 compares plain log-probabilities."""
    penalty: Literal["gnmt", "power"] = "gnmt"
    """((5 + length) / 6)^alpha, or length^alpha as most other toolkits have it."""
    stop: Literal["bound", "count"] = "bound"
    """End when no open hypothesis can still win, or once `beam` hypotheses have finished."""
    max_extra_tokens: int = 50
    """How many tokens more than its own source has tokens, patches or frames an output may
    have."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(self, 1, "beam")
        require_not_negative(self, "alpha", "max_extra_tokens")
        require_at_most(self, 1_000_000, "max_extra_tokens")
        require_at_most(self, WIDEST_BEAM, "beam")
        require_at_most(self, STRONGEST_PENALTY, "alpha")


@dataclass(frozen=True, kw_only=True)
class NoDecodeConfig:
    """The section of a task that searches for nothing."""

    name: ClassVar[str] = "decode"


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """How a language model continues a text."""

    name: ClassVar[str] = "decode"

    temperature: float = 1.0
    """Below 1 draws what is probable more often; 0 always takes the most probable token."""
    top_k: int = 0
    """How many of the most probable tokens may be drawn; 0: any."""
    top_p: float = 1.0
    """Only the most probable tokens that together have this much probability may be drawn."""
    beam: int = 0
    """Hypotheses of a beam search, which is deterministic; 0 draws at random instead."""
    alpha: float = 0.6
    """Strength of the beam's length penalty; 0 compares plain log-probabilities."""
    max_tokens: int = 256
    """Tokens after which a continuation ends, if its document does not end before."""

    def __post_init__(self) -> None:
        check_types(self)
        require_not_negative(self, "temperature", "top_k", "beam", "alpha")
        require(self, "top_p", 0 < self.top_p <= 1, "above 0 and at most 1")
        require_at_least(self, 1, "max_tokens")
        require_at_most(self, LONGEST_CONTINUATION, "max_tokens")
        require_at_most(self, WIDEST_BEAM, "beam")
        require_at_most(self, STRONGEST_PENALTY, "alpha")


@dataclass(frozen=True, kw_only=True)
class MaskedDataConfig:
    """What the text of a masked language model is turned into."""

    name: ClassVar[str] = "data"

    language: str = ""
    """What the text is written in, as a code such as "en": for people."""
    context: int = 128
    """Tokens of a block, besides the class token and eos."""
    whole_words: bool = False
    """Whether all subwords of a word are masked together, or each by itself."""
    documents: Literal["blank-line", "line", "file"] = "blank-line"
    """Where a document of a plain text ends, as for language models."""
    vocab_size: int = 8_000
    """Entries of the vocabulary, special ids, the line break and the mask included."""
    subwords: Literal["bpe", "unigram"] = "bpe"
    """How subwords are learned, as for translation."""
    byte_fallback: bool = True
    """Whether a character outside the vocabulary is spelled in bytes instead of being lost."""
    normalization: Literal["identity", "nfkc", "nfkc_cf"] = "identity"
    """What is done to text before it is cut up: nothing, NFKC, or NFKC and case folding."""
    sample_lines: int = 1_000_000
    """Most lines, drawn at random, that the subwords are learned from."""
    holdout_bytes: int = 200_000
    """About how much text to hold out for validation where none is given; at most a tenth."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(self, SMALLEST_VOCABULARY, "vocab_size")
        require_at_most(self, 10_000_000, "vocab_size")
        require_at_least(self, 2, "context")
        require_at_most(self, 1_000_000, "context")
        require_at_least(self, 1, "sample_lines", "holdout_bytes")


@dataclass(frozen=True, kw_only=True)
class ParsingDataConfig:
    """What trees are turned into (§6.3)."""

    name: ClassVar[str] = "data"

    vocab_size: int = 16_000
    """Entries of the words' subword vocabulary, special ids included. The target has the symbols
    of the trees, however many there are."""
    leaves: Literal["tags", "placeholder"] = "tags"
    """What stands for a word in the target: its part-of-speech tag, or XX for all words."""
    subwords: Literal["bpe", "unigram"] = "bpe"
    """How subwords are learned, as for translation."""
    byte_fallback: bool = True
    """Whether a character outside the vocabulary is spelled in bytes instead of being lost."""
    normalization: Literal["identity", "nfkc", "nfkc_cf"] = "identity"
    """What is done to words before they are cut up: nothing, NFKC, or NFKC and case folding."""
    sample_trees: int = 1_000_000
    """Most trees, drawn at random, whose words the subwords are learned from."""
    holdout_trees: int = 1000
    """About how many trees to hold out for validation where none are given; at most a tenth."""
    f1_trees: int = 200
    """Validation trees to parse at each validation; with any, F1 decides which is best."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(self, SMALLEST_VOCABULARY, "vocab_size")
        require_at_most(self, 10_000_000, "vocab_size")
        require_at_least(self, 1, "sample_trees", "holdout_trees")
        require_not_negative(self, "f1_trees")


@dataclass(frozen=True, kw_only=True)
class ParsingDecodeConfig:
    """How trees are searched for (§6.3)."""

    name: ClassVar[str] = "decode"

    beam: int = 21
    """Hypotheses kept open for each sentence."""
    alpha: float = 0.3
    """Strength of the length penalty; 0 compares plain log-probabilities."""
    penalty: Literal["gnmt", "power"] = "gnmt"
    """((5 + length) / 6)^alpha, or length^alpha."""
    stop: Literal["bound", "count"] = "bound"
    """End when no open hypothesis can still win, or once `beam` hypotheses have finished."""
    max_extra_tokens: int = 300
    """How many symbols more than its sentence has tokens a tree may have. Where a usual tree over
    the words needs more, it may have more."""
    constrained: bool = True
    """Whether only symbols that lead to a tree over exactly the words may be written. Without it,
    as in the paper, what is no tree is repaired."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(self, 1, "beam")
        require_not_negative(self, "alpha", "max_extra_tokens")
        require_at_most(self, 1_000_000, "max_extra_tokens")
        require_at_most(self, WIDEST_BEAM, "beam")
        require_at_most(self, STRONGEST_PENALTY, "alpha")
