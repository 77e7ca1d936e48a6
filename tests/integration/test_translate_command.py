"""`headwise translate` as a filter: pipes, people, bad bytes, closed ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from headwise import Translator
from tests.conftest import Headwise


@pytest.fixture(scope="module")
def run(trained_run: Path) -> Path:
    return trained_run


def start(*arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "headwise", "translate", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


Translate = Callable[..., tuple[int, bytes, bytes]]


@pytest.fixture
def translate(preloaded: Path) -> Translate:
    """Return a function: stdin and arguments in, exit code, stdout and stderr out."""

    def call(content: bytes, *arguments: str) -> tuple[int, bytes, bytes]:
        command = [str(preloaded / "headwise"), "translate", *arguments]
        result = subprocess.run(
            command, input=content, capture_output=True, timeout=60, check=False
        )
        return result.returncode, result.stdout, result.stderr

    return call


def test_sentences_as_arguments_are_translated(
    run: Path, tmp_path: Path, translate: Translate
) -> None:
    sentences = ["bana dora", "", "kuti bun"]
    expected = "".join(f"{t.text}\n" for t in Translator.load(run).translate(sentences)).encode()
    code, output, errors = translate(b"not read\n", str(run), *sentences)
    assert (code, output) == (0, expected), errors
    out = tmp_path / "out"
    code, output, errors = translate(b"", str(run), "--output", str(out), *sentences)
    assert (code, output, out.read_bytes()) == (0, b"", expected), errors


def test_wrong_arguments_are_one_line(run: Path, tmp_path: Path, headwise: Headwise) -> None:
    code, output, errors = headwise("translate", str(run), "bana", "--input", str(tmp_path / "in"))
    assert (code, output, len(errors.splitlines())) == (2, "", 1)
    assert "sentences as arguments or a file with --input, not both" in errors
    not_text = os.fsdecode(b"ba\xffna")
    code, output, errors = headwise("translate", str(run), "bana", not_text)
    assert code == 2
    assert "argument:2: not UTF-8 text at byte 3 of the line" in errors
    code, output, errors = headwise("translate", str(run), "bana", not_text, "--lenient")
    assert (code, len(output.splitlines())) == (0, 2), errors


def test_as_many_lines_come_out_as_go_in(run: Path, translate: Translate) -> None:
    """Whatever is in them: nothing, spaces, separators that are not line feeds, other scripts."""
    lines = [
        "bana dora",
        "",
        "  ",
        "kuti\u2028bun",
        "a\x0cb\x85c",
        "دورا",
        "🙂🙂",
        "kuti\r",
        "x" * 300,
    ]
    content = "\n".join(lines * 20).encode()  # And no line feed at the very end.
    code, output, errors = translate(content, str(run))
    assert code == 0, errors
    found = output.decode().split("\n")
    assert found.pop() == ""
    assert len(found) == 180
    expected = [result.text for result in Translator.load(run).translate(lines)]
    assert found == [line.replace("\r", " ") for line in expected] * 20
    said = errors.decode().splitlines()
    assert said[0] == f"using {run}/averaged"
    assert "lines were longer than the" in said[1]


def test_a_person_is_answered_line_by_line(run: Path) -> None:
    process = start(str(run))
    assert process.stdin is not None
    assert process.stdout is not None
    for text in ("bana dora", "", "kuti"):
        process.stdin.write(text.encode() + b"\n")
        process.stdin.flush()
        answer = process.stdout.readline()  # Would wait forever if it were kept back.
        assert answer.endswith(b"\n")
        assert (answer == b"\n") == (text == "")
    process.stdin.close()
    assert process.wait(timeout=30) == 0
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()


def test_bad_bytes_are_named_after_what_came_before_them(run: Path, translate: Translate) -> None:
    content = b"bana\nkuti\nba\xffna\ndora\n"
    code, output, errors = translate(content, str(run))
    assert code == 2
    assert output.count(b"\n") == 2
    assert b"stdin:3: not UTF-8 text at byte 3 of the line" in errors.splitlines()[-1]
    code, output, _ = translate(content, str(run), "--lenient")
    assert (code, output.count(b"\n")) == (0, 4)


def test_an_endless_line_is_refused_after_what_came_before_it(run: Path) -> None:
    with start(str(run)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"bana\nkuti\n" + b"x" * ((1 << 20) + 1))
        process.stdin.flush()  # It may not wait for the line's end, nor for that of the input.
        output, errors = process.stdout.read(), process.stderr.read()
    assert process.returncode == 2
    assert output.count(b"\n") == 2
    assert b"stdin:3: longer than the 1,048,576 bytes that a line may have" in errors


def test_formats(run: Path, tmp_path: Path, translate: Translate) -> None:
    (tmp_path / "in").write_text("bana dora\n\n")
    files = ("--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"))
    code, output, errors = translate(b"", str(run), *files, "--nbest", "2", "--scores", "--tsv")
    assert (code, output) == (0, b""), errors
    first, second, rest = (tmp_path / "out").read_text().split("\n")
    source, score, best, other_score, other = first.split("\t")
    assert source == "bana dora"
    assert float(score) > float(other_score)
    assert best != other
    assert (second, rest) == ("", "")
    code, output, _ = translate(b"bana dora\n\n", str(run), "--json")
    assert code == 0
    first_line, second_line = (json.loads(line) for line in output.decode().splitlines())
    assert first_line["translation"] == best
    assert len(first_line["alignment"]) == len(first_line["candidates"][0]["tokens"])
    assert second_line["candidates"] == []
    pair = f"bana dora\t{best}\n".encode()
    code, output, _ = translate(pair, str(run), "--score")
    assert code == 0
    assert float(output) == pytest.approx(first_line["candidates"][0]["log_prob"], abs=1e-3)
    code, output, errors = translate(b"one column\n", str(run), "--score")
    assert code == 2
    assert b"stdin:1: 1 columns, not source TAB target" in errors


def test_a_translation_may_be_begun_and_searched_for_in_another_way(
    run: Path, translate: Translate
) -> None:
    code, output, errors = translate(b"bana dora\ttib\nkuti\t\n", str(run), "--begun")
    assert code == 0, errors
    first, second = output.decode().splitlines()
    assert first.startswith("tib")
    assert second == Translator.load(run).translate(["kuti"])[0].text
    code, output, errors = translate(b"bana\n", str(run), "--begun")
    assert (code, output) == (2, b"")
    assert b"stdin:1: 1 columns, not source TAB beginning" in errors
    code, output, errors = translate(b"bana\n", str(run), "--set", "decode.beam=2")
    assert (code, output.count(b"\n")) == (0, 1), errors
    code, output, errors = translate(b"bana\n", str(run), "--set", "train.seed=2")
    assert (code, output) == (2, b"")
    assert b"only its [decode] settings can change" in errors


def test_a_closed_pipe_ends_it_quietly(run: Path) -> None:
    command = (
        f"yes bana dora | {sys.executable} -m headwise translate {run} 2>errors "
        "| head -n 3 | wc -l; cat errors"
    )
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, cwd=run, check=True
    )
    assert result.stdout.split("\n")[0].strip() == "3"
    assert "Traceback" not in result.stdout


def begun(process: "subprocess.Popen[bytes]", writing: IO[bytes]) -> None:
    """Let it translate a line, and wait for the next."""
    assert process.stdout is not None
    writing.write(b"bana dora\n")
    writing.flush()
    assert process.stdout.readline().endswith(b"\n")


def said_at_its_end(process: "subprocess.Popen[bytes]") -> tuple[int, list[str]]:
    """Return how it ends while its input stays open, and what it has said but its weights."""
    assert process.stderr is not None
    code = process.wait(60)
    with process:
        # After Ctrl-C, an empty line: on a terminal, ^C stands where the next would begin.
        return code, [line for line in process.stderr.read().decode().splitlines()[1:] if line]


def test_ctrl_c_ends_it_while_it_waits_for_a_line(run: Path, tmp_path: Path) -> None:
    process = start(str(run))
    assert process.stdin is not None
    begun(process, process.stdin)
    process.send_signal(signal.SIGINT)
    assert said_at_its_end(process) == (130, [])

    os.mkfifo(tmp_path / "pipe")
    process = start(str(run), "--input", str(tmp_path / "pipe"))
    with (tmp_path / "pipe").open("wb") as writing:
        begun(process, writing)
        process.send_signal(signal.SIGTERM)
        assert said_at_its_end(process) == (143, [])


def test_bad_bytes_end_it_while_more_may_come(run: Path) -> None:
    process = start(str(run))
    assert process.stdin is not None
    begun(process, process.stdin)
    process.stdin.write(b"\xff\n")
    process.stdin.flush()
    code, said = said_at_its_end(process)
    assert (code, len(said)) == (2, 1)
    assert "stdin:2: not UTF-8 text at byte 1" in said[0]


def test_a_closed_pipe_ends_it_while_more_may_come(run: Path) -> None:
    process = start(str(run))
    assert process.stdin is not None
    assert process.stdout is not None
    begun(process, process.stdin)
    process.stdout.close()
    process.stdin.write(b"bana\n")
    process.stdin.flush()
    assert said_at_its_end(process) == (128 + signal.SIGPIPE, [])


def test_the_input_is_not_written_over(run: Path, tmp_path: Path, translate: Translate) -> None:
    text = tmp_path / "text"
    text.write_text("bana dora\n")
    (tmp_path / "link").symlink_to(text)
    for name in ("text", "link"):
        code, _, errors = translate(
            b"", str(run), "--input", str(text), "--output", str(tmp_path / name)
        )
        assert (code, b"is the input, too" in errors) == (2, True)
    with text.open("rb") as file:
        result = subprocess.run(
            [sys.executable, "-m", "headwise", "translate", str(run), "--output", str(text)],
            stdin=file,
            capture_output=True,
        )
    assert (result.returncode, b"is the input, too" in result.stderr) == (2, True)
    assert text.read_text() == "bana dora\n"


@pytest.mark.parametrize(("end", "option"), [("<&-", "--input"), (">&-", "--output")])
def test_a_closed_stream_is_reported(run: Path, end: str, option: str) -> None:
    command = f"{sys.executable} -m headwise translate {run} {end}"
    result = subprocess.run(
        ["bash", "-c", command], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert result.returncode == 2
    said = result.stderr.splitlines()
    assert len(said) == 2
    assert "is closed: " in said[1]
    assert f"a file with {option} FILE" in said[1]


def test_ctrl_c_leaves_whole_lines(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("bana dora kuti\n" * 200_000)
    out = tmp_path / "out"
    process = start(str(run), "--input", str(tmp_path / "in"), "--output", str(out))
    deadline = time.monotonic() + 30
    while (not out.exists() or not out.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert out.read_bytes().endswith(b"\n")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--device", "nope"], "torch knows no such device"),
        (["--device", "meta"], "cannot be used here"),
        (["--device", "cuda:99"], "--device cuda:99: "),
        (["--checkpoint", "9" * 5000], "has no checkpoint of step 9"),
        (["--nbest", "100000"], "at most 10,000"),
        (["--set", "decode.max_extra_tokens=4294967296"], "at most 1,000,000"),
    ],
)
def test_wrong_options_are_one_line(
    run: Path, options: list[str], complaint: str, translate: Translate
) -> None:
    code, output, errors = translate(b"bana\n", str(run), *options)
    said = [line for line in errors.decode().splitlines() if not line.startswith("using ")]
    assert (code, output, len(said)) == (2, b"", 1)
    assert complaint in said[0]


def test_wrong_runs_are_one_line(run: Path, tmp_path: Path, translate: Translate) -> None:
    code, output, errors = translate(b"", str(tmp_path))
    assert (code, output) == (2, b"")
    assert b"is not a run directory" in errors
    assert len(errors.splitlines()) == 1
