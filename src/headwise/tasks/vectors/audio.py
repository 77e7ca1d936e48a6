"""Sounds as the model reads them: frames of log-mel energies, several joined at each position.

Departs from the paper, whose inputs are words. It has no convolutions: joined frames shorten the
sequence instead.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headwise.config import FramesConfig, Vocab
from headwise.data import Subwords
from headwise.data.batches import Field
from headwise.data.images import check_pillow, png
from headwise.data.mel import log_mel
from headwise.data.shards import Floats, Packed
from headwise.data.sounds import Sound, check_installed, read_sound, sound_of
from headwise.data.tokenizer import save_streams
from headwise.errors import RequestError
from headwise.files import Folder
from headwise.seeding import keyed_generator
from headwise.tasks.encoders import Encoded
from headwise.tasks.tracing import Picture
from headwise.tasks.vectors.scaling import Scaling, digest, padded_vectors
from headwise.training.task import Progress

STREAM = "audio"
_TABLE_KIND = "frames"

_CLASS_TOKEN = "‹class›"  # noqa: S105 - what is shown for the first position
_DARKEST = 2.0
"""Standard deviations below the mean from which a spectrogram is black, and above it white."""


class LogMel(NamedTuple):
    """A sound that was read."""

    frames: NDArray[np.float32]
    """Log-mel energies [T, num_mels], less the mean of them all."""
    is_cut: bool
    """Whether the sound is longer."""
    given_rate: int
    """The samples a second of its file."""


class AudioEncoder:
    """Scale frames, and join them."""

    def __init__(self, data: FramesConfig, scaling: Scaling) -> None:
        self._data, self._scaling = data, scaling

    @property
    def stored(self) -> Floats:
        """Return how many floats a position has."""
        return Floats(self._data.frame_width)

    def vocab(self, target_size: int) -> Vocab:
        """Return the vocabulary of a model with so many outputs."""
        return Vocab.of_vectors(self._data.frame_width, target_size)

    def save(
        self,
        directory: Path,
        tables: Mapping[str, object],
        subwords: Mapping[str, Subwords] | None = None,
    ) -> None:
        """Write the folder `tokenizer`, other streams beside the means of the bands."""
        own = {STREAM: self._scaling.table()}
        save_streams(directory, subwords or {}, {**own, **tables}, kinds={STREAM: _TABLE_KIND})

    def given(self, example: Any) -> LogMel:
        """Read a sound: a path, the bytes of a file, or samples and their rate."""
        return log_mel_of(self.sound(example, self._data.longest_seconds), self._data)

    def sound(self, example: Any, longest_seconds: float) -> Sound:
        """Read so much of a sound, which is given in one of these ways."""
        rate = self._data.rate
        if isinstance(example, str):
            example = Path(example)
        if isinstance(example, Path | bytes):
            place = str(example) if isinstance(example, Path) else "the sound"
            return read_sound(example, place, rate=rate, longest_seconds=longest_seconds)
        if not (isinstance(example, tuple) and len(example) == 2):
            raise RequestError(
                f"{type(example).__name__} is no sound: give a path, a file's bytes, or a pair of "
                "an array of samples and the number of samples a second"
            )
        samples, given = np.asarray(example[0]), _checked_rate(example[1])
        return sound_of(samples, given, "the sound", rate=rate, longest_seconds=longest_seconds)

    def received(self, content: bytes) -> LogMel:
        """Read a file of a request, which must not take long."""
        data = self._data
        sound = read_sound(
            content,
            "the sound",
            rate=data.rate,
            longest_seconds=data.longest_seconds,
            is_trusted=False,
        )
        return log_mel_of(sound, data)

    def encode(self, content: LogMel) -> Encoded:
        """Return the scaled frames of a sound, `data.stack` of them at each position."""
        stack, frames = self._data.stack, self._scaling.scaled(content.frames)
        # The last position is filled up with frames of the mean, which are zeros.
        frames = np.pad(frames, ((0, -len(frames) % stack), (0, 0)))
        is_resampled = content.given_rate != self._data.rate
        changes = (f"resampled to {self._data.rate:,} Hz (data.rate)",) if is_resampled else ()
        return Encoded(frames.reshape(-1, self._data.frame_width), content.is_cut, changes)

    def padded(self, packed: Packed) -> tuple[Tensor, Tensor]:
        """Lay positions out in rows; return them, and how many each has."""
        return padded_vectors(packed)

    def tokens(self, encoded: Encoded) -> tuple[str, ...]:
        """Name the positions by when they begin."""
        seconds = self._data.stack * self._data.hop / self._data.rate
        times = (f"{number * seconds:.2f} s" for number in range(len(encoded.values)))
        return (_CLASS_TOKEN, *times)

    def picture(self, encoded: Encoded) -> Picture:
        """Draw the spectrogram as the model reads it: time from left to right, low tones below."""
        frames = encoded.values.reshape(-1, self._data.num_mels)
        shades = np.clip((frames + _DARKEST) / (2 * _DARKEST), 0, 1) * 255
        pixels = shades.round().astype(np.uint8).T[::-1, :, None]
        return Picture(kind="sound", png=png(pixels), rows=1, columns=len(encoded.values))


class AudioKind:
    """`data.input = "audio"`."""

    stream, unit = STREAM, "sounds"
    field = Field(STREAM, extra=1)  # The class token.
    settings: tuple[str, ...] = ("rate", "fft", "hop", "num_mels", "stack", "longest_seconds")
    starts_from: Mapping[str, tuple[str, ...]] = {}

    def read(self, content: Path | bytes, data: FramesConfig, place: str) -> LogMel:
        """Return the log-mel energies of a sound."""
        sound = read_sound(content, place, rate=data.rate, longest_seconds=data.longest_seconds)
        return log_mel_of(sound, data)

    def most(self, data: FramesConfig) -> str:
        """Say how much of a sound is read."""
        return f"{data.longest_seconds:g} s (data.longest_seconds)"

    def fault(self, content: LogMel) -> str:
        """Find nothing: what cannot be read is an error."""
        return ""

    def identity(self, content: LogMel) -> str:
        """Return a key that identifies a sound."""
        return digest(content.frames)

    def learn(
        self,
        contents: Iterator[LogMel],
        data: FramesConfig,
        seed: int,
        of: Subwords | None,
        on_progress: Progress,
    ) -> AudioEncoder | None:
        """Learn the mean and the deviation of each band."""
        scaling = Scaling.learn(each.frames for each in contents)
        return None if scaling is None else AudioEncoder(data, scaling)

    def check_installed(self) -> None:
        """Need soundfile and soxr, and Pillow to draw spectrograms."""
        check_installed()
        check_pillow()

    def load(self, folder: Path | Folder, data: FramesConfig) -> AudioEncoder:
        """Load the means and deviations of prepared data or of a run."""
        return AudioEncoder(data, Scaling.load(folder, STREAM, data.num_mels, _TABLE_KIND))

    def augmented(self, packed: Packed, data: FramesConfig, key: tuple[int, int]) -> Packed:
        """Blank out stretches of time and ranges of bands at random.

        SpecAugment (Park et al., 2019), without its warping of time.
        """
        if not data.time_masks and not data.frequency_masks:
            return packed
        values, lengths = packed
        changed = values.copy()
        bands = changed.reshape(-1, data.stack, data.num_mels)
        widest = max(1, int(data.frequency_mask_share * data.num_mels))
        ends = np.cumsum(lengths)
        for start, end in zip(ends - lengths, ends, strict=True):
            # Whatever batch it is in.
            generator = keyed_generator("blanks", *key, digest(values[start:end]))
            longest = max(1, int(data.time_mask_share * (end - start)))
            for _ in range(data.time_masks):
                first, after = _stretch(generator, int(end - start), longest)
                changed[start + first : start + after] = 0.0  # The mean.
            for _ in range(data.frequency_masks):
                first, after = _stretch(generator, data.num_mels, widest)
                bands[start:end, :, first:after] = 0.0
        return changed, lengths


def _checked_rate(rate: Any) -> int:
    # Nor is True a number here, whatever Python says.
    is_number = isinstance(rate, int | float | np.integer | np.floating)
    if isinstance(rate, bool) or not is_number or not rate > 0 or rate % 1 != 0:
        raise RequestError(f"{rate!r:.40} is not a whole number of samples a second above 0")
    return int(rate)


def _stretch(generator: np.random.Generator, length: int, most: int) -> tuple[int, int]:
    """Draw up to `most` places in a row; return the first, and the first after them."""
    size = int(generator.integers(0, min(most, length) + 1))
    first = int(generator.integers(0, length - size + 1))
    return first, first + size


def log_mel_of(sound: Sound, data: FramesConfig) -> LogMel:
    """Return what is read of a sound."""
    frames = log_mel(
        sound.samples, rate=data.rate, fft=data.fft, hop=data.hop, num_mels=data.num_mels
    )
    # Less their mean: a sound twice as loud is the same sound.
    return LogMel(frames - frames.mean(), sound.is_cut, sound.given_rate)


AUDIO = AudioKind()
