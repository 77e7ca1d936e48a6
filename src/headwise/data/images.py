"""Decode image files to arrays of bytes, fit them to a size, and write PNG.

A file may come from a stranger. Its sizes are read from its header and checked before a pixel is
decoded: the pixels, the tiles of a TIFF, and the scans of a JPEG, each of which goes over the whole
image. What these checks cannot bound is the time that some rare formats take for each byte (PPM
files with text or an odd maximum): a server should take far fewer bytes than `MOST_FILE_BYTES`.
"""

import io
import os
import stat
import struct
import threading
import warnings
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from headwise.errors import ConfigError, DataError
from headwise.visible import visible

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageFile import ImageFile

MOST_PIXELS = 1 << 26
"""Pixels of an image: 67 million. The largest cameras make twice as many."""

MOST_SIDE = 1 << 16
"""Pixels of a side; JPEG and GIF allow one less. Pillow's time for raw rows is quadratic in their
length, and its memory for scaling is 16 bytes for each pixel of a side."""

MOST_FILE_BYTES = 128 << 20

MOST_UNTRUSTED_PIXELS = 1 << 24
"""Pixels of an untrusted image: what decodes in a fraction of a second."""

_MOST_SCANNED = 32 * MOST_PIXELS
"""Pixels of a JPEG times its scans. Progressive files have about ten scans; without a limit, 1 MB
of scans that change nothing takes minutes."""

_MOST_LAYERS = 8
"""How many times over the tiles of a TIFF may cover it: once for each channel stored apart."""

_UNTRUSTED = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
_FORMATS = (*_UNTRUSTED, "TIFF", "PPM")
"""As Pillow names them. Untrusted images are of those that browsers show, whose decoders are the
most tried; and Pillow may decode PPM in Python, which takes long."""

_BROKEN = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    AttributeError,
    AssertionError,
    struct.error,
)
"""What Pillow raises for broken files, depending on where in them the fault is; AttributeError
where `python -O` has removed its assertions."""

_TURNS = {
    2: (0, True),
    3: (2, False),
    4: (2, True),
    5: (3, True),
    6: (3, False),
    7: (1, True),
    8: (1, False),
}
"""The quarter turns to the left that an EXIF orientation asks for, and whether the result is then
mirrored from left to right."""


class _Filters:
    """The filters of warnings, which belong to the process and not to a thread.

    Pillow warns of odd metadata, and of sizes that are refused here. Its warnings are ignored from
    when the first thread decodes until none does.
    """

    def __init__(self) -> None:
        self._lock, self._decoding = threading.Lock(), 0
        self._caught = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if not self._decoding:
                self._caught = warnings.catch_warnings()
                self._caught.__enter__()
                warnings.filterwarnings("ignore", module=r"PIL\.")
            self._decoding += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._decoding -= 1
            if not self._decoding:
                self._caught.__exit__(None, None, None)


_FILTERS = _Filters()


def decode_image(
    source: Path | bytes, place: str, *, colour: bool, is_trusted: bool = True
) -> NDArray[np.uint8]:
    """Decode an image [H, W, C]: the first frame, upright, laid over white; grey has C = 1.

    Grey of 16 bits is divided by 257. Floats have to be from 0 to 1; whole numbers of 32 bits are
    refused, since nothing says which of them is white. Colour profiles are ignored. EXIF data that
    cannot be read do not turn the image. An untrusted image must have fewer pixels and must not be
    TIFF or PPM. What is wrong with a file is a DataError that begins with `place`.
    """
    check_pillow()
    from PIL import Image, UnidentifiedImageError

    data = _content(source, place)
    most = MOST_PIXELS if is_trusted else MOST_UNTRUSTED_PIXELS
    formats = _FORMATS if is_trusted else _UNTRUSTED
    with _FILTERS:
        try:
            with Image.open(io.BytesIO(data), formats=formats) as image:
                _check_pixels(image, place, most)
                _check_work(image, data, place)
                image.load()
                return _turned(_pixels(image, place, colour=colour), image)
        except Image.DecompressionBombError as error:
            raise DataError(
                f"{place}: has more than the {most:,} pixels that an image may have: scale it down"
            ) from error
        except UnidentifiedImageError as error:
            raise DataError(
                f"{place}: not an image, or its header is broken: give a PNG, JPEG, GIF, BMP"
                f"{', WebP, TIFF, PPM or PGM' if is_trusted else ' or WebP'} file"
            ) from error
        except _BROKEN as error:
            reason = visible(str(error))[:200] or type(error).__name__
            raise DataError(
                f"{place}: cannot be decoded: {reason}: copy or save it again"
            ) from error


def fitted(
    pixels: NDArray[np.uint8], height: int, width: int, fit: Literal["resize", "pad"]
) -> NDArray[np.uint8]:
    """Scale an image [H, W, C] to [height, width, C].

    "resize" ignores its shape; "pad" keeps it, centred between bars of black.
    """
    if fit == "resize":
        return _resized(pixels, height, width)
    old_height, old_width, channels = pixels.shape
    if old_height * width > old_width * height:
        inner_height, inner_width = height, _scaled(old_width, height, old_height)
    else:
        inner_height, inner_width = _scaled(old_height, width, old_width), width
    inner = _resized(pixels, inner_height, inner_width)
    if inner.shape[:2] == (height, width):
        return inner
    padded = np.zeros((height, width, channels), np.uint8)
    top, left = (height - inner_height) // 2, (width - inner_width) // 2
    padded[top : top + inner_height, left : left + inner_width] = inner
    return padded


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode an image [H, W, 1] or [H, W, 3] as PNG."""
    file = io.BytesIO()
    _image(pixels).save(file, "PNG")
    return file.getvalue()


def open_regular(path: Path, place: str) -> io.BufferedReader:
    """Open a regular file to read; a directory, FIFO or device is a DataError, like what fails.

    `place` is where its name stands, if not on the command line.
    """
    where = _where(path, place)
    try:
        # Before opening as well: opening some devices has effects.
        _check_regular(path.stat(), where)
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise DataError(f"{where}: cannot be read: {error.strerror}: check its name") from error
    except ValueError as error:  # A NUL, or what the file system's encoding has not.
        raise DataError(f"{where}: not the name of a file: correct it") from error
    try:
        _check_regular(os.fstat(handle), where)
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _where(path: Path, place: str) -> str:
    return place if place == str(path) else f"{place}: {visible(str(path))}"


def _check_regular(status: os.stat_result, where: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "directory" if stat.S_ISDIR(status.st_mode) else "device, FIFO or socket"
        raise DataError(f"{where}: a {kind}, not a regular file: give a file")


def check_pillow() -> None:
    """Raise ConfigError if Pillow is not there."""
    if find_spec("PIL") is None:
        raise ConfigError("reading images needs Pillow: pip install 'headwise[images]'")


def _content(source: Path | bytes, place: str) -> bytes:
    if isinstance(source, bytes):
        _check_bytes(len(source), place)
        return source
    where = _where(source, place)
    with open_regular(source, place) as file:
        size = os.fstat(file.fileno()).st_size
        _check_bytes(size, where)
        try:
            return file.read(size)
        except OSError as error:
            raise DataError(f"{where}: cannot be read: {error.strerror}: copy it again") from error


def _check_bytes(size: int, place: str) -> None:
    if size > MOST_FILE_BYTES:
        raise DataError(
            f"{place}: {size:,} bytes, more than the {MOST_FILE_BYTES:,} that an image file may "
            "have: scale it down"
        )


def _check_pixels(image: "ImageFile", place: str, most: int) -> None:
    width, height = image.size
    if width * height > most:
        raise DataError(
            f"{place}: {width:,} × {height:,} pixels, more than the {most:,} that an image may "
            "have: scale it down"
        )
    if max(width, height) > MOST_SIDE:
        raise DataError(
            f"{place}: {width:,} × {height:,} pixels, more than the {MOST_SIDE:,} that a side may "
            "have: scale it down or cut it"
        )


def _check_work(image: "ImageFile", data: bytes, place: str) -> None:
    """Refuse a file of few pixels that makes the decoder work on many."""
    from PIL.TiffImagePlugin import TILELENGTH, TILEWIDTH, TiffImageFile

    pixels = image.width * image.height
    # Two bytes that pixels never have; a thumbnail in the metadata may, once.
    if image.format in ("JPEG", "MPO") and data.count(b"\xff\xda") * pixels > _MOST_SCANNED:
        raise DataError(f"{place}: a JPEG of too many scans: save it again, as a baseline JPEG")
    if not isinstance(image, TiffImageFile):
        return
    width, length = (image.tag_v2.get(tag, 1) for tag in (TILEWIDTH, TILELENGTH))
    are_ints = isinstance(width, int) and isinstance(length, int)
    if not are_ints or width * length > MOST_PIXELS:
        raise DataError(f"{place}: its tiles are too large: save it again, without tiles")
    tiles = sorted((offset, _area(extents)) for _, extents, offset, _ in image.tile)
    # Pillow reads a tile in pieces as long as it is to the next offset: one byte, if a file says
    # so. A pixel takes at least one bit.
    overlap = any(
        0 < following - offset < area // 8 for (offset, area), (following, _) in pairwise(tiles)
    )
    if overlap or sum(area for _, area in tiles) > _MOST_LAYERS * pixels:
        raise DataError(f"{place}: its strips or tiles overlap: save it again")


def _area(extents: tuple[int, int, int, int] | None) -> int:
    assert extents is not None  # Formats without are not among those that are read.
    left, top, right, bottom = extents
    return (right - left) * (bottom - top)


def _pixels(image: "ImageFile", place: str, *, colour: bool) -> NDArray[np.uint8]:
    """Return what has been loaded as bytes [H, W, C], whatever mode it is in."""
    from PIL import Image

    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        levels = _levels(image, place)[:, :, None]  # [H, W, 1]
        return np.repeat(levels, 3, axis=2) if colour else levels
    flat: Image.Image = image
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        flat = Image.new("RGB", image.size, "white")
        flat.paste(layer, mask=layer)
    elif image.mode not in ("1", "L"):
        flat = image.convert("RGB")  # There is no way from some modes to grey but by RGB.
    mode = "RGB" if colour else "L"
    pixels = np.array(flat if flat.mode == mode else flat.convert(mode))
    return pixels.reshape(*pixels.shape[:2], -1)  # [H, W, C]


def _levels(image: "ImageFile", place: str) -> NDArray[np.uint8]:
    """Scale grey of more than 8 bits to 8: [H, W]."""
    values: NDArray[Any] = np.array(image)
    if image.mode == "F":
        low, high = values.min(), values.max()
        if not (low >= 0 and high <= 1):  # Nor are NaNs.
            raise DataError(
                f"{place}: its pixels are floats from {low:g} to {high:g}, not from 0 to 1: "
                "scale them, or save it with 8 bits"
            )
        values = np.rint(values * 255)
    elif image.mode == "I" and image.format == "TIFF":
        raise DataError(
            f"{place}: its pixels are whole numbers of 32 bits or with a sign, and nothing says "
            "which is white: save it with 8 or 16 bits"
        )
    else:
        if "transparency" in image.info:
            values[values == image.info["transparency"]] = 0xFFFF
        values = (values.astype(np.uint32) + 128) // 257
    return values.astype(np.uint8)


def _turned(pixels: NDArray[np.uint8], image: "ImageFile") -> NDArray[np.uint8]:
    """Turn an image as its EXIF data say; Pillow has already turned a TIFF."""
    # Not with ImageOps.exif_transpose: it also writes the EXIF data anew, and fails if some tag
    # that is none of our business has a wrong type.
    try:
        orientation = image.getexif().get(0x0112, 1)
    except _BROKEN:
        return pixels  # As every viewer shows it.
    turns, is_mirrored = _TURNS.get(orientation, (0, False))
    turned = np.rot90(pixels, turns)
    return np.ascontiguousarray(turned[:, ::-1] if is_mirrored else turned)


def _scaled(side: int, numerator: int, denominator: int) -> int:
    """Scale a side to the nearest whole number of pixels, one at least."""
    return max(1, (2 * side * numerator + denominator) // (2 * denominator))


def _resized(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    if pixels.shape[:2] == (height, width):
        return pixels
    image = _image(pixels)
    from PIL import Image

    resized = np.array(image.resize((width, height), Image.Resampling.BILINEAR))
    return resized.reshape(height, width, -1)


def _image(pixels: NDArray[np.uint8]) -> "Image.Image":
    check_pillow()
    from PIL import Image

    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
