"""Images of lines as strips."""

from typing import Any

import numpy as np
import pytest

from headwise.config import ImageTranscriptionDataConfig
from headwise.data.images import png
from headwise.errors import DataError, RequestError
from headwise.tasks.transcription.lines import LINES, Line, LineEncoder, from_strips, to_strips
from headwise.tasks.vectors.scaling import Scaling


def config(**changes: Any) -> ImageTranscriptionDataConfig:
    values: dict[str, Any] = {"height": 6, "longest_width": 40, "patch": 4, **changes}
    return ImageTranscriptionDataConfig(**values)


def noise(height: int, width: int, channels: int = 1, seed: int = 1) -> Any:
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoder_of(data: ImageTranscriptionDataConfig, *lines: Line) -> LineEncoder:
    encoder = LINES.learn(iter(lines), data, 1, None, lambda *_: None)
    assert encoder is not None
    return encoder


def test_strips_go_from_left_to_right_and_come_together_again() -> None:
    data = config(colour=True)
    line = noise(6, 12, 3).astype(np.float32)
    strips = to_strips(line, 4)
    assert strips.shape == (3, data.patch_width)
    for number in range(3):
        np.testing.assert_array_equal(strips[number], line[:, 4 * number : 4 * number + 4].ravel())
    np.testing.assert_array_equal(from_strips(strips, data), line)


def test_a_line_is_scaled_as_a_whole() -> None:
    line = LINES.read(noise(12, 30), config(), "it")
    assert line.pixels.shape == (6, 15, 1)
    assert not line.is_cut
    assert LINES.read(noise(6, 15)[:, :, 0], config(), "it").pixels.shape == (6, 15, 1)
    assert LINES.read(noise(6, 15), config(colour=True), "it").pixels.shape == (6, 15, 3)


def test_the_last_strip_is_filled_with_the_border() -> None:
    data, pixels = config(), noise(6, 13)
    encoder = encoder_of(data, Line(pixels))
    encoded = encoder.encode(Line(pixels))
    assert len(encoded.values) == 4
    whole = encoder_of(data, Line(pixels)).encode(
        Line(np.concatenate([pixels, *[pixels[:, -1:]] * 3], axis=1))
    )
    np.testing.assert_array_equal(encoded.values, whole.values)
    assert encoder.tokens(encoded) == ("‹class›", "pixel 0", "pixel 4", "pixel 8", "pixel 12")
    picture = encoder.picture(encoded)
    assert (picture.kind, picture.rows, picture.columns) == ("image", 1, 4)


@pytest.mark.parametrize(
    ("height", "width", "is_cut"),
    [(6, 40, False), (6, 41, True), (6, 20_000, True), (1, 20_000, True), (3, 20, False)],
)
def test_a_line_that_is_too_wide_is_cut_before_it_is_scaled(
    height: int, width: int, is_cut: bool
) -> None:
    line = LINES.read(noise(height, width), config(), "it")
    assert line.is_cut == is_cut
    assert line.pixels.shape[0] == 6
    assert line.pixels.shape[1] <= 40
    assert encoder_of(config(), line).encode(line).is_cut == is_cut


def test_a_tall_image_has_one_column_at_least() -> None:
    assert LINES.read(noise(500, 1), config(), "it").pixels.shape == (6, 1, 1)


def test_paths_bytes_and_pixels_are_the_same_line(tmp_path: Any) -> None:
    data, pixels = config(), noise(6, 13)
    encoder = encoder_of(data, Line(pixels))
    (tmp_path / "a.png").write_bytes(png(pixels))
    for given in (str(tmp_path / "a.png"), tmp_path / "a.png", png(pixels), pixels[:, :, 0]):
        np.testing.assert_array_equal(encoder.given(given).pixels, pixels)
    np.testing.assert_array_equal(encoder.received(png(pixels)).pixels, pixels)
    with pytest.raises(RequestError, match="int is no image"):
        encoder.given(3)


def test_shifts_follow_from_the_key_and_keep_the_border() -> None:
    data = config(shift=2)
    lines = [noise(6, 12, seed=2).astype(np.float32), noise(6, 20, seed=3).astype(np.float32)]
    packed = np.concatenate([to_strips(line, 4) for line in lines]), np.array([3, 5])
    once, again, other = (LINES.augmented(packed, data, (1, epoch))[0] for epoch in (0, 0, 1))
    np.testing.assert_array_equal(once, again)
    assert (once != other).any()
    for line, strips in zip(lines, np.split(once, [3]), strict=True):
        shifted = from_strips(strips, data)
        rows, columns = (
            [np.clip(np.arange(size) + by, 0, size - 1) for by in range(-2, 3)]
            for size in line.shape[:2]
        )
        assert any((shifted == line[r][:, c]).all() for r in rows for c in columns)


def test_strips_of_another_size_are_refused() -> None:
    packed = np.zeros((3, 7), dtype=np.float32), np.array([3])
    with pytest.raises(DataError, match="of another size: prepare the data anew"):
        LINES.augmented(packed, config(shift=1), (1, 0))


def test_scales_are_stored(tmp_path: Any) -> None:
    data, pixels = config(), noise(6, 13)
    encoder_of(data, Line(pixels)).save(tmp_path, {"target": {"characters": ["a"]}})
    found = LINES.load(tmp_path, data).encode(Line(pixels)).values
    np.testing.assert_array_equal(found, encoder_of(data, Line(pixels)).encode(Line(pixels)).values)
    scaling = Scaling.learn([pixels])
    assert scaling is not None
    np.testing.assert_allclose(from_strips(found, data)[:, :13], scaling.scaled(pixels))
