"""What images and sounds are turned into, whatever the task that reads them."""

from dataclasses import dataclass
from typing import Literal

from headwise.checks import require, require_at_least, require_at_most

MOST_PIXELS = 1 << 24
MOST_POSITIONS = 1 << 16
WIDEST = 1 << 20
"""Of an example as the model reads it: its pixels, its positions, and the floats of one of them.
Beyond this nothing can be trained, and a run from a stranger would take all memory."""


@dataclass(frozen=True, kw_only=True)
class FramesConfig:
    """What sounds are turned into: frames of log-mel energies, several at a position."""

    input: Literal["audio"] = "audio"
    """What the model reads."""
    rate: int = 16_000
    """Samples a second; other files are resampled."""
    fft: int = 400
    """Samples of a frame."""
    hop: int = 160
    """Samples from the beginning of a frame to that of the next."""
    num_mels: int = 80
    """Bands of frequency."""
    stack: int = 2
    """Frames that are joined to one position."""
    longest_seconds: float = 10.0
    """What is read of a sound at once. Of a longer one, the rest is cut off in classification; in
    transcription, training leaves it out."""
    time_masks: int = 0
    """Stretches of positions that are blanked out in each training example (SpecAugment)."""
    time_mask_share: float = 0.1
    """The longest such stretch, as a share of the example."""
    frequency_masks: int = 0
    """Ranges of bands that are blanked out in each training example (SpecAugment)."""
    frequency_mask_share: float = 0.2
    """The widest such range, as a share of the bands."""

    def check_frames(self) -> None:
        """Raise ConfigError for a value that is out of its range."""
        require_at_least(self, 1_000, "rate")
        require_at_most(self, 192_000, "rate")
        require_at_least(self, 16, "fft")
        require_at_most(self, 1 << 16, "fft")
        require(self, "fft", self.fft % 2 == 0, "even, so that a frame has a middle")
        require_at_least(self, 1, "hop", "num_mels", "stack")
        require_at_most(self, self.fft, "hop", "num_mels")
        require_at_most(self, 1_024, "num_mels")
        require_at_most(self, 64, "stack")
        seconds = self.longest_seconds
        require(self, "longest_seconds", 0 < seconds <= 3600, "above 0 and at most 3,600")
        fits = self.longest <= MOST_POSITIONS
        require(self, "longest_seconds", fits, f"of at most {MOST_POSITIONS:,} positions")
        require_at_least(self, 0, "time_masks", "frequency_masks")
        require_at_most(self, 100, "time_masks", "frequency_masks")
        for key in ("time_mask_share", "frequency_mask_share"):
            require(self, key, 0 < getattr(self, key) <= 1, "above 0 and at most 1")

    @property
    def frame_width(self) -> int:
        """Floats of a position."""
        return self.num_mels * self.stack

    @property
    def longest(self) -> int:
        """Most positions of a sound, the class token among them."""
        frames = 1 + int(self.longest_seconds * self.rate) // self.hop
        return -(-frames // self.stack) + 1
