"""The section [data] of transcription, for each value of `data.input`."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from headwise.checks import (
    check_types,
    require,
    require_at_least,
    require_at_most,
    require_not_negative,
)
from headwise.config.sections import SMALLEST_VOCABULARY
from headwise.config.vectors import MOST_PIXELS, MOST_POSITIONS, WIDEST, FramesConfig


@dataclass(frozen=True, kw_only=True)
class TargetsConfig:
    """What transcriptions are turned into, whatever it is that is transcribed."""

    name: ClassVar[str] = "data"

    targets: Literal["characters", "subwords"] = "characters"
    """What the decoder writes: one character at a time, or subwords."""
    vocab_size: int = 1_000
    """Entries of the vocabulary of subwords, special ids included; fewer if the texts have not so
    many. Characters are as many as the training texts have."""
    subwords: Literal["bpe", "unigram"] = "bpe"
    """How subwords are learned, as for translation."""
    byte_fallback: bool = True
    """Whether a character outside the vocabulary of subwords is spelled in bytes instead of being
    lost."""
    normalization: Literal["identity", "nfkc", "nfkc_cf"] = "identity"
    """What is done to text before it is cut into subwords: nothing, NFKC, or NFKC and case
    folding."""
    sample_examples: int = 1_000_000
    """Most texts, drawn at random, that the subwords are learned from."""
    holdout_examples: int = 1000
    """About how many examples to hold out for validation where none are given; at most a tenth."""
    cer_examples: int = 200
    """Validation examples to transcribe at each validation; with any, the character error rate
    decides which checkpoint is best."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(self, SMALLEST_VOCABULARY, "vocab_size")
        require_at_most(self, 10_000_000, "vocab_size")
        require_at_least(self, 1, "sample_examples", "holdout_examples")
        require_not_negative(self, "cer_examples")


@dataclass(frozen=True, kw_only=True)
class ImageTranscriptionDataConfig(TargetsConfig):
    """What images of lines of text are turned into: strips from left to right."""

    input: Literal["images"] = "images"
    """What the model reads."""
    height: int = 32
    """Pixels that a line has when the model reads it; its width is scaled with it."""
    longest_width: int = 1024
    """Pixels across of the longest line, once it is scaled. Training leaves out longer ones."""
    patch: int = 4
    """Width of a patch, in pixels: each is a strip of a line's whole height."""
    colour: bool = False
    """Whether there are red, green and blue, or one shade of grey."""
    shift: int = 0
    """Most pixels by which a training image is shifted at random in each direction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "height", "longest_width", "patch")
        fits = self.height * self.longest_width <= MOST_PIXELS
        require(self, "height", fits, "of a smaller image")
        divides = self.longest_width % self.patch == 0
        require(self, "longest_width", divides, f"a multiple of data.patch = {self.patch}")
        require(self, "patch", self.longest <= MOST_POSITIONS, "of a size for fewer patches")
        require(self, "patch", self.patch_width <= WIDEST, "of a smaller patch")
        require_not_negative(self, "shift")
        require_at_most(self, self.height - 1, "shift")

    @property
    def channels(self) -> int:
        """Numbers of a pixel."""
        return 3 if self.colour else 1

    @property
    def patch_width(self) -> int:
        """Floats of a patch."""
        return self.height * self.patch * self.channels

    @property
    def longest(self) -> int:
        """Positions of the longest line: its patches, and the class token."""
        return self.longest_width // self.patch + 1


@dataclass(frozen=True, kw_only=True)
class AudioTranscriptionDataConfig(FramesConfig, TargetsConfig):
    """What sounds are turned into, and what is said in them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_frames()
