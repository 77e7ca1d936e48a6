"""The sounds of `headwise demo --task listening`: strings of spoken digits, by synthetic voices.

They are made as the sounds of `headwise demo --task speech` are; the test is on voices that
training never hears.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headwise.seeding import keyed_generator
from headwise.tasks.transcription.files import TranscribedFiles
from headwise.workflows.demo_speech import (
    DIGITS,
    Clip,
    get_clips,
    heldout_variants,
    saying_of,
)
from headwise.workflows.demo_transcription import TranscriptionDemo
from headwise.workflows.synthetic_speech import ACCENTS, VARIANTS

_STRINGS = 8
"""Of each voice."""
_FEWEST, _MOST = 2, 4
"""Digits of a string."""

_VERSION = 1
"""To be raised by any change of the strings: the folder is named by it."""


class Spoken(NamedTuple):
    """A string of digits, and its clip."""

    text: str
    clip: Clip


def strings(part: str) -> list[Spoken]:
    """Have each voice of a part, which is a speaker with an accent, say some strings."""
    heldout = heldout_variants()
    found = []
    for variant in VARIANTS:
        if (variant in heldout) != (part == "test"):
            continue
        for accent in ACCENTS:
            generator = keyed_generator("listening", accent, variant)
            for number in range(_STRINGS):
                count = generator.integers(_FEWEST, _MOST + 1)
                text = " ".join(DIGITS[digit] for digit in generator.integers(0, 10, count))
                path = f"{part}/{variant}_{accent}_{number}.wav"
                found.append(Spoken(text, Clip(saying_of(text, accent, variant), path)))
    return found


def _get(directory: Path, say: Callable[[str], None]) -> Path:
    """Return the folder of the sounds, which is named by what made them; make them if missing."""
    parts = {part: strings(part) for part in ("train", "test")}
    wanted = [each.clip for part in parts.values() for each in part]
    return get_clips(
        directory,
        wanted,
        say,
        about=f"Making {len(wanted):,} strings of {_FEWEST} to {_MOST} spoken digits, "
        f"{len(parts['test']):,} of them by speakers that are kept for the test.",
        version=_VERSION,
        tables={f"{part}.csv": _table(found) for part, found in parts.items()},
    )


def _table(found: list[Spoken]) -> str:
    rows = ("path,text", *(f"{each.clip.path},{each.text}" for each in found))
    return "".join(f"{row}\n" for row in rows)


def _files(path: Path) -> TranscribedFiles:
    return TranscribedFiles.of(path, input="audio", column="path", text_column="text")


DEMO = TranscriptionDemo(
    name="listening",
    recipe="listen-tiny",
    unit="sounds",
    about="Strings of spoken digits, by synthetic voices, to what they say",
    train="train.csv",
    test="test.csv",
    get=_get,
    files=_files,
    options="--table {} --audio-column path --text-column text",
    example=lambda test: str(min((test.with_name("test")).iterdir())),
    try_out="Type the path of a sound, or speak in the browser: headwise serve.",
)
