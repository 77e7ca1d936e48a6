"""Decoding of images, whatever a file holds, and fitting them to a size."""

import io
import os
import random
import re
import struct
import threading
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from headwise.data import images
from headwise.data.images import MOST_FILE_BYTES, MOST_SIDE, decode_image, fitted, png
from headwise.errors import ConfigError, DataError

PLACE = "faces/1.png"

Tags = dict[int, int | float | bytes | list[int]]


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_file(
    width: int, height: int, bits: int, colour_type: int, rows: bytes = b"", *, before: bytes = b""
) -> bytes:
    """Make a PNG by hand; without rows it has a header and nothing to decode."""
    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(rows) if rows else b"") + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + data


def tiff_file(tags: Tags, data: bytes = b"") -> bytes:
    """Make a TIFF by hand: a tag is one LONG, several, up to 4 BYTEs, or a FLOAT."""
    entries, lists = b"", b""
    end = 8 + len(data) + 2 + 12 * len(tags) + 4
    for tag, value in sorted(tags.items()):
        match value:
            case int():
                entries += struct.pack("<HHII", tag, 4, 1, value)
            case float():
                entries += struct.pack("<HHIf", tag, 11, 1, value)
            case bytes():
                entries += struct.pack("<HHI4s", tag, 1, len(value), value)
            case list():
                entries += struct.pack("<HHII", tag, 4, len(value), end + len(lists))
                lists += struct.pack(f"<{len(value)}I", *value)
    start = struct.pack("<2sHI", b"II", 42, 8 + len(data))
    return start + data + struct.pack("<H", len(tags)) + entries + bytes(4) + lists


GREY_TIFF: Tags = {258: 8, 262: 1}
"""8 bits a pixel, and 0 is black."""


def jpeg_of(width: int, height: int, scans: int) -> bytes:
    """Make a JPEG that claims a size, and has so many scans."""
    content = encoded(Image.new("L", (16, 16), 9), "JPEG", progressive=True)
    frame = content.index(b"\xff\xc2") + 5
    content = content[:frame] + struct.pack(">HH", height, width) + content[frame + 4 :]
    more = scans - content.count(b"\xff\xda")
    return content[:-2] + content[content.rindex(b"\xff\xda") : -2] * more + content[-2:]


def pixel(content: bytes, *, colour: bool = True) -> list[int]:
    """Decode an image that has one pixel."""
    pixels = decode_image(content, PLACE, colour=colour)
    assert pixels.shape == (1, 1, 3 if colour else 1)
    assert pixels.dtype == np.uint8
    values: list[int] = pixels[0, 0].tolist()
    return values


def one(mode: str, value: Any) -> Image.Image:
    return Image.new(mode, (1, 1), value)


def random_pixels(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


# (299·200 + 587·100 + 114·50) / 1000 = 124.2
@pytest.mark.parametrize(
    ("content", "colour", "grey"),
    [
        pytest.param(encoded(one("L", 7), "PNG"), [7, 7, 7], [7], id="grey"),
        pytest.param(encoded(one("RGB", (200, 100, 50)), "PNG"), [200, 100, 50], [124], id="RGB"),
        pytest.param(encoded(one("1", 1), "PNG"), [255, 255, 255], [255], id="one bit"),
        pytest.param(
            png_file(1, 1, 8, 3, b"\0\1", before=chunk(b"PLTE", bytes([1, 2, 3, 200, 100, 50]))),
            [200, 100, 50],
            [124],
            id="palette",
        ),
        # 51/255 = 1/5 of the colour, and 4/5 of white.
        pytest.param(
            encoded(one("RGBA", (200, 100, 50, 51)), "PNG"), [244, 224, 214], [229], id="RGBA"
        ),
        pytest.param(encoded(one("LA", (100, 51)), "PNG"), [224] * 3, [224], id="grey with alpha"),
        pytest.param(encoded(one("RGBA", (9, 9, 9, 0)), "WEBP"), [255] * 3, [255], id="WebP"),
        pytest.param(
            encoded(one("P", 0), "GIF", transparency=0), [255] * 3, [255], id="transparent GIF"
        ),
        pytest.param(
            png_file(1, 1, 8, 0, b"\0\7", before=chunk(b"tRNS", b"\0\7")),
            [255] * 3,
            [255],
            id="transparent grey",
        ),
        pytest.param(
            png_file(
                1,
                1,
                8,
                3,
                b"\0\1",
                before=chunk(b"PLTE", bytes([1, 2, 3, 200, 100, 50])) + chunk(b"tRNS", b"\xff\x33"),
            ),
            [244, 224, 214],
            [229],
            id="palette with alpha",
        ),
        # 16 bits: 257 · 100 + 128 rounds to 100, one more to 101.
        pytest.param(png_file(1, 1, 16, 0, b"\0\x64\xe4"), [100] * 3, [100], id="16 bits, down"),
        pytest.param(png_file(1, 1, 16, 0, b"\0\x64\xe5"), [101] * 3, [101], id="16 bits, up"),
        pytest.param(png_file(1, 1, 16, 0, b"\0\xff\xff"), [255] * 3, [255], id="16 bits, white"),
        pytest.param(
            png_file(1, 1, 16, 0, b"\0\x12\x34", before=chunk(b"tRNS", b"\x12\x34")),
            [255] * 3,
            [255],
            id="16 bits, transparent",
        ),
        pytest.param(
            png_file(1, 1, 16, 2, b"\0\xc8\0\x64\0\x32\0"), [200, 100, 50], [124], id="48 bits"
        ),
        pytest.param(encoded(one("I;16", 25700), "TIFF"), [100] * 3, [100], id="16 bits, TIFF"),
        pytest.param(b"P5 1 1 65535 \x64\x64", [100] * 3, [100], id="PGM of 16 bits"),
        pytest.param(b"P5 1 1 1000 \x01\xf4", [128] * 3, [128], id="PGM up to 1000"),
        pytest.param(b"P2 1 1 10 5", [128] * 3, [128], id="PGM as text"),
        pytest.param(b"P6 1 1 255 \xc8\x64\x32", [200, 100, 50], [124], id="PPM"),
        pytest.param(b"Pf 1 1 -1.0\n" + struct.pack("<f", 0.999), [255] * 3, [255], id="PFM"),
        pytest.param(encoded(one("F", 1.0), "TIFF"), [255] * 3, [255], id="float TIFF"),
        # Ink: 255 − 55, 255 − 155, 255 − 205.
        pytest.param(
            encoded(one("CMYK", (55, 155, 205, 0)), "TIFF"), [200, 100, 50], [124], id="CMYK"
        ),
        pytest.param(encoded(one("YCbCr", (99, 128, 128)), "TIFF"), [99] * 3, [99], id="YCbCr"),
        pytest.param(
            encoded(one("LAB", (255, 128, 128)), "TIFF"), [254, 255, 254], [255], id="LAB"
        ),
        pytest.param(encoded(one("RGB", (200, 100, 50)), "BMP"), [200, 100, 50], [124], id="BMP"),
        pytest.param(encoded(one("L", 80), "JPEG"), [80] * 3, [80], id="JPEG"),
    ],
)
def test_every_mode_becomes_bytes(content: bytes, colour: list[int], grey: list[int]) -> None:
    assert pixel(content, colour=True) == colour
    assert pixel(content, colour=False) == grey


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP", "TIFF"])
def test_of_an_animation_the_first_frame_is_read(kind: str) -> None:
    frames = [Image.new("RGB", (2, 2), colour) for colour in ("red", "lime", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    pixels = decode_image(content, PLACE, colour=True)
    assert pixels.tolist() == [[[255, 0, 0]] * 2] * 2


def with_orientation(image: Image.Image, kind: str, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(image, kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(10))
def test_an_image_is_turned_as_pillow_turns_it(kind: str, orientation: int) -> None:
    content = with_orientation(Image.fromarray(random_pixels(3, 5, 3)), kind, orientation)
    with Image.open(io.BytesIO(content)) as image:
        upright = np.array(ImageOps.exif_transpose(image).convert("RGB"))
    pixels = decode_image(content, PLACE, colour=True)
    np.testing.assert_array_equal(pixels, upright)
    assert pixels.flags.c_contiguous
    assert pixels.flags.writeable


def test_orientation_6_is_a_quarter_turn_to_the_right() -> None:
    image = Image.fromarray(np.array([[1, 2, 3]], np.uint8))
    content = with_orientation(image, "PNG", 6)
    assert decode_image(content, PLACE, colour=False)[:, :, 0].tolist() == [[1], [2], [3]]


def test_broken_exif_data_do_not_turn_the_image() -> None:
    image = Image.fromarray(random_pixels(3, 5))
    content = encoded(image, "PNG", exif=b"Exif\0\0no TIFF header")
    np.testing.assert_array_equal(decode_image(content, PLACE, colour=False)[:, :, 0], image)


# ImageOps.exif_transpose fails on it: it writes the other tags, too.
def test_a_wrong_type_of_another_exif_tag_does_no_harm() -> None:
    entries = struct.pack(">HHIHH", 0x0112, 3, 1, 6, 0) + struct.pack(">HHI4s", 0x8769, 2, 1, b"a")
    exif = b"MM\0*\0\0\0\x08\0\x02" + entries + bytes(4)
    content = encoded(Image.fromarray(random_pixels(3, 5)), "PNG", exif=exif)
    assert decode_image(content, PLACE, colour=True).shape == (5, 3, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an image, or its header is broken: give a PNG"),
        (b"hello", "not an image"),
        (png_file(0, 5, 8, 0), "not an image"),
        (encoded(one("L", 0), "ICO"), "not an image"),  # A format that is not tried.
        (png_file(10_000, 10_000, 8, 2), r"10,000 × 10,000 pixels, more than the 67,108,864 that"),
        (png_file(20_000, 20_000, 8, 2), "has more than the 67,108,864 pixels"),
        (png_file(MOST_SIDE + 1, 1, 8, 0), "65,537 × 1 pixels, more than the 65,536 that a side"),
        (png_file(9, 9, 8, 0), "cannot be decoded: "),
        (png_file(2, 2, 8, 3, b"\0\0\0" * 2), "cannot be decoded: "),  # Without a palette.
        (encoded(Image.new("L", (9, 9)), "JPEG")[:-20], "cannot be decoded: Truncated File Read"),
        (
            encoded(Image.fromarray(random_pixels(99, 99)), "JPEG")[:-20],
            "cannot be decoded: image file is truncated",
        ),
        (encoded(Image.new("L", (9, 9)), "GIF")[:-8], "cannot be decoded: "),
        (encoded(Image.new("L", (9, 9)), "WEBP")[:-20], "cannot be decoded: "),
        (encoded(Image.new("L", (9, 9)), "BMP")[:-20], "cannot be decoded: image file is trunc"),
        (b"P5 3 3 255 12345678", "cannot be decoded: image file is trunc"),
        (
            encoded(Image.fromarray(random_pixels(9, 9)), "TIFF", compression="tiff_lzw")[:90],
            "not an image|cannot be decoded",
        ),
        (jpeg_of(8192, 8192, 40), "a JPEG of too many scans: save it again, as a baseline"),
        (
            tiff_file({**GREY_TIFF, 256: 2, 257: 2, 322: 1 << 14, 323: 1 << 14, 324: 8}, b"1234"),
            "its tiles are too large: save it again, without tiles",
        ),
        (
            tiff_file({**GREY_TIFF, 256: 2, 257: 2, 259: 5, 322: b"ab", 323: 16, 324: 8}, b"1234"),
            "its tiles are too large: save it again, without tiles",
        ),
        (
            tiff_file({**GREY_TIFF, 256: 2, 257: 2, 322: 0xFFFFFFFF, 323: 0, 324: 8}, b"1234"),
            "cannot be decoded: signed integer is greater than maximum",
        ),
        (
            tiff_file({**GREY_TIFF, 256: 2, 257: 2, 278: 2, 273: 8.0}, b"1234"),
            "cannot be decoded: 'float' object cannot be interpreted as an integer",
        ),
        (
            png_file(1, 1, 8, 0, b"\0\7").replace(chunk(b"IEND", b""), chunk(b"iCCP", b"")),
            "cannot be decoded: index out of range",
        ),
        # Strips of 32 bytes, one byte apart.
        (
            tiff_file({**GREY_TIFF, 256: 32, 257: 3, 278: 1, 273: [8, 9, 10]}, bytes(99)),
            "its strips or tiles overlap: save it again",
        ),
        # 10 times the same two strips.
        (
            tiff_file({**GREY_TIFF, 256: 4, 257: 2, 278: 1, 273: [8, 12] * 10}, bytes(8)),
            "its strips or tiles overlap: save it again",
        ),
        (encoded(one("I", 70_000), "TIFF"), "whole numbers of 32 bits or with a sign, and nothing"),
        (encoded(one("F", 1.5), "TIFF"), "floats from 1.5 to 1.5, not from 0 to 1: scale them"),
        (encoded(one("F", -0.5), "TIFF"), "floats from -0.5 to -0.5, not from 0 to 1"),
        (encoded(one("F", float("nan")), "TIFF"), "floats from nan to nan, not from 0 to 1"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"^faces/1.png: .*({message})") as caught:
        decode_image(content, PLACE, colour=True)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_bombs_are_not_taken_for_one() -> None:
    assert decode_image(jpeg_of(16, 16, 40), PLACE, colour=False).tolist() == [[[9]] * 16] * 16
    marks = b"\xff\xda" * 65_536  # As those before the scans of a JPEG.
    assert decode_image(b"P5 512 256 255 " + marks, PLACE, colour=False).tobytes() == marks
    for strips, rows in (([8, 40], range(64)), ([8, 8], [*range(32)] * 2)):
        content = tiff_file({**GREY_TIFF, 256: 32, 257: 2, 278: 1, 273: strips}, bytes(range(64)))
        pixels = decode_image(content, PLACE, colour=False)
        assert pixels.ravel().tolist() == [*rows]
    colours = random_pixels(70, 50, 3)
    for compression in (None, "tiff_lzw"):
        content = encoded(Image.fromarray(colours), "TIFF", compression=compression)
        np.testing.assert_array_equal(decode_image(content, PLACE, colour=True), colours)


# Pillow warns from 89 million pixels on; its limit belongs to the whole process.
@pytest.mark.parametrize("limit", [None, 1000, 10**9])
def test_the_limit_of_pixels_does_not_depend_on_that_of_pillow(
    monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    filters = list(warnings.filters)
    with pytest.raises(DataError, match=r"^faces/1.png: .*more than the 67,108,864"):
        decode_image(png_file(10_000, 10_000, 8, 2), PLACE, colour=True)
    assert limit == Image.MAX_IMAGE_PIXELS
    assert warnings.filters == filters


def test_warnings_of_pillow_are_not_passed_on() -> None:
    animation = chunk(b"acTL", struct.pack(">II", 0, 0))  # An animation of no frames.
    content = png_file(1, 1, 8, 0, b"\0\7", before=animation)
    with pytest.warns(UserWarning, match="Invalid APNG"):
        Image.open(io.BytesIO(content)).close()
    assert pixel(content, colour=False) == [7]


def test_images_are_decoded_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=60)  # Broken if one thread waits for the other.
    open_image = Image.open
    filters = list(warnings.filters)

    def open_together(*args: Any, **kwargs: Any) -> Image.Image:
        together.wait()
        return open_image(*args, **kwargs)

    monkeypatch.setattr(Image, "open", open_together)
    with ThreadPoolExecutor(2) as threads:
        contents = [png(random_pixels(2, 3, 3))] * 2
        found = list(threads.map(lambda each: decode_image(each, PLACE, colour=True), contents))
    for pixels in found:
        np.testing.assert_array_equal(pixels, random_pixels(2, 3, 3))
    assert warnings.filters == filters


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM"])
def test_untrusted_images_are_of_the_formats_of_browsers(kind: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (5, 4), "white").save(file, kind)
    content = file.getvalue()
    assert decode_image(content, PLACE, colour=True).shape == (4, 5, 3)
    if kind in ("TIFF", "PPM"):
        with pytest.raises(DataError, match="give a PNG, JPEG, GIF, BMP or WebP file"):
            decode_image(content, PLACE, colour=True, is_trusted=False)
    else:
        assert decode_image(content, PLACE, colour=True, is_trusted=False).shape == (4, 5, 3)


def test_a_file_is_read_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(random_pixels(2, 3, 3)))
    (tmp_path / "b.png").symlink_to(tmp_path / "a.png")
    pixels = decode_image(tmp_path / "b.png", "table.csv:2", colour=True)
    np.testing.assert_array_equal(pixels, random_pixels(2, 3, 3))


def write_hole(path: Path) -> None:
    path.touch()
    os.truncate(path, MOST_FILE_BYTES + 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "cannot be read: No such file or directory"),
        (lambda path: path.mkdir(), "a directory, not a regular file"),
        (lambda path: os.mkfifo(path), "a device, FIFO or socket, not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "a device, FIFO or socket"),
        (lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links"),
        (write_hole, "134,217,729 bytes, more than the 134,217,728 that"),
        (lambda path: path.write_bytes(b"hello"), "not an image"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, make: Any, message: str) -> None:
    path = tmp_path / "a.png"
    make(path)
    with pytest.raises(DataError, match=f"^{path}: {message}"):
        decode_image(path, str(path), colour=True)
    with pytest.raises(DataError, match=rf"^table\.csv:7: ({path}: )?{message}"):
        decode_image(path, "table.csv:7", colour=True)


@pytest.mark.parametrize("name", ["a\0b.png", "a\ud800.png"])
def test_a_name_that_no_file_can_have(name: str) -> None:
    with pytest.raises(DataError, match=r"^t.csv:7: a\\.*png: not the name of a file: correct it"):
        decode_image(Path(name), "t.csv:7", colour=True)


def test_a_line_feed_in_a_name_does_not_break_the_message() -> None:
    with pytest.raises(DataError, match=r"^t.csv:7: a\\nb.png: cannot be read: No such file"):
        decode_image(Path("a\nb.png"), "t.csv:7", colour=True)


def test_too_many_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = png(random_pixels(1, 1, 1))
    monkeypatch.setattr(images, "MOST_FILE_BYTES", len(content))
    decode_image(content, PLACE, colour=True)
    with pytest.raises(DataError, match=r"^faces/1.png: \d+ bytes, more than the \d+ that"):
        decode_image(content + b"\0", PLACE, colour=True)


SEEDS = [
    encoded(Image.fromarray(random_pixels(9, 7, 3)), "PNG"),
    encoded(Image.fromarray(random_pixels(9, 7)).convert("P"), "PNG", transparency=b"\0\x80"),
    with_orientation(Image.fromarray(random_pixels(9, 7, 3)), "JPEG", 6),
    encoded(Image.fromarray(random_pixels(9, 7)), "GIF"),
    encoded(Image.fromarray(random_pixels(9, 7, 4)), "WEBP"),
    encoded(Image.fromarray(random_pixels(9, 7, 3)), "BMP"),
    with_orientation(Image.fromarray(random_pixels(9, 7, 3)), "TIFF", 5),
    encoded(Image.fromarray(random_pixels(9, 7)), "TIFF", compression="tiff_lzw"),
    b"P5 3 3 999 123456781234567890",
]


@pytest.mark.parametrize("content", SEEDS)
def test_a_damaged_file_is_an_image_or_a_data_error(content: bytes) -> None:
    chance = random.Random(0)
    messages = []
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(chance.choice([1, 2, 4])):
            at = chance.randrange(min(len(damaged), chance.choice([40, len(damaged)])))
            damaged[at] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
        if chance.random() < 0.3:
            del damaged[chance.randrange(len(damaged)) :]
        try:
            pixels = decode_image(bytes(damaged), PLACE, colour=True)
        except DataError as error:
            messages.append(str(error))
        else:
            assert pixels.shape[2] == 3
            assert pixels.dtype == np.uint8
    assert 0 < len(messages) < 60
    assert all(re.fullmatch(f"{PLACE}: .+", message) for message in messages)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), [(3, 4), (20, 31), (1, 1), (7, 50)])
def test_resizing_is_that_of_pillow(height: int, width: int, channels: int) -> None:
    pixels = random_pixels(11, 13, channels)
    expected = np.array(
        Image.fromarray(pixels.squeeze(2) if channels == 1 else pixels).resize(
            (width, height), Image.Resampling.BILINEAR
        )
    ).reshape(height, width, channels)
    np.testing.assert_array_equal(fitted(pixels, height, width, "resize"), expected)


def test_resizing_by_hand() -> None:
    pixels = np.array([[[0], [100]], [[200], [100]]], np.uint8)
    assert fitted(pixels, 1, 1, "resize").tolist() == [[[100]]]
    assert fitted(pixels[:1, :1] + 7, 2, 3, "resize").tolist() == [[[7]] * 3] * 2


@pytest.mark.parametrize(
    ("old", "new", "top", "left", "height", "width"),
    [
        ((2, 4), (4, 4), 1, 0, 2, 4),  # As it is, between bars.
        ((2, 4), (5, 4), 1, 0, 2, 4),  # The odd row is below.
        ((4, 2), (4, 5), 0, 1, 4, 2),
        ((1, 2), (6, 6), 1, 0, 3, 6),  # Scaled up
        ((30, 20), (6, 6), 0, 1, 6, 4),  # and down.
        ((1, 1), (3, 5), 0, 1, 3, 3),
        ((1, 1000), (5, 5), 2, 0, 1, 5),  # One row at least.
        ((1000, 1), (5, 5), 0, 2, 5, 1),
        ((3, 4), (6, 6), 0, 0, 5, 6),  # 4.5 rows are 5.
        ((4, 6), (8, 12), 0, 0, 8, 12),
    ],
)
def test_padding_keeps_the_shape(
    old: tuple[int, int], new: tuple[int, int], top: int, left: int, height: int, width: int
) -> None:
    pixels = np.full((*old, 3), 9, np.uint8)
    padded = fitted(pixels, *new, "pad")
    expected = np.zeros((*new, 3), np.uint8)
    expected[top : top + height, left : left + width] = 9
    np.testing.assert_array_equal(padded, expected)


@pytest.mark.parametrize("channels", [1, 3])
def test_png_can_be_read_back(channels: int) -> None:
    pixels = random_pixels(5, 7, channels)
    decoded = decode_image(png(pixels), PLACE, colour=channels == 3)
    np.testing.assert_array_equal(decoded, pixels)


def test_without_pillow_only_what_needs_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content, pixels = png(random_pixels(2, 2, 1)), random_pixels(2, 2, 1)
    monkeypatch.setattr(images, "find_spec", lambda name: None)
    assert fitted(pixels, 2, 2, "resize") is pixels
    assert fitted(pixels, 2, 2, "pad") is pixels
    assert fitted(pixels, 3, 2, "pad").shape == (3, 2, 1)
    message = r"needs Pillow: pip install 'headwise\[images\]'"
    with pytest.raises(ConfigError, match=message):
        decode_image(content, PLACE, colour=True)
    with pytest.raises(ConfigError, match=message):
        fitted(pixels, 3, 3, "resize")
    with pytest.raises(ConfigError, match=message):
        png(pixels)
