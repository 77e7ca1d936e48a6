"""The section [data] of classification, for each value of `data.input`."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from headwise.checks import check_types, require, require_at_least, require_at_most
from headwise.config.sections import SMALLEST_VOCABULARY
from headwise.config.vectors import MOST_PIXELS, MOST_POSITIONS, WIDEST, FramesConfig
from headwise.errors import ConfigError

FEWEST_CLASSES = 2


@dataclass(frozen=True, kw_only=True)
class LabelsConfig:
    """What labels are, whatever it is that has them."""

    name: ClassVar[str] = "data"

    multi_label: bool = False
    """Whether an example has any number of labels at once, instead of one."""
    label_separator: str = ","
    """What separates the labels of an example in a column of a TSV or CSV file, if it has
    several."""
    class_weights: Literal["none", "balanced"] = "none"
    """Whether rare classes count more in training, so that all classes count the same together."""
    holdout_examples: int = 1000
    """About how many examples to hold out for validation where none are given; at most a tenth."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(self, 1, "holdout_examples")
        separator = self.label_separator
        require(self, "label_separator", len(separator) == 1, "a single character")
        if self.multi_label:
            require(
                self,
                "class_weights",
                self.class_weights == "none",
                "'none' with data.multi_label = true: labels are predicted one by one",
            )


@dataclass(frozen=True, kw_only=True)
class ClassificationDataConfig(LabelsConfig):
    """What labelled texts are turned into."""

    input: Literal["text"] = "text"
    """What is classified."""
    vocab_size: int = 8_000
    """Entries of the texts' subword vocabulary, special ids included; fewer if the texts have not
    so many subwords."""
    longest: int = 512
    """Tokens of a text that are read, the class token and eos included; the rest is cut off."""
    subwords: Literal["bpe", "unigram"] = "bpe"
    """How subwords are learned, as for translation."""
    byte_fallback: bool = True
    """Whether a character outside the vocabulary is spelled in bytes instead of being lost."""
    normalization: Literal["identity", "nfkc", "nfkc_cf"] = "identity"
    """What is done to text before it is cut up: nothing, NFKC, or NFKC and case folding."""
    sample_examples: int = 1_000_000
    """Most texts, drawn at random, that the subwords are learned from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, SMALLEST_VOCABULARY, "vocab_size")
        require_at_most(self, 10_000_000, "vocab_size")
        require_at_least(self, 3, "longest")
        require_at_most(self, 1_000_000, "longest")
        require_at_least(self, 1, "sample_examples")


@dataclass(frozen=True, kw_only=True)
class ImageClassificationDataConfig(LabelsConfig):
    """What labelled images are turned into: patches in a row, as Dosovitskiy et al. (2021) do."""

    input: Literal["images"] = "images"
    """What is classified."""
    height: int = 224
    """Pixels that an image has when the model reads it, whatever its file has."""
    width: int = 224
    """The same across."""
    patch: int = 16
    """Height and width of a patch, in pixels."""
    colour: bool = True
    """Whether there are red, green and blue, or one shade of grey."""
    fit: Literal["resize", "pad"] = "resize"
    """How an image of another size is made to fit: by scaling both sides, or by scaling it as a
    whole and filling what is left with black."""
    shift: int = 0
    """Most pixels by which a training image is shifted at random in each direction (a random crop
    of the image with such a border)."""
    flip: bool = False
    """Whether every other training image, at random, is mirrored left to right."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "height", "width", "patch")
        for side in ("height", "width"):
            held = getattr(self, side) % self.patch == 0
            require(self, side, held, f"a multiple of data.patch = {self.patch}")
        for what, count, most in (
            ("data.height × data.width", self.height * self.width, MOST_PIXELS),
            ("the number of patches", self.longest - 1, MOST_POSITIONS - 1),
            ("data.patch × data.patch × colours", self.patch_width, WIDEST),
        ):
            if count > most:
                raise ConfigError(f"{what} = {count:,} must be at most {most:,}")
        require_at_least(self, 0, "shift")
        require_at_most(self, min(self.height, self.width) - 1, "shift")

    @property
    def channels(self) -> int:
        """Numbers of a pixel."""
        return 3 if self.colour else 1

    @property
    def patch_width(self) -> int:
        """Floats of a patch."""
        return self.patch * self.patch * self.channels

    @property
    def longest(self) -> int:
        """Positions of an image: its patches, and the class token."""
        return (self.height // self.patch) * (self.width // self.patch) + 1


@dataclass(frozen=True, kw_only=True)
class AudioClassificationDataConfig(FramesConfig, LabelsConfig):
    """What labelled sounds are turned into."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_frames()
