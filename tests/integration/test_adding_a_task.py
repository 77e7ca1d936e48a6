"""The task of docs/adding-a-task.md: its code is trained, killed, resumed, evaluated and served."""

import json
import os
import random
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import load_file

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-task.md").read_text("utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def example(generator: random.Random) -> str:
    """Draw brackets, half of them balanced, with their answer."""
    size, depth, text = 2 * generator.randint(1, 6), 0, ""
    may_be_wrong = generator.random() < 0.5
    for left in range(size, 0, -1):
        is_open = generator.random() < 0.5 if may_be_wrong else depth == 0
        if not may_be_wrong and 0 < depth < left:
            is_open = generator.random() < 0.5
        text += "(" if is_open else ")"
        depth += 1 if is_open else -1
    depths = [text[:n].count("(") - text[:n].count(")") for n in range(len(text) + 1)]
    return f"{text}\t{'yes' if min(depths) == 0 == depths[-1] else 'no'}\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("brackets")
    (directory / "brackets.py").write_text(block("python"))
    (directory / "brackets.toml").write_text(block("toml"))
    generator = random.Random(1)
    for name, count in (("train.tsv", 3000), ("test.tsv", 200)):
        (directory / name).write_text("".join(example(generator) for _ in range(count)))
    return directory


Brackets = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def brackets(directory: Path, preloaded: Path) -> Brackets:
    """Return a function that runs the file with arguments."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [preloaded / "python", "brackets.py", *arguments],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return call


@pytest.fixture(scope="module")
def run(directory: Path, brackets: Brackets) -> Path:
    result = brackets("train", "brackets.toml", "--tsv", "train.tsv", "--run", "runs/brackets")
    assert result.returncode == 0, result.stderr
    assert "2,950 pairs to train on, 50 to validate on" in result.stderr
    return directory / "runs" / "brackets"


def test_the_file_is_as_short_as_promised() -> None:
    assert len(block("python").splitlines()) <= 120


def test_it_learns_and_is_evaluated(brackets: Brackets, run: Path) -> None:
    result = brackets("evaluate", "runs/brackets", "--strings", "test.tsv", "--json")
    assert result.returncode == 0, result.stderr
    (found,) = json.loads(result.stdout)["runs"]
    assert found["run"] == "runs/brackets"
    assert found["accuracy"] > 0.85, "the most frequent answer alone would have less"


def test_it_resumes_to_the_bit(directory: Path, brackets: Brackets, run: Path) -> None:
    command = ["train", "brackets.toml", "--tsv", "train.tsv", "--run", "runs/again"]
    process = subprocess.Popen(
        [sys.executable, "brackets.py", *command],
        cwd=directory,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step 200  saved"):
            process.kill()
            break
    process.wait()
    process.stderr.close()
    result = brackets(*command)
    assert result.returncode == 0, result.stderr
    assert "going on from step" in result.stderr
    step = "checkpoints/step-00000600/weights.safetensors"
    ours, theirs = (load_file(directory / "runs" / name / step) for name in ("again", "brackets"))
    assert ours.keys() == theirs.keys()
    assert all((ours[name] == theirs[name]).all() for name in ours)


def test_it_is_served(directory: Path, run: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "brackets.py", "serve", "runs/brackets", "--port", "0"],
        cwd=directory,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().removeprefix("serving at ").strip()
        answers = {}
        for text in ("(())", "((("):
            request = urllib.request.Request(
                f"{url}/v1/balanced",
                json.dumps({"q": text}).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                answers[text] = json.load(answer)
        with urllib.request.urlopen(f"{url}/", timeout=30) as page:
            assert b"/static/tasks.js" in page.read()
        with urllib.request.urlopen(f"{url}/v1/tasks", timeout=30) as models:
            (model,) = json.load(models)["models"]
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()
    assert answers == {"(())": {"balanced": True}, "(((": {"balanced": False}}
    assert (model["task"], model["path"]) == ("brackets", "/v1/balanced")
    assert model["panel"]["field"] == "q"


def test_wrong_input_is_one_line(directory: Path, brackets: Brackets) -> None:
    (directory / "wrong.tsv").write_text("()\tyes\n(x)\tno\n")
    result = brackets("train", "brackets.toml", "--tsv", "wrong.tsv", "--run", "runs/wrong")
    assert result.returncode == 2
    assert result.stderr.endswith("wrong.tsv:2: not brackets and yes or no\n")
    assert len(result.stderr.splitlines()) == 1
    assert not (directory / "runs" / "wrong").exists()
    result = brackets("train", "brackets.toml", "--src", "a", "--run", "runs/wrong")
    assert result.returncode == 2
    assert "--src is of another task: brackets takes its strings (--tsv)" in result.stderr
