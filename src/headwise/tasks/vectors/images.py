"""Images as the model reads them: patches in a row, each the pixels of a square.

Departs from the paper: Dosovitskiy et al. (2021).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headwise.config import ImageClassificationDataConfig, Vocab
from headwise.data import Subwords
from headwise.data.batches import Field
from headwise.data.images import check_pillow, decode_image, fitted, png
from headwise.data.shards import Floats, Packed
from headwise.data.tokenizer import save_streams
from headwise.errors import DataError, RequestError
from headwise.files import Folder
from headwise.seeding import keyed_seed
from headwise.tasks.encoders import Encoded
from headwise.tasks.tracing import Picture
from headwise.tasks.vectors.scaling import Scaling, digest, padded_vectors
from headwise.training.task import Progress

STREAM = "image"
_TABLE_KIND = "patches"

_CLASS_TOKEN = "‹class›"  # noqa: S105 - what is shown for the first position
_GREY = np.array([0.299, 0.587, 0.114])
"""Of red, green and blue in a shade of grey, as Pillow takes them (ITU-R 601)."""

Pixels = NDArray[np.uint8]
"""Of an image: [H, W, C]."""


class ImageEncoder:
    """Cut images of one size into patches, and scale them."""

    def __init__(self, data: ImageClassificationDataConfig, scaling: Scaling) -> None:
        self._data, self._scaling = data, scaling

    @property
    def stored(self) -> Floats:
        """Return how many floats a patch has."""
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

    def given(self, example: Any) -> Pixels:
        """Read an image: a path, the bytes of a file, or pixels [H, W] or [H, W, C]."""
        if isinstance(example, str):
            example = Path(example)
        if not isinstance(example, Path | bytes | np.ndarray):
            raise RequestError(
                f"{type(example).__name__} is no image: give a path, a file's bytes or an array"
            )
        place = str(example) if isinstance(example, Path) else "the image"
        return IMAGES.read(example, self._data, place)

    def received(self, content: bytes) -> Pixels:
        """Read a file of a request, which must not take long."""
        pixels = decode_image(content, "the image", colour=self._data.colour, is_trusted=False)
        return fitted(pixels, self._data.height, self._data.width, self._data.fit)

    def encode(self, content: Pixels) -> Encoded:
        """Return the patches of an image, row by row."""
        return Encoded(to_patches(self._scaling.scaled(content)[None], self._data.patch)[0])

    def padded(self, packed: Packed) -> tuple[Tensor, Tensor]:
        """Lay patches out in rows; return them, and the positions of each."""
        return padded_vectors(packed)

    def tokens(self, encoded: Encoded) -> tuple[str, ...]:
        """Name the patches by their row and column."""
        rows, columns = grid(self._data)
        places = ((row + 1, column + 1) for row in range(rows) for column in range(columns))
        return (_CLASS_TOKEN, *(f"row {row}, column {column}" for row, column in places))

    def picture(self, encoded: Encoded) -> Picture:
        """Draw the image as the model reads it."""
        rows, columns = grid(self._data)
        scaled = from_patches(encoded.values[None], self._data)[0]
        pixels = np.clip(self._scaling.restored(scaled).round(), 0, 255).astype(np.uint8)
        return Picture(kind="image", png=png(pixels), rows=rows, columns=columns)


class ImageKind:
    """`data.input = "images"`."""

    stream, unit = STREAM, "images"
    field = Field(STREAM, extra=1)  # The class token.
    settings: tuple[str, ...] = ("height", "width", "patch", "colour", "fit")
    starts_from: Mapping[str, tuple[str, ...]] = {}

    def read(
        self, content: Path | bytes | NDArray[Any], data: ImageClassificationDataConfig, place: str
    ) -> Pixels:
        """Return an image as large, and in as many colours, as the config says."""
        if isinstance(content, np.ndarray):
            pixels = coloured(checked_pixels(content, place), data.colour)
        else:
            pixels = decode_image(content, place, colour=data.colour)
        return fitted(pixels, data.height, data.width, data.fit)

    def most(self, data: ImageClassificationDataConfig) -> str:
        """Say that a whole image is read."""
        return "nothing"

    def fault(self, content: Pixels) -> str:
        """Find nothing: what cannot be read is an error."""
        return ""

    def identity(self, content: Pixels) -> str:
        """Return a key that identifies an image."""
        return digest(content)

    def learn(
        self,
        contents: Iterator[Pixels],
        data: ImageClassificationDataConfig,
        seed: int,
        of: Subwords | None,
        on_progress: Progress,
    ) -> ImageEncoder | None:
        """Learn the mean and the deviation of each colour."""
        scaling = Scaling.learn(contents)
        return None if scaling is None else ImageEncoder(data, scaling)

    def check_installed(self) -> None:
        """Need Pillow."""
        check_pillow()

    def load(self, folder: Path | Folder, data: ImageClassificationDataConfig) -> ImageEncoder:
        """Load the means and deviations of prepared data or of a run."""
        return ImageEncoder(data, Scaling.load(folder, STREAM, data.channels, _TABLE_KIND))

    def augmented(
        self, packed: Packed, data: ImageClassificationDataConfig, key: tuple[int, int]
    ) -> Packed:
        """Shift and mirror images at random; what is beyond a border has the border's colours."""
        if not data.shift and not data.flip:
            return packed
        values, lengths = packed
        rows, columns = grid(data)
        if (lengths != rows * columns).any() or values.shape[1] != data.patch_width:
            raise DataError("the images are of another size: prepare the data anew")
        images = from_patches(values.reshape(len(lengths), -1, values.shape[1]), data)
        count, most = len(images), data.shift
        drawn = np.array([_drawn(image, data, key) for image in images])  # [N, 3]
        down, right, is_mirrored = drawn.T[:, :, None]  # [N, 1] each
        rows = down + np.arange(data.height)  # [N, H]
        columns = right + np.arange(data.width)  # [N, W]
        columns = np.where(is_mirrored > 0, columns[:, ::-1], columns)
        wide = np.pad(images, ((0, 0), (most, most), (most, most), (0, 0)), mode="edge")
        changed = wide[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
        return to_patches(changed, data.patch).reshape(values.shape), lengths


def _drawn(
    image: NDArray[np.float32], data: ImageClassificationDataConfig, key: tuple[int, int]
) -> tuple[int, int, bool]:
    """Draw how far down and right an image is shifted, and whether it is mirrored.

    Whatever batch it is in.
    """
    # Not with a generator: it would take longer than all the rest.
    bits = keyed_seed("shifts", *key, digest(image))
    bits, down = divmod(bits, 2 * data.shift + 1)
    bits, right = divmod(bits, 2 * data.shift + 1)
    return down, right, data.flip and bits % 2 == 1


def grid(data: ImageClassificationDataConfig) -> tuple[int, int]:
    """Return how many rows and columns of patches an image has."""
    return data.height // data.patch, data.width // data.patch


def to_patches(images: NDArray[np.float32], patch: int) -> NDArray[np.float32]:
    """Cut images [N, H, W, C] into patches [N, rows*columns, patch*patch*C]."""
    count, height, width, channels = images.shape
    cut = images.reshape(count, height // patch, patch, width // patch, patch, channels)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(count, -1, patch * patch * channels)


def from_patches(
    patches: NDArray[np.float32], data: ImageClassificationDataConfig
) -> NDArray[np.float32]:
    """Put images [N, H, W, C] together again."""
    rows, columns = grid(data)
    shape = (len(patches), rows, columns, data.patch, data.patch, data.channels)
    joined = patches.reshape(shape).transpose(0, 1, 3, 2, 4, 5)
    return joined.reshape(len(patches), data.height, data.width, data.channels)


def checked_pixels(pixels: NDArray[Any], place: str) -> Pixels:
    """Return an array if it is an image, [H, W] or [H, W, C]."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or 0 in pixels.shape:
        raise DataError(
            f"{place}: {pixels.dtype} of shape {list(pixels.shape)} is no image: give bytes "
            "(uint8) of shape [height, width] or [height, width, colours]"
        )
    if pixels.ndim == 3 and pixels.shape[2] not in (1, 3):
        raise DataError(f"{place}: {pixels.shape[2]} colours: an image has 1 or 3")
    return pixels


def coloured(pixels: Pixels, colour: bool) -> Pixels:
    """Return pixels [H, W, C] of the number of colours that is asked for."""
    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    if colour:
        return np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    return pixels if pixels.shape[2] == 1 else (pixels @ _GREY).round().astype(np.uint8)[..., None]


IMAGES = ImageKind()
