"""Images and sounds of strangers: whatever they hold, an array or an error."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import strategies as st

from headwise.data.image_arrays import read_image_arrays
from headwise.data.images import decode_image, png
from headwise.data.sounds import read_sound
from tests.fuzz.conftest import Fuzz
from tests.fuzz.contract import result_or_refusal
from tests.fuzz.mutations import mutated

PIXELS = np.random.default_rng(1).integers(0, 255, (9, 7, 3), dtype=np.uint8)


def image(kind: str) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, kind)
    return file.getvalue()


def sound(kind: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.sin(np.arange(900) * 0.2) * 0.5, 8_000, format=kind)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM"])
def test_images(fuzz: Fuzz, kind: str) -> None:
    def read(content: bytes) -> None:
        result_or_refusal(lambda: decode_image(content, "it", colour=True))

    fuzz(mutated(image(kind)) | st.binary(), read)


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "AIFF"])
def test_sounds(fuzz: Fuzz, kind: str) -> None:
    def read(content: bytes) -> None:
        result_or_refusal(lambda: read_sound(content, "it", rate=8_000, longest_seconds=1.0))

    fuzz(mutated(sound(kind)) | st.binary(), read)


@pytest.mark.parametrize("kind", ["idx", "npz"])
def test_arrays_of_images(fuzz: Fuzz, kind: str, tmp_path: Path) -> None:
    grey = PIXELS.transpose(2, 0, 1)
    if kind == "idx":
        path = tmp_path / "a-images-idx3-ubyte"
        valid = struct.pack(">IIII", 0x803, 3, 9, 7) + grey.tobytes()
        labels = tmp_path / "a-labels-idx1-ubyte"
        labels.write_bytes(struct.pack(">II", 0x801, 3) + bytes(3))
    else:
        path = tmp_path / "a.npz"
        file = io.BytesIO()
        np.savez_compressed(file, images=grey, labels=np.array(["a", "b", "c"]))
        valid = file.getvalue()

    def read(content: bytes) -> None:
        path.write_bytes(content)
        result_or_refusal(lambda: read_image_arrays(path))

    fuzz(mutated(valid) | st.binary(), read)


def test_what_is_not_damaged_is_read() -> None:
    assert np.array_equal(decode_image(png(PIXELS), "it", colour=True), PIXELS)
    assert len(read_sound(sound("FLAC"), "it", rate=8_000, longest_seconds=1.0).samples) == 900
