"""Images of lines of text as the model reads them: strips from left to right.

Departs from the paper, whose inputs are words.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headwise.config import ImageTranscriptionDataConfig, Vocab
from headwise.data import Subwords
from headwise.data.batches import Field
from headwise.data.images import check_pillow, decode_image, fitted, png
from headwise.data.shards import Floats, Packed
from headwise.data.tokenizer import save_streams
from headwise.errors import DataError, RequestError
from headwise.files import Folder
from headwise.seeding import keyed_generator
from headwise.tasks.encoders import Encoded
from headwise.tasks.tracing import Picture
from headwise.tasks.vectors.images import Pixels, checked_pixels, coloured
from headwise.tasks.vectors.scaling import Scaling, digest, padded_vectors
from headwise.training.task import Progress

STREAM = "image"
_TABLE_KIND = "strips"

_CLASS_TOKEN = "‹class›"  # noqa: S105 - what is shown for the first position


class Line(NamedTuple):
    """An image of a line that was read."""

    pixels: Pixels
    """[data.height, W, C]; W is `data.longest_width` at most."""
    is_cut: bool = False
    """Whether the image is wider."""


class LineEncoder:
    """Scale lines, and cut them into strips."""

    def __init__(self, data: ImageTranscriptionDataConfig, scaling: Scaling) -> None:
        self._data, self._scaling = data, scaling

    @property
    def stored(self) -> Floats:
        """Return how many floats a strip has."""
        return Floats(self._data.patch_width)

    def vocab(self, target_size: int) -> Vocab:
        """Return the vocabulary of a model with so many outputs."""
        return Vocab.of_vectors(self._data.patch_width, target_size)

    def save(
        self,
        directory: Path,
        tables: Mapping[str, object],
        subwords: Mapping[str, Subwords] | None = None,
    ) -> None:
        """Write the folder `tokenizer`, other streams beside the means of the colours."""
        own = {STREAM: self._scaling.table()}
        save_streams(directory, subwords or {}, {**own, **tables}, kinds={STREAM: _TABLE_KIND})

    def given(self, example: Any) -> Line:
        """Read an image: a path, the bytes of a file, or pixels [H, W] or [H, W, C]."""
        if isinstance(example, str):
            example = Path(example)
        if not isinstance(example, Path | bytes | np.ndarray):
            raise RequestError(
                f"{type(example).__name__} is no image: give a path, a file's bytes or an array"
            )
        place = str(example) if isinstance(example, Path) else "the image"
        return LINES.read(example, self._data, place)

    def received(self, content: bytes) -> Line:
        """Read a file of a request, which must not take long."""
        pixels = decode_image(content, "the image", colour=self._data.colour, is_trusted=False)
        return _line_of(pixels, self._data)

    def encode(self, content: Line) -> Encoded:
        """Return the strips of a line."""
        scaled = self._scaling.scaled(content.pixels)
        missing = -scaled.shape[1] % self._data.patch
        padded = np.pad(scaled, ((0, 0), (0, missing), (0, 0)), mode="edge")
        return Encoded(to_strips(padded, self._data.patch), content.is_cut)

    def padded(self, packed: Packed) -> tuple[Tensor, Tensor]:
        """Lay strips out in rows; return them, and the positions of each."""
        return padded_vectors(packed)

    def tokens(self, encoded: Encoded) -> tuple[str, ...]:
        """Name the strips by where they begin."""
        starts = range(0, len(encoded.values) * self._data.patch, self._data.patch)
        return (_CLASS_TOKEN, *(f"pixel {start}" for start in starts))

    def picture(self, encoded: Encoded) -> Picture:
        """Draw the line as the model reads it."""
        scaled = from_strips(encoded.values, self._data)
        pixels = np.clip(self._scaling.restored(scaled).round(), 0, 255).astype(np.uint8)
        return Picture(kind="image", png=png(pixels), rows=1, columns=len(encoded.values))


class LineKind:
    """`data.input = "images"` of transcription."""

    stream, unit = STREAM, "images"
    field = Field(STREAM, extra=1)  # The class token.
    settings: tuple[str, ...] = ("height", "patch", "colour", "longest_width")
    starts_from: Mapping[str, tuple[str, ...]] = {}

    def read(
        self, content: Path | bytes | NDArray[Any], data: ImageTranscriptionDataConfig, place: str
    ) -> Line:
        """Return a line as high, and in as many colours, as the config says."""
        if isinstance(content, np.ndarray):
            pixels = coloured(checked_pixels(content, place), data.colour)
        else:
            pixels = decode_image(content, place, colour=data.colour)
        return _line_of(pixels, data)

    def most(self, data: ImageTranscriptionDataConfig) -> str:
        """Say how much of a line is read."""
        return f"{data.longest_width:,} pixels (data.longest_width)"

    def fault(self, content: Line) -> str:
        """Find nothing: what cannot be read is an error."""
        return ""

    def identity(self, content: Line) -> str:
        """Return a key that identifies an image."""
        return digest(content.pixels)

    def learn(
        self,
        contents: Iterator[Line],
        data: ImageTranscriptionDataConfig,
        seed: int,
        of: Subwords | None,
        on_progress: Progress,
    ) -> LineEncoder | None:
        """Learn the mean and the deviation of each colour."""
        scaling = Scaling.learn(each.pixels for each in contents)
        return None if scaling is None else LineEncoder(data, scaling)

    def check_installed(self) -> None:
        """Need Pillow."""
        check_pillow()

    def load(self, folder: Path | Folder, data: ImageTranscriptionDataConfig) -> LineEncoder:
        """Load the means and deviations of prepared data or of a run."""
        return LineEncoder(data, Scaling.load(folder, STREAM, data.channels, _TABLE_KIND))

    def augmented(
        self, packed: Packed, data: ImageTranscriptionDataConfig, key: tuple[int, int]
    ) -> Packed:
        """Shift lines at random; what moves in is a copy of the border."""
        if not data.shift:
            return packed
        values, lengths = packed
        if values.shape[1:] != (data.patch_width,):
            raise DataError("the images are of another size: prepare the data anew")
        generator = keyed_generator("shifts", *key, digest(values))
        moves = generator.integers(-data.shift, data.shift + 1, (len(lengths), 2))
        changed = np.empty_like(values)
        ends = np.cumsum(lengths)
        for start, end, move in zip(ends - lengths, ends, moves, strict=True):
            line = from_strips(values[start:end], data)
            rows, columns = (
                np.clip(np.arange(size) + by, 0, size - 1)
                for size, by in zip(line.shape[:2], move, strict=True)
            )
            changed[start:end] = to_strips(line[rows][:, columns], data.patch)
        return changed, lengths


def to_strips(line: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Cut a line [H, W, C] into strips [W/width, H*width*C]."""
    height, _, channels = line.shape
    cut = line.reshape(height, -1, width, channels).transpose(1, 0, 2, 3)
    return cut.reshape(len(cut), -1)


def from_strips(
    strips: NDArray[np.float32], data: ImageTranscriptionDataConfig
) -> NDArray[np.float32]:
    """Put a line [H, W, C] together again."""
    cut = strips.reshape(len(strips), data.height, data.patch, data.channels)
    return cut.transpose(1, 0, 2, 3).reshape(data.height, -1, data.channels)


def _line_of(pixels: Pixels, data: ImageTranscriptionDataConfig) -> Line:
    """Scale an image [H, W, C] as a whole to the height of a line, as much of it as is read."""
    height, width, _ = pixels.shape
    # Cut first: what is far too wide is never scaled, and takes no memory.
    most = max(1, data.longest_width * height // data.height)
    kept = pixels[:, :most]
    scaled = (2 * kept.shape[1] * data.height + height) // (2 * height)
    line = fitted(kept, data.height, min(max(1, scaled), data.longest_width), "resize")
    return Line(line, is_cut=width > most)


LINES = LineKind()
