"""`headwise score-trees`: files to tables and JSON, and what is wrong with files."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.evaluation import score_tree_files

GOLD = "(S (NP (PRP I)) (VP (VBP agree)) (. .))\n(S (NN a) (NN b))\n(S (NN a))\n"
TEST = "(S (PRP I) (VP (VBP agree)) (. .))\n(S (NN a) (NN c))\n\n"


def command(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwise", "score-trees", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    gold, test = tmp_path / "gold.gz", tmp_path / "test"
    gold.write_bytes(gzip.compress(GOLD.encode()))
    test.write_text(TEST, "utf-8")
    return gold, test


def test_tables(files: tuple[Path, Path]) -> None:
    result = command(*files, "--sentences", "--by-length", "--by-label", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    sentences, summary, interval, lengths, labels = result.stdout.split("\n\n")
    zeros = ["0.00", "0.00", "0", "0", "0", "0", "0", "0", "0.00"]
    assert [re.split("  +", line) for line in sentences.splitlines()[1:]] == [
        ["1", "3", "ok", "66.67", "100.00", "2", "3", "2", "0", "2", "2", "100.00"],
        ["2", "2", "error", *zeros, "word 2 differs: 'b' in gold, 'c' in test"],
        ["3", "1", "skip", *zeros, "no words in test"],
    ]
    assert [line.split() for line in summary.splitlines()[:4]] == [
        ["all", "up", "to", "40", "words"],
        ["F1", "80.00", "80.00"],
        ["recall", "66.67", "66.67"],
        ["precision", "100.00", "100.00"],
    ]
    assert summary.splitlines()[-2:] == [
        "error sentences          1               1",
        "skipped sentences        1               1",
    ]
    assert interval.startswith("F1 of all sentences, 95 % interval: 80.00 +/- 0.00\nNote: 2 of 3 ")
    assert lengths.splitlines()[1].split()[:4] == ["0-10", "3", "1", "80.00"]
    assert labels.splitlines()[1:] == [
        "S         1     1  100.00  100.00     100.00",
        "VP        1     1  100.00  100.00     100.00",
        "NP        1     0    0.00    0.00       0.00",
    ]


def test_json_is_what_the_library_returns(files: tuple[Path, Path]) -> None:
    scores = score_tree_files(*files)
    result = command(*files, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert list(found) == ["overall", "cutoff", "short", "interval", "notes"]
    assert found["overall"] == scores.overall.to_dict()
    assert found["notes"] == list(scores.notes)
    result = command(*files, "--json", "--sentences", "--by-length", "--by-label")
    found = json.loads(result.stdout)
    assert found["sentences"] == [row.to_dict() for row in scores.rows]
    assert found["by_length"] == [score.to_dict() for score in scores.by_length()]
    assert found["by_label"] == [score.to_dict() for score in scores.labels]


def test_parameters(files: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "own.prm"
    path.write_text("EQ_WORD b c\nCUTOFF_LEN 2\n")
    result = command(*files, "--parameters", path)
    assert (result.returncode, result.stderr) == (0, "")
    header, *_, errors, _ = result.stdout.split("\n\n")[0].splitlines()
    assert header.split() == ["all", "up", "to", "2", "words"]
    assert errors.split() == ["error", "sentences", "0", "0"]


def test_wrong_input_is_one_line_and_exit_code_2(files: tuple[Path, Path], tmp_path: Path) -> None:
    gold, _ = files
    short, wrong = tmp_path / "short", tmp_path / "wrong.prm"
    short.write_text("(S (NN a))\n")
    wrong.write_text("DELETE TOP\n")
    for arguments, complaint in (
        ((gold, short), f"{gold} has 3 lines and {short} has 1: they must correspond line by line"),
        ((gold,), "Missing argument 'TEST'. See 'headwise score-trees --help'."),
        ((gold, tmp_path / "no"), f"{tmp_path / 'no'}: cannot be read: No such file"),
        ((*files, "--parameters", wrong), f"{wrong}:1: unknown keyword 'DELETE'"),
    ):
        result = command(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert complaint in result.stderr
        assert result.stderr.count("\n") == 1
