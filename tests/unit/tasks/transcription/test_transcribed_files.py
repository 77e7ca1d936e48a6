"""Tables of transcribed images, and what is wrong with them."""

from pathlib import Path

import numpy as np
import pytest

from headwise.data import LineReport
from headwise.data.images import png
from headwise.errors import DataError
from headwise.tasks.transcription.files import (
    Transcribed,
    TranscribedFiles,
    read_examples,
    read_texts,
)
from headwise.tasks.transcription.lines import LINES
from headwise.tasks.transcription.prepare import prepare_examples
from tests.transcribed import small_line_config, small_sound_config, write_spoken

DATA = small_line_config().data


def table(directory: Path, text: str, name: str = "lines.csv") -> TranscribedFiles:
    """Write a table beside two images."""
    generator = np.random.default_rng(1)
    for image, width in (("a.png", 20), ("b.png", 30), ("wide.png", 20_000)):
        pixels = generator.integers(0, 256, (8, width, 1), dtype=np.uint8)
        (directory / image).write_bytes(png(pixels))
    (directory / "broken.png").write_bytes(png(pixels)[:60])
    path = directory / name
    path.write_text(text, "utf-8")
    return TranscribedFiles.of(path, input="images", column="path", text_column="text")


def read(files: TranscribedFiles, *, lenient: bool = False) -> tuple[list[Transcribed], LineReport]:
    report = LineReport()
    return list(read_examples(files, DATA, LINES, lenient=lenient, report=report)), report


def test_texts_are_on_one_line(tmp_path: Path) -> None:
    files = table(tmp_path, 'path,text\na.png," one\n two "\nb.png,three\n')
    examples, report = read(files)
    assert [each.text for each in examples] == ["one two", "three"] == list(read_texts(files))
    assert [each.place for each in examples] == [f"{files.paths[0]}:{row}" for row in (2, 4)]
    assert (report.pairs, report.kept) == (2, 2)


def test_what_cannot_be_used_is_counted(tmp_path: Path) -> None:
    files = table(tmp_path, "path,text\na.png, \nwide.png,long\nb.png,x\0\na.png,good\n")
    examples, report = read(files)
    assert [each.text for each in examples] == ["good"]
    assert report.dropped == {
        "an empty text": 1,
        "more than 80 pixels (data.longest_width)": 1,
        "a NUL character": 1,
    }
    assert report.places["more than 80 pixels (data.longest_width)"] == [f"{files.paths[0]}:3"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("missing.png,x", r"lines\.csv:3: .*missing\.png: cannot be read: No such file"),
        ("broken.png,x", r"lines\.csv:3: .*cannot be decoded"),
        (",x", r"lines\.csv:3: has no path in 'path'"),
        ("a.png", r"lines\.csv:3: 1 columns, but 'text' is column 2"),
    ],
)
def test_what_is_wrong_with_a_row_names_it(tmp_path: Path, row: str, message: str) -> None:
    files = table(tmp_path, f"path,text\na.png,first\n{row}\n")
    with pytest.raises(DataError, match=message):
        read(files)
    examples, report = read(files, lenient=True)
    assert [each.text for each in examples] == ["first"]
    assert report.dropped == {"not readable": 1}


def test_a_number_is_no_text(tmp_path: Path) -> None:
    files = table(tmp_path, '{"path": "a.png", "text": 3}\n', "lines.jsonl")
    with pytest.raises(DataError, match=r"lines\.jsonl:1: has no text in 'text'"):
        read(files)


def test_a_missing_column_names_those_there_are(tmp_path: Path) -> None:
    files = table(tmp_path, "path,label\na.png,x\n")
    with pytest.raises(DataError, match="has no column 'text': there is 'path', 'label'"):
        read(files)


@pytest.mark.parametrize("text", ["", "path,text\n", "path,text\na.png,\n"])
def test_an_empty_table_is_an_error(tmp_path: Path, text: str) -> None:
    files = table(tmp_path, text)
    with pytest.raises(
        DataError, match=r"lines\.csv: (is empty|nothing to train on: of [01] images none)"
    ):
        prepare_examples(files, small_line_config(), tmp_path / "out", LINES)
    assert not (tmp_path / "out").exists()


def test_what_is_no_table_is_an_error(tmp_path: Path) -> None:
    for name in (".", "lines.txt"):
        with pytest.raises(DataError, match="no table: give a .tsv, .csv or .jsonl file"):
            TranscribedFiles.of(tmp_path / name, input="images", column="p", text_column="t")
    for column, flag in ((None, "--image-column"), ("path", "--text-column")):
        with pytest.raises(DataError, match=f"name the column with {flag}"):
            TranscribedFiles.of("a.csv", input="images", column=column, text_column=None)
    with pytest.raises(DataError, match="name the column with --audio-column"):
        TranscribedFiles.of("a.csv", input="audio", column=None, text_column="text")
    with pytest.raises(DataError, match="no transcribed sounds are given"):
        TranscribedFiles.of((), input="audio", column="p", text_column="t")


def test_sounds_that_are_too_long_are_left_out(tmp_path: Path) -> None:
    from headwise.tasks.vectors.audio import AUDIO

    files = write_spoken(tmp_path, count=12)
    report = prepare_examples(
        files, small_sound_config("data.longest_seconds=0.5"), tmp_path / "out", AUDIO
    )
    reason = "more than 0.5 s (data.longest_seconds)"
    assert 0 < report.train.dropped[reason] < 12
    assert report.train.kept == 12 - report.train.dropped[reason]
