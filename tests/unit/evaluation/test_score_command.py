"""`headwise score`: files to numbers, and what is wrong with files."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.errors import DataError
from headwise.evaluation import bleu, read_corpus, score

HYPOTHESES = "Der Hund bellt.\nDas ist ein rich-text Format.\nJa\u2028und nein.\n"
REFERENCE = "Ein Hund bellt.\nDas ist ein rich-Text Format.\nJa und nein.\n"


def command(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwise", "score", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    hypotheses, reference = tmp_path / "hyp.de", tmp_path / "ref.de.gz"
    hypotheses.write_text(HYPOTHESES, "utf-8")
    reference.write_bytes(gzip.compress(REFERENCE.encode()))
    return hypotheses, reference


def test_json_is_what_the_library_returns(files: tuple[Path, Path]) -> None:
    result = command(*files, "--language", "de", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    hypotheses, references = read_corpus(files[0], [files[1]])
    expected = score(hypotheses, references, language="de").to_dict()
    assert json.loads(result.stdout) == json.loads(json.dumps(expected))


def test_a_table_that_a_plain_terminal_can_show(files: tuple[Path, Path]) -> None:
    result = command(*files, PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    value = bleu(HYPOTHESES.split("\n")[:-1], [REFERENCE.split("\n")[:-1]]).value
    assert result.stdout.splitlines()[1].split()[:2] == ["BLEU", f"{value:.2f}"]
    assert " +/- " in result.stdout
    assert "Moses BLEU (en), compounds split" in result.stdout


def test_tabs(files: tuple[Path, Path]) -> None:
    result = command(*files, "--tsv")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("score\tvalue\tmean\tmargin\tsignature\nBLEU\t")
    assert result.stdout.count("\n") == 8


def test_wrong_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    two, three = tmp_path / "two", tmp_path / "three"
    two.write_text("a\nb\n")
    three.write_text("a\nb\nc\n")
    for arguments, complaint in (
        ((two, two, three), f"{two} has 2 lines and {three} has 3: they must correspond"),
        ((two,), "Missing argument 'REF...'. See 'headwise score --help'."),
        ((two, two, "--json", "--tsv"), "give either --json or --tsv, not both"),
    ):
        result = command(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert complaint in result.stderr
        assert result.stderr.count("\n") == 1


def test_lines_end_at_line_feeds_only_and_all_are_kept(tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.write_bytes(b"\xef\xbb\xbfa\x0cb\r\n\nc\xe2\x80\xa8d\xc2\x85e")
    hypotheses, references = read_corpus(odd, [odd])
    assert hypotheses == ["a\x0cb", "", "c\u2028d\x85e"]
    assert references == [hypotheses]


def test_an_empty_line_is_a_missing_reference_if_another_file_has_one(tmp_path: Path) -> None:
    for name, text in (("h", "a\nb\nc\n"), ("1", "a\n\n\n"), ("2", "\nb\n \n")):
        (tmp_path / name).write_text(text)
    _, references = read_corpus(tmp_path / "h", [tmp_path / "1", tmp_path / "2"])
    assert references == [["a", None, ""], [None, "b", " "]]
    _, references = read_corpus(tmp_path / "h", [tmp_path / "1"])
    assert references == [["a", "", ""]]


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    good, bad, empty = tmp_path / "good", tmp_path / "bad", tmp_path / "empty"
    good.write_bytes(b"a\nb\n")
    bad.write_bytes(b"a\ncaf\xe9\n")
    empty.write_bytes(b"")
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(b"a\nb\n")[:-4])
    with pytest.raises(
        DataError, match=r"bad:2: not UTF-8 text at byte 4 of the line: convert .*e$"
    ):
        read_corpus(good, [bad])
    with pytest.raises(DataError, match="empty has no lines: there is nothing to score"):
        read_corpus(empty, [good])
    with pytest.raises(DataError, match="nosuch: cannot be read: No such file"):
        read_corpus(good, [tmp_path / "nosuch"])
    with pytest.raises(DataError, match=r"broken\.gz, after line 2: cannot be read"):
        read_corpus(broken, [good])
