"""Labelled texts from tables, fastText files and folders, and what is wrong with them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from headwise.config import ClassificationDataConfig
from headwise.data import LineReport
from headwise.errors import DataError
from headwise.tasks.classification.files import LabelledFiles, read_examples
from headwise.tasks.classification.text import TEXT

ONE = ClassificationDataConfig()
SEVERAL = ClassificationDataConfig(multi_label=True, label_separator="|")

Found = list[tuple[str, tuple[str, ...]]]


def read(
    path: Path, data: ClassificationDataConfig = ONE, *, lenient: bool = False
) -> tuple[Found, LineReport]:
    is_table = path.is_file() and not path.name.startswith("lines")
    columns: dict[str, Any] = {"column": "text", "label_column": "label"} if is_table else {}
    report = LineReport()
    files = LabelledFiles.of(path, **columns)
    examples = read_examples(files, data, TEXT, lenient=lenient, report=report)
    found = [(each.content, each.labels) for each in examples]
    return found, report


def test_every_kind_of_file_gives_the_same_texts(tmp_path: Path) -> None:
    expected = [("good film", ("+",)), ("so, so", ("-",))]
    (tmp_path / "t.csv").write_text('\ufefflabel,id,text\r\n+,1,"good \n film"\r\n-,2,"so, so"\r\n')
    (tmp_path / "t.tsv").write_text("text\tlabel\ngood  film\t+\nso, so\t-\n")
    rows = [{"label": "+", "text": "good film"}, {"text": " so, so ", "label": "-", "x": 1}]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "lines.txt").write_text("__label__+ good film\nso, so __label__-\n")
    with gzip.open(tmp_path / "z.csv.gz", "wt") as file:
        file.write('text,label\ngood film,+\n"so, so",-\n')
    for name in ("t.csv", "t.tsv", "t.jsonl", "lines.txt", "z.csv.gz"):
        found, report = read(tmp_path / name)
        assert found == expected, name
        assert (report.pairs, report.kept) == (2, 2)
    for label, text in (("a", "good film\n"), ("b", "so,\nso")):
        (tmp_path / "folder" / label).mkdir(parents=True)
        (tmp_path / "folder" / label / "1.txt").write_text(text)
    assert read(tmp_path / "folder")[0] == [("good film", ("a",)), ("so, so", ("b",))]


def test_several_labels(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('text,label\na,x|y|x\nb,\nc," z "\n')
    assert read(tmp_path / "t.csv", SEVERAL)[0] == [("a", ("x", "y")), ("b", ()), ("c", ("z",))]
    (tmp_path / "t.jsonl").write_text(
        '{"text": "a", "label": ["x", "y"]}\n{"text": "b", "label": []}\n'
        '{"text": "c", "label": "z"}\n{"text": "d"}\n'
    )
    found, _ = read(tmp_path / "t.jsonl", SEVERAL)
    assert found == [("a", ("x", "y")), ("b", ()), ("c", ("z",)), ("d", ())]
    (tmp_path / "lines.txt").write_text("__label__x __label__y a\n__label__z c\n")
    assert read(tmp_path / "lines.txt", SEVERAL)[0] == [("a", ("x", "y")), ("c", ("z",))]


def test_what_cannot_be_used_is_counted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('text,label\n" ",x\nb,\nc\0c,x\nd,x\n')
    found, report = read(tmp_path / "t.csv")
    assert found == [("d", ("x",))]
    assert dict(report.dropped) == {"an empty text": 1, "no label": 1, "a NUL character": 1}
    assert report.pairs == report.kept + 3
    (tmp_path / "lines.txt").write_text("__label__x __label__y a\n__label__z c\nno label\n")
    found, report = read(tmp_path / "lines.txt")
    assert found == [("c", ("z",))]
    assert dict(report.dropped) == {
        "several labels (data.multi_label is false)": 1,
        "no label": 1,
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "words,label\na,x\n", r"t\.csv:1: has no column 'text': there is 'words', 'l"),
        ("t.csv", "", r"t\.csv: is empty: the first line has the names of the columns"),
        ("t.tsv", "", r"t\.tsv: is empty: the first line has the names of the columns"),
        ("t.csv", "text,text,label\na,b,x\n", r"t\.csv:1: has several columns 'text'"),
        ("t.csv", "text,label\na\n", r"t\.csv:2: 1 columns, but 'label' is column 2"),
        ("t.csv", 'text,label\n"a,x\n', r"t\.csv:2: not CSV"),
        ("t.tsv", "text\tlabel\n\xff\tx\n", r"t\.tsv:2: not UTF-8 text at byte 1"),
        ("t.jsonl", '{"text": 1, "label": "x"}\n', r"t\.jsonl:1: has no text in 'text'"),
        ("t.jsonl", "[1]\n", r"t\.jsonl:1: has no text in 'text'"),
        ("t.jsonl", "{\n", r"t\.jsonl:1: not JSON"),
        (
            "t.jsonl",
            '{"text": "a", "label": "1"}\n{"text": "b", "label": 1}\n',
            r"t\.jsonl:2: the label 1 is a number, and the first was text: write all",
        ),
        ("t.jsonl", '{"text": "a", "label": 0.5}\n', r"t\.jsonl:1: 0\.5 is no label"),
        ("t.jsonl", '{"text": "a", "label": ["x"]}\n', r"t\.jsonl:1: \['x'\] is no label"),
        ("t.jsonl", '{"text": "\\ud800", "label": "x"}\n', r"t\.jsonl:1: half of a surrogate"),
        ("lines.txt", "text,label\n", r"lines\.txt:1: does not begin with __label__: a table is"),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=message):
        read(tmp_path / name)


def test_lenient_leaves_out_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(
        '{"text": "a", "label": "x"}\n{\n{"text": "b", "label": 1}\n{"text": "c", "label": "y"}\n'
    )
    found, report = read(tmp_path / "t.jsonl", lenient=True)
    assert found == [("a", ("x",)), ("c", ("y",))]
    assert report.dropped["not readable"] == 2
    broken, mixed = report.places["not readable"]
    assert "t.jsonl:2: not JSON" in broken
    assert "t.jsonl:3: the label 1 is a number" in mixed


def test_columns_and_folders_are_checked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="name the column with --label-column"):
        LabelledFiles.of(tmp_path / "t.csv", column="text")
    with pytest.raises(DataError, match=r"--text-column 'text': .*lines\.txt is no table"):
        LabelledFiles.of(tmp_path / "lines.txt", column="text")
    with pytest.raises(DataError, match="has no sub-folders: give one for each class"):
        read(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"1\.txt: not UTF-8 text at byte 1"):
        read(tmp_path)
