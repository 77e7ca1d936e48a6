"""Sounds from files, bytes and arrays: one channel, at the rate asked for, of bounded length.

libsndfile decodes (through soundfile), soxr resamples. What is wrong with a sound is a one-line
DataError that begins with the place it came from. N samples, C channels.
"""

import math
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from io import BytesIO, FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise.errors import ConfigError, DataError

_RATES = (1_000, 768_000)
"""Samples a second, from the least that carries a voice to the most that sound cards record."""

_MOST_CHANNELS = 64

_LOUDEST = 2.0**31
"""The largest sample. Full scale is 1, but some files of floats hold the numbers of int32."""

_BLOCK_VALUES = 1 << 16
"""Values decoded at a time, of all channels together."""

_MOST_UNTRUSTED = 1 << 26
"""Values decoded of an untrusted sound, of all channels together: twelve minutes of stereo as on a
compact disc. A small file of silence may hold hours at 655 kHz."""

_UNTRUSTED = ("WAV", "WAVEX", "FLAC", "OGG", "MP3")
"""The formats of untrusted sounds, as libsndfile names them."""

_SLACK = 0.1
"""Seconds that may be missing of what a header claims: some encoders count their own delay."""

_UNKNOWN_BYTES = 0x7FFF0000
"""A program that writes into a pipe claims so many bytes or more, as it knows no better."""

_UNKNOWN_FRAMES = 1 << 62
"""libsndfile has more where a header claims nothing, as that of FLAC from a pipe."""

_FOUND_LESS = re.compile(r"(?:data|Data Size|SSND)\s*: (\d+) \(should be (\d+)\)")
"""How libsndfile logs the bytes that a WAV, AU or AIFF header claims, and those that are there."""

_UNRECOGNISED = 1
"""SF_ERR_UNRECOGNISED_FORMAT of sndfile.h."""


class Sound(NamedTuple):
    """A sound of one channel."""

    samples: NDArray[np.float32]
    """[N], at the rate asked for. Full scale is 1."""
    given_rate: int
    """Samples a second of the file or array: if not the rate asked for, it was resampled."""
    is_cut: bool
    """Whether it was longer than asked for, and the rest left out."""


def read_sound(
    source: Path | bytes,
    place: str,
    *,
    rate: int,
    longest_seconds: float,
    is_trusted: bool = True,
) -> Sound:
    """Decode a file, or the bytes of one: WAV, FLAC, OGG, MP3 or what else libsndfile knows.

    Several channels are averaged. What follows `longest_seconds` is neither decoded nor checked. An
    untrusted sound must have fewer samples, and be of one of the four formats.
    """
    check_installed()
    import soundfile

    with _opened(source, place) as stream:
        if not is_trusted:
            _check_start(stream, place)
        try:
            handle = stream.fileno() if isinstance(stream, FileIO) else stream
            with soundfile.SoundFile(handle, closefd=False) as file:
                if not is_trusted and file.format not in _UNTRUSTED:
                    raise _other_format(place)
                _check_form(file.samplerate, file.channels, place)
                longest = math.floor(longest_seconds * file.samplerate)
                most = None if is_trusted else _MOST_UNTRUSTED // file.channels
                blocks = _decoded(file, stream, place, longest, most)
                return _sound(blocks, longest, file.samplerate, place, rate)
        except soundfile.LibsndfileError as error:
            if error.code == _UNRECOGNISED:
                raise DataError(
                    f"{place}: not a sound file of a known format: convert it to WAV or FLAC"
                ) from error
            raise DataError(
                f"{place}: cannot be decoded, as it is damaged, cut short or of an unknown "
                "encoding: replace it, convert it to WAV or FLAC, or leave it out"
            ) from error


def sound_of(
    samples: NDArray[Any], given_rate: int, place: str, *, rate: int, longest_seconds: float
) -> Sound:
    """Check, average and resample an array of floats, int16 or int32, [N] or [N, C]."""
    if samples.dtype.type in (np.int16, np.int32):
        full_scale = 2.0 ** (8 * samples.itemsize - 1)
    elif np.issubdtype(samples.dtype, np.floating):
        full_scale = 1.0
    else:
        raise DataError(f"{place}: samples of type {samples.dtype}: give floats, int16 or int32")
    if samples.ndim == 1:
        samples = samples[:, None]  # [N, 1]
    if samples.ndim != 2:
        raise DataError(
            f"{place}: samples of shape {samples.shape}: give [samples] or [samples, channels]"
        )
    _check_form(given_rate, samples.shape[1], place)
    longest = math.floor(longest_seconds * given_rate)
    size = _BLOCK_VALUES // samples.shape[1]
    blocks = (
        samples[start : start + size].astype(np.float64) / full_scale
        for start in range(0, min(len(samples), longest + 1), size)
    )
    return _sound(blocks, longest, given_rate, place, rate)


def _sound(
    blocks: Iterable[NDArray[Any]], longest: int, given_rate: int, place: str, rate: int
) -> Sound:
    """Make a sound of blocks [N, C], which end somewhere beyond `longest` if there is more."""
    parts = [np.empty(0, np.float32)]
    length = 0
    # Block by block: at the rate of the file, they might fill the memory together.
    resample = _resampler(given_rate, rate)
    for block in blocks:
        parts.append(resample(_mono(block[: longest - length], place), False))
        length += len(block)
    parts.append(resample(np.empty(0, np.float32), True))
    samples = np.concatenate(parts)
    if not len(samples):
        raise DataError(f"{place}: has no samples, or too few to resample: leave it out")
    return Sound(samples, given_rate, is_cut=length > longest)


def _mono(block: NDArray[Any], place: str) -> NDArray[np.float32]:
    """Average the channels of samples [N, C], once they are found to be proper numbers."""
    if not (np.abs(block) <= _LOUDEST).all():  # Nor is NaN.
        raise DataError(
            f"{place}: has samples that are NaN, infinite or far too large: record or convert it "
            "anew, or leave it out"
        )
    mono: NDArray[np.float64] = block.mean(axis=1, dtype=np.float64)
    return mono.astype(np.float32)


def _resampler(
    given_rate: int, rate: int
) -> Callable[[NDArray[np.float32], bool], NDArray[np.float32]]:
    """Return what resamples blocks one after another, and is told which is the last."""
    if given_rate == rate:
        return lambda block, _: block
    check_installed()
    import soxr

    stream = soxr.ResampleStream(given_rate, rate, 1, dtype="float32", quality="HQ")

    def resample(block: NDArray[np.float32], is_last: bool) -> NDArray[np.float32]:
        resampled: NDArray[np.float32] = stream.resample_chunk(block, last=is_last)
        return resampled

    return resample


def check_installed() -> None:
    """Raise ConfigError if the libraries that read and resample sounds are not there."""
    if not all(map(find_spec, ("soundfile", "soxr"))):
        raise ConfigError("sound needs soundfile and soxr: pip install 'headwise[audio]'")


def _check_form(given_rate: int, num_channels: int, place: str) -> None:
    least, most = _RATES
    if not least <= given_rate <= most:
        raise DataError(
            f"{place}: {given_rate:,} samples a second, where {least:,} to {most:,} are possible: "
            "correct the header, or leave it out"
        )
    if not 1 <= num_channels <= _MOST_CHANNELS:
        raise DataError(
            f"{place}: {num_channels:,} channels, where 1 to {_MOST_CHANNELS} are possible: "
            "mix it down, or leave it out"
        )


class _Bytes(BytesIO):
    """Bytes that libsndfile reads as a file."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move as lseek does: a place before the start, as a damaged file may name, is ignored."""
        try:
            return super().seek(offset, whence)
        except (ValueError, OverflowError):
            return self.tell()


def _opened(source: Path | bytes, place: str) -> FileIO | _Bytes:
    if isinstance(source, bytes):
        return _Bytes(source)
    named = "" if str(source) in place else f"{source}: "
    try:
        if stat.S_ISREG(source.stat().st_mode):  # Opening a FIFO or a device may never return.
            return FileIO(source)
    except (OSError, ValueError) as error:  # ValueError: the name has a NUL.
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{place}: {named}cannot be read: {reason}") from error
    kind = "a directory" if source.is_dir() else "a device or FIFO"
    raise DataError(f"{place}: {named}is {kind}: give a sound file")


def _check_start(stream: FileIO | _Bytes, place: str) -> None:
    """Refuse other formats than four before libsndfile looks at them."""
    start = stream.read(12)
    stream.seek(0)
    is_wav = start.startswith(b"RIFF") and start.endswith(b"WAVE")
    if not is_wav and not start.startswith((b"fLaC", b"OggS", b"ID3")) and not _is_mp3_frame(start):
        raise _other_format(place)


def _other_format(place: str) -> DataError:
    return DataError(f"{place}: not a sound file of a known format: give WAV, FLAC, OGG or MP3")


def _decoded(
    file: Any, stream: FileIO | _Bytes, place: str, longest: int, most: int | None
) -> Iterator[NDArray[np.float32]]:
    """Yield blocks of samples [N, C], one more than `longest` in all if there are more.

    A file that ends before that, and too early, is an error at its end; and so is one that has
    more than `most`.
    """
    # Otherwise soundfile seeks after each block, and an MP3 decoder that has to seek forgets what
    # it needs for the next frame: the sound gets gaps.
    file.seekable = lambda: False
    size = _BLOCK_VALUES // file.channels
    length = 0
    while len(block := file.read(min(size, longest + 1 - length), dtype="float32", always_2d=True)):
        length += len(block)
        if most is not None and length > most:
            raise DataError(f"{place}: has more than {most:,} samples: cut it, or resample it")
        yield block
    if length <= longest:
        _check_whole(file, stream, length, place)


def _check_whole(file: Any, stream: FileIO | _Bytes, length: int, place: str) -> None:
    claimed = file.frames
    if file.format == "MP3":
        if _is_mp3_frame(stream.read(2)):
            # libsndfile stops where it has estimated the end, or where the first part ends.
            raise DataError(
                f"{place}: an MP3 that goes on after its end, as its header lacks its length or "
                "several are joined: convert it to WAV or FLAC"
            )
        if not _tells_length(stream):
            return
    if "Junk after the last page" in file.extra_info:
        raise DataError(f"{place}: the end is damaged or missing: replace it, or leave it out")
    if found_less := _FOUND_LESS.search(file.extra_info):
        claims, there = map(int, found_less.groups())
        if there and claims < _UNKNOWN_BYTES:
            claimed = claimed * claims // there  # `frames` is what is there.
    if length < claimed - _SLACK * file.samplerate and claimed < _UNKNOWN_FRAMES:
        raise DataError(
            f"{place}: cut short or damaged: has {length:,} of the {claimed:,} samples that its "
            "header claims: replace it, or leave it out"
        )


def _is_mp3_frame(start: bytes) -> bool:
    return len(start) >= 2 and start[0] == 0xFF and start[1] >= 0xE0


def _tells_length(mp3: FileIO | _Bytes) -> bool:
    """Return whether the first frame has a Xing or Info tag: without, the length is estimated."""
    mp3.seek(0)
    head = mp3.read(10)
    start = 0
    if head.startswith(b"ID3"):
        size = 0
        for byte in head[6:]:
            size = size << 7 | byte
        start = len(head) + size
    mp3.seek(start)
    frame = mp3.read(1 << 10)
    return b"Xing" in frame or b"Info" in frame
