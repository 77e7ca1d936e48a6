"""Images and sounds as vectors: patches, frames, scaling, and what training changes at random."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from headwise.config import (
    AudioClassificationDataConfig,
    ImageClassificationDataConfig,
    Vocab,
)
from headwise.data.images import png
from headwise.data.tokenizer import save_streams
from headwise.errors import ConfigError, DataError, RequestError
from headwise.tasks.vectors.audio import AUDIO, AudioEncoder, LogMel
from headwise.tasks.vectors.images import IMAGES, ImageEncoder, from_patches, to_patches
from headwise.tasks.vectors.scaling import Scaling, padded_vectors

GREY = ImageClassificationDataConfig(height=6, width=9, patch=3, colour=False)
COLOUR = ImageClassificationDataConfig(height=6, width=9, patch=3)
SOUND = AudioClassificationDataConfig(num_mels=5, stack=2)


def images(count: int, data: ImageClassificationDataConfig, seed: int = 1) -> NDArray[np.float32]:
    shape = count, data.height, data.width, data.channels
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def flat(patches: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    count, number, _ = patches.shape
    return patches.reshape(count * number, -1), np.full(count, number)


@pytest.mark.parametrize("data", [GREY, COLOUR])
def test_patches_go_row_by_row_and_back(data: ImageClassificationDataConfig) -> None:
    given = images(4, data)
    patches = to_patches(given, data.patch)
    assert patches.shape == (4, 6, 9 * data.channels)
    np.testing.assert_array_equal(patches[2, 4], given[2, 3:6, 3:6].reshape(-1))
    np.testing.assert_array_equal(from_patches(patches, data), given)
    unfolded = torch.nn.functional.unfold(torch.from_numpy(given).permute(0, 3, 1, 2), 3, stride=3)
    channels_last = unfolded.view(4, data.channels, 9, 6).permute(0, 3, 2, 1).reshape(4, 6, -1)
    np.testing.assert_array_equal(patches, channels_last.numpy())


def test_scaling_has_mean_0_and_deviation_1_and_goes_back() -> None:
    generator = np.random.default_rng(3)
    arrays = [generator.normal((5, -2, 7), (1, 3, 0), (n, 4, 3)) for n in (3, 8, 11)]
    scaling = Scaling.learn(iter(arrays))
    assert scaling is not None
    scaled = np.concatenate([scaling.scaled(each).reshape(-1, 3) for each in arrays])
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(0), (1, 1, 0), atol=1e-6)
    np.testing.assert_allclose(scaling.restored(scaling.scaled(arrays[0])), arrays[0], atol=1e-5)
    assert Scaling.learn(iter([])) is None


@pytest.mark.parametrize(
    "table",
    [
        [],
        {"mean": [0.0] * 5},
        {"mean": [0.0] * 5, "deviation": [1.0] * 4},
        {"mean": [0.0] * 5, "deviation": [1.0] * 4 + [float("inf")]},
        {"mean": ["0"] * 5, "deviation": [1.0] * 5},
    ],
)
def test_a_table_of_means_is_checked(tmp_path: Path, table: object) -> None:
    save_streams(tmp_path, {}, {"audio": table}, kinds={"audio": "frames"})
    with pytest.raises(DataError, match="not the means and deviations of 5 components"):
        AUDIO.load(tmp_path, SOUND)


def test_a_deviation_of_nothing_is_refused(tmp_path: Path) -> None:
    table = {"mean": [0.0] * 5, "deviation": [0.0] * 5}
    save_streams(tmp_path, {}, {"audio": table}, kinds={"audio": "frames"})
    with pytest.raises(DataError, match="a deviation is not above 0"):
        AUDIO.load(tmp_path, SOUND)


def test_a_shift_moves_the_whole_image_and_repeats_its_edge() -> None:
    data = ImageClassificationDataConfig(height=6, width=9, patch=3, colour=False, shift=2)
    given = images(50, data)
    changed, _ = IMAGES.augmented(flat(to_patches(given, 3)), data, (1, 0))
    found = from_patches(changed.reshape(50, 6, -1), data)
    seen = set()
    for before, after in zip(given, found, strict=True):
        wide = np.pad(before, ((2, 2), (2, 2), (0, 0)), mode="edge")
        matches = [
            (down, right)
            for down in range(5)
            for right in range(5)
            if np.array_equal(wide[down : down + 6, right : right + 9], after)
        ]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) > 12, "of 25 shifts, most are drawn"


def test_half_of_the_images_are_mirrored() -> None:
    data = ImageClassificationDataConfig(height=6, width=9, patch=3, flip=True)
    given = images(200, data)
    changed, _ = IMAGES.augmented(flat(to_patches(given, 3)), data, (1, 0))
    found = from_patches(changed.reshape(200, 6, -1), data)
    mirrored = [np.array_equal(a, b[:, ::-1]) for a, b in zip(given, found, strict=True)]
    same = [np.array_equal(a, b) for a, b in zip(given, found, strict=True)]
    assert all(a != b for a, b in zip(mirrored, same, strict=True))
    assert 60 < sum(mirrored) < 140


def test_blanks_are_of_the_lengths_that_the_config_says() -> None:
    data = AudioClassificationDataConfig(
        num_mels=10,
        stack=2,
        time_masks=1,
        time_mask_share=0.25,
        frequency_masks=1,
        frequency_mask_share=0.3,
    )
    lengths = np.array([20, 8, 40])
    given = np.ones((68, 20), dtype=np.float32)
    changed, same = AUDIO.augmented((given, lengths), data, (1, 0))
    assert (same == lengths).all()
    assert given.all(), "what is stored stays as it is"
    for part, length in zip(np.split(changed, [20, 28]), lengths, strict=True):
        whole = ~part.any(1)
        assert whole.sum() <= length // 4
        bands = part[~whole].reshape(-1, 2, 10)
        blank = ~bands.any((0, 1))
        assert blank.sum() <= 3
        assert (bands[:, :, ~blank] == 1).all()


@pytest.mark.parametrize(
    ("kind", "data", "values", "lengths"),
    [
        (
            IMAGES,
            ImageClassificationDataConfig(height=6, width=9, patch=3, shift=2, flip=True),
            np.random.default_rng(1).standard_normal((24, 27)).astype(np.float32),
            np.full(4, 6),
        ),
        (
            AUDIO,
            AudioClassificationDataConfig(num_mels=10, time_masks=2, frequency_masks=2),
            np.random.default_rng(1).standard_normal((60, 20)).astype(np.float32),
            np.array([20, 40]),
        ),
    ],
)
def test_what_is_changed_follows_from_the_key_and_the_examples(
    kind: Any, data: Any, values: NDArray[np.float32], lengths: NDArray[np.int64]
) -> None:
    first, _ = kind.augmented((values, lengths), data, (1, 0))
    np.testing.assert_array_equal(kind.augmented((values, lengths), data, (1, 0))[0], first)
    assert not np.array_equal(kind.augmented((values, lengths), data, (1, 1))[0], first)
    assert not np.array_equal(kind.augmented((values, lengths), data, (2, 0))[0], first)
    # Whatever batches the examples are in.
    ends = np.cumsum(lengths)
    alone = [
        kind.augmented((values[end - length : end], lengths[n : n + 1]), data, (1, 0))[0]
        for n, (end, length) in enumerate(zip(ends, lengths, strict=True))
    ]
    np.testing.assert_array_equal(np.concatenate(alone), first)


def test_without_changes_the_stored_values_are_used_as_they_are() -> None:
    packed = np.ones((6, 9), dtype=np.float32), np.array([6])
    assert IMAGES.augmented(packed, GREY, (1, 0)) is packed
    assert AUDIO.augmented(packed, SOUND, (1, 0)) is packed


def test_frames_are_joined_and_the_last_position_is_filled_up() -> None:
    frames = np.arange(35, dtype=np.float32).reshape(7, 5)
    encoder = AudioEncoder(SOUND, Scaling(np.zeros(5), np.ones(5)))
    encoded = encoder.encode(LogMel(frames, is_cut=True, given_rate=44_100))
    assert encoded.values.shape == (4, 10)
    np.testing.assert_array_equal(encoded.values[1], np.arange(10, 20))
    np.testing.assert_array_equal(encoded.values[3], [*range(30, 35), 0, 0, 0, 0, 0])
    assert encoded.is_cut
    assert encoded.changes == ("resampled to 16,000 Hz (data.rate)",)
    assert encoder.encode(LogMel(frames, is_cut=False, given_rate=16_000)).changes == ()
    assert encoder.tokens(encoded) == ("‹class›", "0.00 s", "0.02 s", "0.04 s", "0.06 s")


def test_a_sound_twice_as_loud_is_the_same_sound() -> None:
    encoder = AudioEncoder(SOUND, Scaling(np.zeros(5), np.ones(5)))
    samples = np.random.default_rng(1).standard_normal(4_000) * 0.1
    first, second = (encoder.encode(encoder.given((n * samples, 16_000))) for n in (1, 2))
    np.testing.assert_allclose(first.values, second.values, atol=1e-4)


@pytest.mark.parametrize(
    "rate", [float("nan"), float("inf"), -8_000, 0, 8_000.5, True, "8000", np.float32("nan")]
)
def test_a_rate_that_is_no_whole_number_is_refused(rate: Any) -> None:
    encoder = AudioEncoder(SOUND, Scaling(np.zeros(5), np.ones(5)))
    with pytest.raises(RequestError, match="is not a whole number of samples a second"):
        encoder.given((np.ones(4_000), rate))


def test_pixels_become_what_the_model_reads_whatever_they_come_as(tmp_path: Path) -> None:
    encoder = ImageEncoder(GREY, Scaling(np.array([100.0]), np.array([50.0])))
    pixels = np.random.default_rng(2).integers(0, 255, (6, 9, 1), dtype=np.uint8)
    (tmp_path / "a.png").write_bytes(png(pixels))
    expected = to_patches(((pixels - 100.0) / 50.0)[None].astype(np.float32), 3)[0]
    forms = [pixels, pixels[:, :, 0], png(pixels), tmp_path / "a.png", str(tmp_path / "a.png")]
    for each in forms:
        np.testing.assert_allclose(encoder.encode(encoder.given(each)).values, expected, atol=1e-6)
    in_colour = ImageEncoder(COLOUR, Scaling(np.zeros(3), np.ones(3)))
    repeated = in_colour.encode(in_colour.given(pixels)).values.reshape(6, 9, 3)
    assert (repeated == repeated[:, :, :1]).all()
    np.testing.assert_allclose(
        encoder.encode(encoder.given(np.repeat(pixels, 3, 2))).values, expected, atol=1e-6
    )


def test_the_picture_of_an_image_is_the_image() -> None:
    encoder = ImageEncoder(COLOUR, Scaling(np.array([90.0, 80, 70]), np.array([50.0, 40, 30])))
    pixels = np.random.default_rng(2).integers(0, 255, (6, 9, 3), dtype=np.uint8)
    picture = encoder.picture(encoder.encode(pixels))
    assert (picture.kind, picture.rows, picture.columns) == ("image", 2, 3)
    assert picture.png == png(pixels)
    assert encoder.tokens(encoder.encode(pixels))[4] == "row 2, column 1"


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.zeros((6, 9)), r"float64 of shape \[6, 9\] is no image: give bytes"),
        (np.zeros((6, 9, 4), np.uint8), "4 colours: an image has 1 or 3"),
        (np.zeros((6,), np.uint8), "is no image"),
        (np.zeros((0, 9), np.uint8), "is no image"),
    ],
)
def test_arrays_that_are_no_images_are_refused(pixels: NDArray[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        IMAGES.read(pixels, GREY, "here")


def test_vectors_of_different_lengths_are_padded_with_zeros() -> None:
    values = np.arange(1, 13, dtype=np.float32).reshape(6, 2)
    rows, positions = padded_vectors((values, np.array([2, 4])))
    assert rows.shape == (2, 4, 2)
    assert rows[0].tolist() == [[1, 2], [3, 4], [0, 0], [0, 0]]
    assert positions.tolist() == [3, 5]


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (ImageClassificationDataConfig, {"width": 30}, r"data\.width = 30 must be a multiple of"),
        (
            ImageClassificationDataConfig,
            {"width": 9_008, "height": 9_008},
            r"data\.height × data\.width = 81,144,064 must be at most 16,777,216",
        ),
        (
            ImageClassificationDataConfig,
            {"patch": 1, "width": 300},
            r"the number of patches = 67,200 must be at most 65,535",
        ),
        (
            ImageClassificationDataConfig,
            {"patch": 1_000, "width": 1_000, "height": 1_000},
            r"data\.patch × data\.patch × colours = 3,000,000 must be at most 1,048,576",
        ),
        (ImageClassificationDataConfig, {"shift": 224}, r"data\.shift = 224 must be at most 223"),
        (AudioClassificationDataConfig, {"fft": 401}, r"data\.fft = 401 must be even"),
        (AudioClassificationDataConfig, {"hop": 500}, r"data\.hop = 500 must be at most 400"),
        (AudioClassificationDataConfig, {"longest_seconds": 0}, r"data\.longest_seconds = 0"),
        (AudioClassificationDataConfig, {"time_mask_share": 2.0}, r"data\.time_mask_share = 2\.0"),
    ],
)
def test_settings_out_of_range_are_named(kind: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**values)


def test_a_source_of_vectors_has_no_ids() -> None:
    with pytest.raises(ConfigError, match=r"vocab\.source_size = 9 must be 0 where the source is"):
        Vocab(source_size=9, target_size=3, source_width=4)
