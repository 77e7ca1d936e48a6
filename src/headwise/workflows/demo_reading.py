"""The lines of `headwise demo --task reading`: handwritten digits of MNIST, side by side.

The images of the training lines are from MNIST's training part, those of the test from its test
part: other people wrote them.
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headwise.data.image_arrays import ImageArrays, read_image_arrays
from headwise.data.images import png
from headwise.files import new_directory
from headwise.seeding import keyed_generator
from headwise.tasks.transcription.files import TranscribedFiles
from headwise.workflows.demo_digits import TEST, TRAIN, get_digits
from headwise.workflows.demo_transcription import TranscriptionDemo

_LINES = {"train": 40_000, "test": 2_000}
_DIGITS = {"train": TRAIN, "test": TEST}
_FEWEST, _MOST = 2, 5
"""Digits of a line."""

_VERSION = 1
"""To be raised by any change of the lines: the folder is named by it."""


def line_of(digits: ImageArrays, generator: np.random.Generator) -> tuple[NDArray[np.uint8], str]:
    """Draw some digits; return their images side by side [H, W, 1], and what they say."""
    count = generator.integers(_FEWEST, _MOST + 1)
    chosen = generator.integers(0, len(digits.images), count)
    line = np.concatenate([digits.images[number] for number in chosen], axis=1)
    return line[:, :, None], "".join(digits.labels[number] for number in chosen)


def _get(directory: Path, say: Callable[[str], None]) -> Path:
    """Return the folder of the lines; make them if missing."""
    # Beside them, where the demo of single digits has them too.
    digits = get_digits(directory.with_name("digits"), say)
    folder = directory / f"{digits.name}-{_VERSION}"
    if not folder.is_dir():
        say(f"Making {sum(_LINES.values()):,} lines of {_FEWEST} to {_MOST} digits.")
        with new_directory(folder) as temporary:
            for part, count in _LINES.items():
                _make(temporary, part, count, read_image_arrays(digits / _DIGITS[part]))
            os.sync()  # To flush thousands of files one by one takes longer than to make them.
    return folder


def _make(folder: Path, part: str, count: int, digits: ImageArrays) -> None:
    generator = keyed_generator("reading", part)
    rows = ["path,text"]
    (folder / part).mkdir()
    for number in range(count):
        line, text = line_of(digits, generator)
        name = f"{part}/{number}.png"
        (folder / name).write_bytes(png(line))
        rows.append(f"{name},{text}")
    (folder / f"{part}.csv").write_text("\n".join(rows) + "\n")


def _files(path: Path) -> TranscribedFiles:
    return TranscribedFiles.of(path, input="images", column="path", text_column="text")


DEMO = TranscriptionDemo(
    name="reading",
    recipe="read-tiny",
    unit="images",
    about="Lines of handwritten digits to what is written",
    train="train.csv",
    test="test.csv",
    get=_get,
    files=_files,
    options="--table {} --image-column path --text-column text",
    example=lambda test: str(test.with_name("test") / "0.png"),
    try_out="Type the path of an image.",
)
