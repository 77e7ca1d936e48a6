"""The sounds of `headwise demo --task speech`: spoken digits.

They are synthetic, as no package registry carries recordings of spoken digits. The test is on
voices that training never hears; what it says of people's voices is another matter.
"""

import io
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise.data.sounds import check_installed
from headwise.errors import ConfigError, DownloadError
from headwise.files import new_directory
from headwise.seeding import hashed, keyed_generator, keyed_seed
from headwise.tasks.classification.files import LabelledFiles
from headwise.workflows.demo_classes import ClassDemo
from headwise.workflows.synthetic_speech import (
    ACCENTS,
    ADVICE,
    VARIANTS,
    Saying,
    Speaker,
    speakers,
)

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TRAIN, _TEST = "train", "test"

_TEST_VARIANTS = 7
"""Speakers that are only in the test, in all accents."""

_RATE = 8_000
"""Samples a second, as of a telephone."""

_VERSION = 1
"""To be raised by any change of the clips: the folder is named by it."""

_WORDS_A_MINUTE = (130, 190)
_PITCHES = (25, 80)
_RANGES = (20, 80)

_FRAME = _RATE // 100
_SILENCE_DB = -40.0
"""Frames so much quieter than the loudest are silence, if no voice is before or after them."""

_MARGIN_SECONDS = (0.05, 0.8)
"""Of noise alone, before and after the voice, as when people record: of digits in two seconds of
noise, a model that heard bare voices gets no more right than chance."""
_NOISE_DB = (-35.0, -5.0)
"""Of the noise, relative to the voice."""
_COLOUR = (0.0, 1.0)
"""Of the noise: from white to pink."""
_PEAK_DB = (-20.0, -1.0)


class Clip(NamedTuple):
    """What is said, and where its sound goes."""

    saying: Saying
    path: str


def clips() -> list[Clip]:
    """Have each voice, which is a speaker with an accent, say each digit once."""
    test = heldout_variants()
    return [
        Clip(
            saying_of(digit, accent, variant),
            f"{_TEST if variant in test else _TRAIN}/{digit}/{variant}_{accent}.wav",
        )
        for variant in VARIANTS
        for accent in ACCENTS
        for digit in DIGITS
    ]


def heldout_variants() -> list[str]:
    """Return the speakers that are only in the test."""
    by_key = sorted(VARIANTS, key=lambda variant: keyed_seed("speech", "test", variant))
    return by_key[:_TEST_VARIANTS]


def saying_of(text: str, accent: str, variant: str) -> Saying:
    """Have a voice say a text, at a speed and a pitch that follow from both."""
    generator = keyed_generator("speech", "saying", text, accent, variant)
    rate, pitch, pitch_range = (
        int(generator.integers(least, most, endpoint=True))
        for least, most in (_WORDS_A_MINUTE, _PITCHES, _RANGES)
    )
    return Saying(text, accent, variant, rate, pitch, pitch_range)


def _get(directory: Path, say: Callable[[str], None]) -> Path:
    """Return the folder of the sounds, which is named by what made them; make them if missing."""
    wanted = clips()
    about = (
        f"Making {len(wanted):,} clips of spoken digits with {len(ACCENTS) * len(VARIANTS)} "
        f"synthetic voices: {len(VARIANTS)} speakers in {len(ACCENTS)} accents. "
        f"{_TEST_VARIANTS} of the speakers are kept for the test."
    )
    return get_clips(directory, wanted, say, about=about, version=_VERSION)


def get_clips(
    directory: Path,
    wanted: Sequence[Clip],
    say: Callable[[str], None],
    *,
    about: str,
    version: int,
    tables: Mapping[str, str] | None = None,
) -> Path:
    """Return the folder of some clips, with the voices that are here; make them if missing.

    Beside them it has tables, given by their names and contents. `about` is said before they are
    made.
    """
    check_installed()  # Better now than after a download.
    found = speakers()
    folders = [directory / _name(speaker, version) for speaker in found]
    for folder in folders:
        if folder.is_dir():
            return folder
    for speaker, folder in zip(found, folders, strict=True):
        try:
            say(speaker.announcement)
            say(about)
            _make(folder, speaker, wanted, tables or {})
            return folder
        except DownloadError as error:
            if speaker is found[-1]:
                raise DownloadError(f"{error} (or {ADVICE})") from error
            say(str(error))
    raise ConfigError(f"there is no speech synthesiser for the demo: {ADVICE}")


def _name(speaker: Speaker, version: int) -> str:
    return f"{hashed(f'{version} {speaker.identity}'):016x}"[:8]


def _make(
    folder: Path, speaker: Speaker, wanted: Sequence[Clip], tables: Mapping[str, str]
) -> None:
    with new_directory(folder) as temporary:
        for name, table in tables.items():
            (temporary / name).write_text(table)
        for clip in wanted:
            (temporary / clip.path).parent.mkdir(parents=True, exist_ok=True)
        tools = temporary / "espeak-ng"
        tools.mkdir()
        sounds = speaker.spoken([clip.saying for clip in wanted], tools, rate=_RATE)
        for clip, sound in zip(wanted, sounds, strict=True):
            generator = keyed_generator("speech", "clip", clip.path)
            recorded = _recorded(_trimmed(sound, clip), generator)
            (temporary / clip.path).write_bytes(_wav(recorded))
        shutil.rmtree(tools)
        os.sync()  # To flush thousands of files one by one takes longer than to make them.


def _trimmed(sound: NDArray[np.float32], clip: Clip) -> NDArray[np.float32]:
    """Cut off the silence before and after a voice."""
    frames = sound[: len(sound) // _FRAME * _FRAME].reshape(-1, _FRAME)  # [frames, samples]
    power = (frames**2).mean(axis=1)
    if not power.any():
        raise DownloadError(f"espeak-ng returned silence for {clip.path}")
    (loud,) = np.nonzero(power > power.max() * 10 ** (_SILENCE_DB / 10))
    return sound[loud[0] * _FRAME : (loud[-1] + 1) * _FRAME]


def _recorded(voice: NDArray[np.float32], generator: np.random.Generator) -> NDArray[np.float64]:
    """Make a voice sound as if it were recorded: with noise, around it as well, at some level."""
    noise_db, peak_db, colour = (
        generator.uniform(*each) for each in (_NOISE_DB, _PEAK_DB, _COLOUR)
    )
    before, after = (int(_RATE * seconds) for seconds in generator.uniform(*_MARGIN_SECONDS, 2))
    sound = np.pad(voice.astype(np.float64), (before, after))
    spectrum = np.fft.rfft(generator.standard_normal(len(sound)))
    spectrum /= np.arange(1, len(spectrum) + 1) ** (colour / 2)
    noise = np.fft.irfft(spectrum, len(sound))
    noise *= 10 ** (noise_db / 20) * np.sqrt((voice**2).mean() / (noise**2).mean())
    sound += noise
    recorded: NDArray[np.float64] = sound * (10 ** (peak_db / 20) / np.abs(sound).max())
    return recorded


def _wav(samples: NDArray[np.float64]) -> bytes:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, samples, _RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


def _files(path: Path) -> LabelledFiles:
    return LabelledFiles.of(path, input="audio")


DEMO = ClassDemo(
    name="speech",
    recipe="speech-tiny",
    unit="sounds",
    about="Spoken digits, by synthetic voices, to what they say",
    train=_TRAIN,
    test=_TEST,
    get=_get,
    files=_files,
    options="--audio {}",
    example=lambda test: str(min((test / "seven").iterdir())),
    try_out="Type the path of a sound, or speak in the browser: headwise serve.",
)
