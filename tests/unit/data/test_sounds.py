"""Sounds are decoded, averaged, resampled and cut; whatever else a file has is a DataError."""

import os
import random
import re
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
from numpy.typing import NDArray

from headwise.data import sounds
from headwise.data.sounds import Sound, read_sound, sound_of
from headwise.errors import ConfigError, DataError

RATE = 16_000
PLACE = "corpus.tsv:3"
LOSSLESS = {"WAV": "PCM_16", "FLAC": "PCM_16", "AIFF": "PCM_16", "AU": "PCM_16"}
LOSSY = {"OGG": "VORBIS", "MP3": "MPEG_LAYER_III"}


def sine(seconds: float, hertz: float = 440, rate: int = RATE) -> NDArray[np.float32]:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(seconds * rate) / rate)).astype(np.float32)


def noise(seconds: float) -> NDArray[np.float32]:
    return np.random.default_rng(1).uniform(-0.5, 0.5, round(seconds * RATE)).astype(np.float32)


def encoded(
    samples: NDArray[Any], kind: str = "WAV", subtype: str | None = None, **options: Any
) -> bytes:
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    packed = BytesIO()
    with soundfile.SoundFile(
        packed, "w", RATE, channels, subtype=subtype, format=kind, **options
    ) as file:
        file.write(samples)
    return packed.getvalue()


def read(source: Path | bytes, longest_seconds: float = 10, rate: int = RATE) -> Sound:
    return read_sound(source, PLACE, rate=rate, longest_seconds=longest_seconds)


def untrusted(content: bytes, longest_seconds: float = 10) -> Sound:
    return read_sound(content, PLACE, rate=RATE, longest_seconds=longest_seconds, is_trusted=False)


def array(samples: NDArray[Any], given_rate: int = RATE, longest_seconds: float = 10) -> Sound:
    return sound_of(samples, given_rate, PLACE, rate=RATE, longest_seconds=longest_seconds)


@pytest.mark.parametrize(("kind", "subtype"), [*LOSSLESS.items(), *LOSSY.items()])
def test_a_file_and_its_bytes_are_the_same_sound(tmp_path: Path, kind: str, subtype: str) -> None:
    samples = sine(0.5)
    content = encoded(samples, kind, subtype)
    path = tmp_path / "sound"
    path.write_bytes(content)
    sound = read(path)
    assert sound[1:] == (RATE, False)
    assert sound.samples.dtype == np.float32
    assert sound.samples.shape == samples.shape
    np.testing.assert_allclose(sound.samples, samples, atol=0.1 if kind in LOSSY else 1e-4)
    np.testing.assert_array_equal(sound.samples, read(content).samples)


@pytest.mark.parametrize("kind", [*LOSSLESS, *LOSSY])
def test_the_size_of_blocks_does_not_matter(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded(np.stack([noise(1), sine(1)], axis=1), kind)
    whole = read(content).samples
    monkeypatch.setattr(sounds, "_BLOCK_VALUES", 2000)
    np.testing.assert_allclose(read(content).samples, whole, rtol=0, atol=1e-6)


def test_channels_are_averaged() -> None:
    samples = np.stack([sine(0.1, hertz) for hertz in (200, 300, 500)], axis=1)
    expected = samples.mean(axis=1)
    np.testing.assert_allclose(read(encoded(samples, "WAV", "FLOAT")).samples, expected, atol=1e-7)
    np.testing.assert_allclose(array(samples).samples, expected, atol=1e-7)


def test_another_rate_is_resampled() -> None:
    sound = array(sine(1, rate=44_100), given_rate=44_100)
    assert sound[1:] == (44_100, False)
    assert sound.samples.dtype == np.float32
    assert len(sound.samples) == RATE
    # Filters need some samples to settle at both ends.
    np.testing.assert_allclose(sound.samples[200:-200], sine(1)[200:-200], atol=1e-3)


def test_what_the_new_rate_cannot_hold_is_filtered_out() -> None:
    sound = array(sine(1, hertz=10_000, rate=44_100), given_rate=44_100)
    assert np.abs(sound.samples[200:-200]).max() < 1e-3


@pytest.mark.parametrize("kind", [*LOSSLESS, *LOSSY])
def test_only_what_is_needed_of_a_long_file_is_decoded(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = 0
    read_block = soundfile.SoundFile.read

    def read_and_count(*args: Any, **kwargs: Any) -> NDArray[np.float32]:
        nonlocal decoded
        block: NDArray[np.float32] = read_block(*args, **kwargs)
        decoded += len(block)
        return block

    monkeypatch.setattr(soundfile.SoundFile, "read", read_and_count)
    monkeypatch.setattr(sounds, "_BLOCK_VALUES", 1000)
    content = encoded(noise(5), kind)
    sound = read(content, longest_seconds=0.5)
    assert decoded == 8001
    assert sound.is_cut
    np.testing.assert_array_equal(sound.samples, read(content).samples[:8000])


@pytest.mark.parametrize(("length", "is_cut"), [(1600, False), (1601, True)])
@pytest.mark.parametrize("rate", [RATE, 12_340, 48_000])
def test_a_sound_is_as_long_as_asked_for_at_most(length: int, is_cut: bool, rate: int) -> None:
    sound = read(encoded(noise(1)[:length]), longest_seconds=0.1, rate=rate)
    assert sound.is_cut == is_cut
    assert len(sound.samples) == round(0.1 * rate)
    assert array(noise(1)[:length], longest_seconds=0.1).is_cut == is_cut


def test_damage_behind_the_longest_asked_for_goes_unnoticed() -> None:
    content = encoded(noise(2), "FLAC")
    assert read(content[: len(content) // 2], longest_seconds=0.1).is_cut


@pytest.mark.parametrize("dtype", [np.int16, np.int32, ">i2", np.float16, np.float64])
def test_arrays_of_every_type_have_one_scale(dtype: Any) -> None:
    full = {"int16": 2**15, "int32": 2**31}.get(np.dtype(dtype).name, 1)
    samples = (np.array([0, 0.5, -1, 0.25]) * full).astype(dtype)
    np.testing.assert_array_equal(array(samples).samples, [0, 0.5, -1, 0.25])


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros(9, np.uint8), "samples of type uint8: give floats, int16 or int32"),
        (np.array(["a", None]), "samples of type object"),
        (np.zeros(9, bool), "samples of type bool"),
        (np.array(1.0), r"samples of shape \(\)"),
        (np.zeros((2, 3, 4)), r"samples of shape \(2, 3, 4\): give \[samples\] or"),
        (np.zeros((2, RATE)), "16,000 channels, where 1 to 64"),
        (np.zeros((9, 0)), "0 channels"),
        (np.zeros(0), "has no samples"),
        (np.zeros((0, 2)), "has no samples"),
        (np.array([0, np.nan]), "has samples that are NaN, infinite or far too large"),
        (np.array([0, -np.inf]), "has samples that are NaN, infinite or far too large"),
        (np.array([0, 1e300]), "has samples that are NaN, infinite or far too large"),
    ],
)
def test_other_arrays_are_refused(samples: NDArray[Any], message: str) -> None:
    with pytest.raises(DataError, match=f"^{PLACE}: {message}"):
        array(samples)


@pytest.mark.parametrize("given_rate", [0, -8000, 999, 768_001])
def test_absurd_rates_of_arrays_are_refused(given_rate: int) -> None:
    with pytest.raises(DataError, match=f"^{PLACE}: {given_rate:,} samples a second"):
        array(noise(0.1), given_rate)


@pytest.mark.parametrize("given_rate", [8_000, 44_100, 655_350])
def test_blocks_are_resampled_as_the_whole_is(given_rate: int) -> None:
    samples = np.random.default_rng(2).uniform(-0.5, 0.5, 200_000).astype(np.float32)
    expected = soxr.resample(samples, given_rate, RATE, quality="HQ")
    found = array(samples, given_rate, longest_seconds=60).samples
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_an_untrusted_sound_has_so_many_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sounds, "_MOST_UNTRUSTED", 8_000)
    monkeypatch.setattr(sounds, "_BLOCK_VALUES", 2_000)
    content = encoded(np.zeros((4_001, 2)), "FLAC")
    assert len(read(content).samples) == 4_001
    with pytest.raises(DataError, match=f"^{PLACE}: has more than 4,000 samples: cut it"):
        untrusted(content)
    assert len(untrusted(content, longest_seconds=0.2).samples) == 3_200
    assert len(untrusted(encoded(np.zeros((4_000, 2)), "FLAC")).samples) == 4_000


@pytest.mark.parametrize("kind", [*LOSSLESS, *LOSSY])
def test_an_untrusted_sound_is_of_one_of_four_formats(kind: str) -> None:
    content = encoded(sine(0.5), kind)
    if kind in ("AIFF", "AU"):
        with pytest.raises(DataError, match="format: give WAV, FLAC, OGG or MP3"):
            untrusted(content)
    else:
        np.testing.assert_array_equal(untrusted(content).samples, read(content).samples)


def test_another_format_behind_a_tag_is_refused() -> None:
    tag = b"ID3\x04\0\0\0\0\0\0"
    with pytest.raises(DataError, match="sound file of a known format|cannot be decoded"):
        untrusted(tag + encoded(sine(0.5), "AU"))


def test_too_few_samples_to_resample_are_refused() -> None:
    with pytest.raises(DataError, match=f"^{PLACE}: has no samples, or too few to resample"):
        array(np.ones(1), given_rate=48_000)


def wav(body: bytes, *, rate: int = RATE, channels: int = 1, claimed: int | None = None) -> bytes:
    """Write a 16-bit WAV file by hand, with whatever header."""
    size = len(body) if claimed is None else claimed
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", min(36 + size, 2**32 - 1), b"WAVE", b"fmt ", 16, 1, channels,
        rate, 2 * rate * channels % 2**32, 2 * channels, 16, b"data", size,
    ) + body  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a sound file of a known format: convert it"),
        (b"A line of text.\n" * 100, "not a sound file of a known format"),
        (b"\x80\x04cposix\nsystem\n", "not a sound file of a known format"),
        (b"fLaC" + bytes(100), "cannot be decoded, as it is damaged"),
        (wav(b"")[:20], "cannot be decoded, as it is damaged"),
        (wav(b""), "has no samples"),
        (wav(b"", claimed=32_000), "has no samples"),
        (wav(bytes(3200), rate=999), "999 samples a second, where 1,000 to 768,000 are"),
        (wav(bytes(3200), rate=2_000_000_000), "2,000,000,000 samples a second"),
        (wav(bytes(3200), rate=4_294_967_295), "cannot be decoded"),
        (wav(bytes(130), channels=65), "65 channels, where 1 to 64 are possible: mix it down"),
        (wav(bytes(3200), claimed=32_000), "cut short or damaged: has 1,600 of the 16,000 samples"),
        (encoded(np.array([0, np.nan]), "WAV", "FLOAT"), "has samples that are NaN"),
        (encoded(np.array([0, np.inf]), "WAV", "FLOAT"), "has samples that are NaN, infinite"),
        (encoded(np.array([0, 1e300]), "WAV", "DOUBLE"), "has samples that are NaN, infinite"),
    ],
    # Not the bytes, in which libsndfile notes the time: workers must collect the same tests.
    ids=lambda value: value if isinstance(value, str) else "sound",
)  # fmt: skip
def test_what_is_no_sound_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"^{PLACE}: {message}[^\n]*$"):
        read(content)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("WAV", "cut short or damaged"),
        ("AIFF", "cut short or damaged"),
        ("AU", "cut short or damaged"),
        ("FLAC", "cannot be decoded, as it is damaged"),
        ("OGG", "the end is damaged or missing"),
        ("MP3", "cut short or damaged"),
    ],
)
@pytest.mark.parametrize("share", [0.6, 0.9])
def test_the_first_part_of_a_file_is_refused(kind: str, message: str, share: float) -> None:
    content = encoded(noise(3), kind)
    with pytest.raises(DataError, match=f"^{PLACE}: {message}[^\n]*$"):
        read(content[: round(share * len(content))])


@pytest.mark.parametrize("claimed", [0x7FFFF000, 0xFFFFFFFF])
def test_a_header_from_a_pipe_may_not_know_the_length(claimed: int) -> None:
    assert len(read(wav(bytes(3200), claimed=claimed)).samples) == 1600
    flac = bytearray(encoded(noise(1), "FLAC"))
    flac[21:26] = bytes([flac[21] & 0xF0, 0, 0, 0, 0])  # 36 bits: the number of samples.
    assert len(read(bytes(flac)).samples) == RATE


def test_a_header_may_claim_a_little_too_much() -> None:
    assert len(read(wav(bytes(3200), claimed=3244)).samples) == 1600


def without_tag(mp3: bytes) -> bytes:
    """Take off the first frame, which has no sound but the length of the others."""
    return mp3[mp3.index(mp3[:2], 2) :]


def mp3_without_length(*parts: NDArray[np.float32]) -> bytes:
    """Encode parts with as many bits as each needs: the first lets libsndfile estimate the rest."""
    samples = np.concatenate(parts)
    return without_tag(encoded(samples, "MP3", compression_level=0.5, bitrate_mode="VARIABLE"))


def test_an_mp3_whose_length_is_estimated_too_long_is_read_to_its_end() -> None:
    samples = read(mp3_without_length(np.zeros(2 * RATE, np.float32), noise(2))).samples
    assert len(samples) == pytest.approx(4 * RATE, abs=2000)


@pytest.mark.parametrize(
    "content",
    [
        mp3_without_length(noise(1), np.zeros(4 * RATE, np.float32)),
        2 * encoded(noise(0.5), "MP3"),
    ],
    ids=["estimated too short", "joined"],
)
def test_an_mp3_that_libsndfile_would_read_in_part_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=f"^{PLACE}: an MP3 that goes on after its end"):
        read(content)


def test_tags_of_an_mp3_are_no_sound() -> None:
    mp3 = encoded(noise(1), "MP3")
    picture = bytes(5000)
    size = bytes([len(picture) >> 7, len(picture) & 0x7F])
    tagged = b"ID3\x03\0\0\0\0" + size + picture + mp3 + b"TAG" + bytes(125)
    np.testing.assert_array_equal(read(tagged).samples, read(mp3).samples)
    with pytest.raises(DataError, match="cut short or damaged"):
        read(tagged[:-2000])


def fault_of(content: bytes) -> str | None:
    try:
        assert np.isfinite(read(content).samples).all()
    except DataError as error:
        return str(error)
    return None


def test_damage_anywhere_is_a_data_error_or_none() -> None:
    generator = random.Random(1)
    whole = [
        encoded(noise(0.1), kind, subtype)
        for kind, subtype in [*LOSSLESS.items(), *LOSSY.items(), ("OGG", "OPUS"), ("W64", None)]
    ]
    faults = set()
    for _ in range(1000):
        content = bytearray(generator.choice(whole))
        for _ in range(generator.randint(1, 5)):
            place = generator.randrange(generator.choice([300, len(content)]))
            content[place] = generator.randrange(256)
        fault = fault_of(bytes(content[: generator.randrange(len(content) * 2)]))
        assert fault is None or re.fullmatch(f"{PLACE}: .+", fault)
        faults.add(fault)
    assert len(faults) > 3


def missing(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (missing, "cannot be read: No such file or directory"),
        (Path.mkdir, "is a directory: give a sound file"),
        (os.mkfifo, "is a device or FIFO: give a sound file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device or FIFO"),
        (lambda path: path.symlink_to(path), "cannot be read: .*symbolic"),
    ],
)
def test_what_is_no_file_is_named(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "sound.wav"
    make(path)
    with pytest.raises(DataError, match=f"^{PLACE}: {path}: {message}"):
        read(path)
    with pytest.raises(DataError, match=f"^{path}: {message}"):
        read_sound(path, str(path), rate=RATE, longest_seconds=1)


def test_a_name_with_a_nul_is_refused() -> None:
    with pytest.raises(DataError, match=f"^{PLACE}: a\0b: cannot be read: embedded null byte"):
        read(Path("a\0b"))


def test_without_the_libraries_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sounds, "find_spec", lambda name: None if name == "soxr" else "found")
    message = r"needs soundfile and soxr: pip install 'headwise\[audio\]'"
    with pytest.raises(ConfigError, match=message):
        read(encoded(noise(0.1)))
    with pytest.raises(ConfigError, match=message):
        array(noise(0.1), given_rate=8000)
    assert len(array(noise(0.1)).samples) == 1600
