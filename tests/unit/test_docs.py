"""What the documents claim is so: symbols and tests exist, commands and code run."""

import ast
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click
import pytest

from headwise.data.trees import read_trees
from tests.small_runs import (
    CLASS_SETTINGS,
    IMAGE_SETTINGS,
    SETTINGS,
    SOUND_SETTINGS,
    TEXT_SETTINGS,
    TREE_SETTINGS,
    write_book,
    write_images,
    write_labelled,
    write_sounds,
    write_text,
    write_trees,
)
from tests.transcribed import LINE_SETTINGS, write_lines, write_spoken
from tests.transcribed import SOUND_SETTINGS as SPOKEN_SETTINGS

ROOT = Path(__file__).parents[2]
PAPER = (ROOT / "docs" / "paper.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
TRAINING = (ROOT / "docs" / "training.md").read_text("utf-8")
PARSING = (ROOT / "docs" / "parsing.md").read_text("utf-8")
TRANSCRIPTION = (ROOT / "docs" / "transcription.md").read_text("utf-8")
CLASSIFICATION = (ROOT / "docs" / "classification.md").read_text("utf-8")
LANGUAGE_MODEL = (ROOT / "docs" / "language-model.md").read_text("utf-8")
MASKED = (ROOT / "docs" / "masked-language-model.md").read_text("utf-8")
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
TRANSCRIBED_IMAGES = {"--image-column", "--text-column"}
TRANSCRIBED_SOUNDS = {"--audio-column", "--text-column"}
ROWS = [row for row in PAPER.splitlines() if row.startswith(("| §", "| Table", "| Figure"))]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_map_covers_every_section() -> None:
    sections = {row.split("|")[1].split(",")[0].strip() for row in ROWS}
    assert sections >= {
        *(f"§3.{part}" for part in ("1", "2.1", "2.2", "2.3", "3", "4", "5")),
        *(f"§5.{part}" for part in ("1", "2", "3", "4")),
        "§6.1",
        "§6.3",
    }


@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_the_map_names_a_symbol_and_a_test_that_exist(row: str) -> None:
    _, _, _, symbols, tests, _, _ = row.split("|")
    assert names(symbols)
    assert names(tests)
    for symbol in names(symbols):
        resolve(symbol)
    for test in names(tests):
        path, name = test.split("::")
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        assert name in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, test


def resolve(symbol: str) -> object:
    """Import the longest module in a dotted name and look the rest up in it."""
    parts = symbol.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"no module in {symbol}")


def test_a_symbol_that_does_not_exist_would_be_found() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        resolve("headwise.model.Nothing")


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", document, re.DOTALL)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A folder with the files that the documents speak of."""
    parallel = write_text(tmp_path)
    for part in ("train", "test"):
        shutil.copy(parallel.sources[0], tmp_path / f"{part}.en")
        shutil.copy(parallel.targets[0], tmp_path / f"{part}.de")
    shutil.copy(write_book(tmp_path).paths[0], tmp_path / "test.txt")
    for part, seed, count in (("train", 1, 120), ("dev", 2, 10), ("test", 3, 10)):
        write_trees(tmp_path, count, seed).paths[0].rename(tmp_path / f"{part}.mrg")
    for part, count in (("train", 240), ("test", 20)):
        labelled = write_labelled(tmp_path, count, seed=count).paths[0]
        labelled.rename(tmp_path / f"{part}.csv")
    for part, count in (("train", 60), ("test", 12)):
        write_images(tmp_path, count, seed=count).paths[0].rename(tmp_path / f"digits-{part}")
    (tmp_path / "digits").mkdir()
    for part in ("train", "test"):
        (tmp_path / f"digits-{part}").rename(tmp_path / "digits" / part)
    for number, name in enumerate(("seven", "three")):
        image = next((tmp_path / "digits" / "test").rglob(f"{number}.png"))
        shutil.copy(image, tmp_path / f"{name}.png")
    (table,) = write_sounds(tmp_path, 40).paths
    (tmp_path / "clips.csv").write_text(table.read_text().replace("pitch", "word"))
    shutil.copy(tmp_path / "sounds-1" / "1.wav", tmp_path / "clip.wav")
    for name, seed, count in (("lines", 1, 60), ("test-lines", 2, 12)):
        write_lines(tmp_path, count, seed).paths[0].rename(tmp_path / f"{name}.csv")
    shutil.copy(tmp_path / "lines-1" / "1.png", tmp_path / "line.png")
    (table,) = write_spoken(tmp_path, 60).paths
    (tmp_path / "spoken.csv").write_text(table.read_text().replace("\t", ","))
    shutil.copy(tmp_path / "spoken-1" / "1.wav", tmp_path / "talk.wav")
    words = [found.tree.words() for found in read_trees(tmp_path / "test.mrg")]
    (tmp_path / "reviews.txt").write_text("ban bara\nkan\n")
    (tmp_path / "sentences.txt").write_text("".join(f"{' '.join(each)}\n" for each in words))
    return tmp_path


@pytest.mark.parametrize(
    "document",
    [README, TRAINING, LANGUAGE_MODEL, PARSING, CLASSIFICATION, TRANSCRIPTION],
    ids=["README", "training", "language-model", "parsing", "classification", "transcription"],
)
def test_the_commands_of_a_document_run_in_their_order(
    document: str, text: Path, preloaded: Path
) -> None:
    commands = [
        shlex.split(line, comments=True)
        for line in "".join(blocks(document, "sh")).splitlines()
        if line.startswith("headwise ")
    ]
    assert len(commands) >= 3
    for command in commands:
        if command[1] in ("train", "doctor") and "--src" in command:  # As little as can be.
            command += [part for change in SETTINGS for part in ("--set", change)]
        elif command[1] in ("train", "doctor") and "--text" in command:
            command += [part for change in TEXT_SETTINGS for part in ("--set", change)]
        elif command[1] in ("train", "doctor") and "--trees" in command:
            command += [part for change in TREE_SETTINGS for part in ("--set", change)]
        elif command[1] in ("train", "doctor") and set(command) >= TRANSCRIBED_IMAGES:
            command += [part for change in LINE_SETTINGS for part in ("--set", change)]
        elif command[1] == "train" and set(command) >= TRANSCRIBED_SOUNDS:
            command += [part for change in SPOKEN_SETTINGS for part in ("--set", change)]
        elif command[1] == "train" and "--images" in command:
            command += [part for change in IMAGE_SETTINGS for part in ("--set", change)]
        elif command[1] == "train" and "--audio-column" in command:
            command += [part for change in SOUND_SETTINGS for part in ("--set", change)]
        elif command[1] in ("train", "doctor") and "--table" in command:
            command += [part for change in CLASS_SETTINGS for part in ("--set", change)]
    for verb in commands:
        result = subprocess.run(
            [str(preloaded / "headwise"), *verb[1:]],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=text,
        )
        assert result.returncode == 0, f"{verb}: {result.stderr}"


RunPython = Callable[[str, Path], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_python(preloaded: Path) -> RunPython:
    """Return a function that runs an example as a reader would: saved as a file."""

    def run(code: str, directory: Path) -> "subprocess.CompletedProcess[str]":
        (directory / "example.py").write_text(code)
        return subprocess.run(
            [str(preloaded / "python"), "-W", "error", "example.py"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=directory,
        )

    return run


def test_the_python_of_the_training_guide_runs(text: Path, run_python: RunPython) -> None:
    (code,) = blocks(TRAINING, "python")
    code = code.replace('["train.max_minutes=3"]', repr([*SETTINGS, "train.decay_by=steps"]))
    result = run_python(code, text)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("12 train.max_steps = 12 ValidationResult(")


def test_the_python_of_the_language_model_guide_runs(
    trained_lm: Path, tmp_path: Path, run_python: RunPython
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "lm").symlink_to(trained_lm)
    (code,) = blocks(LANGUAGE_MODEL, "python")
    result = run_python(code, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith(" bits a byte\n")


def test_the_python_of_the_parsing_guide_runs(
    trained_parser: Path, tmp_path: Path, run_python: RunPython
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "parse").symlink_to(trained_parser)
    (code,) = blocks(PARSING, "python")
    result = run_python(code, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("(")
    assert result.stdout.endswith(" .\n")


def test_the_python_of_the_classification_guide_runs(
    trained_classifier: Path, tmp_path: Path, run_python: RunPython
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "reviews").symlink_to(trained_classifier)
    (code,) = blocks(CLASSIFICATION, "python")
    result = run_python(code, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    *_, last = result.stdout.splitlines()
    assert last.startswith("('hill', 'river', 'wood') [[")


def test_the_python_of_the_transcription_guide_runs(
    trained_reader: Path, tmp_path: Path, run_python: RunPython
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "read").symlink_to(trained_reader)
    write_lines(tmp_path, count=2)
    for number, name in enumerate(("line", "other")):
        shutil.copy(tmp_path / "lines-1" / f"{number}.png", tmp_path / f"{name}.png")
    (code,) = blocks(TRANSCRIPTION, "python")
    result = run_python(code, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == 2


def test_the_python_of_the_masked_language_model_guide_runs(
    trained_masked: Path, tmp_path: Path, run_python: RunPython
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "bert").symlink_to(trained_masked)
    (code,) = blocks(MASKED, "python")
    result = run_python(code, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("Guess(token=") == 3


def test_the_pipe_of_the_readme_translates(trained_run: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "ende").symlink_to(trained_run)
    (line,) = [line for line in README.splitlines() if line.startswith("printf")]
    assert line == r"printf 'A man .\n' | headwise translate runs/ende"
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert result.stdout.count("\n") == 1
    assert result.stdout.strip()
    assert result.stderr == "using runs/ende/averaged\n"


def test_the_python_of_the_readme_translates(
    trained_run: Path, tmp_path: Path, run_python: RunPython
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "ende").symlink_to(trained_run)
    code, _ = blocks(README, "python")
    result = run_python(code, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == 2


def test_the_python_of_the_readme_runs(tmp_path: Path, run_python: RunPython) -> None:
    _, code = blocks(README, "python")
    result = run_python(code, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert re.fullmatch(r"3,\d{3},\d{3} parameters, \d+\.\d nats a token\n", result.stdout)


def test_the_map_of_the_readme_names_what_is_there() -> None:
    tree = README.partition("## Map")[2].partition("```text\n")[2].partition("```")[0]
    assert tree.startswith("src/headwise/")
    parents: list[str] = []
    named = set()
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        parents = [*parents[:depth], line.split()[0]]
        assert ROOT.joinpath(*parents).exists(), line
        named.add(ROOT.joinpath(*parents))
    parts = {path for path in (ROOT / "src/headwise").iterdir() if not path.name.startswith("__")}
    assert parts - {ROOT / "src/headwise/py.typed"} <= named


def test_documents_link_only_to_files_that_exist() -> None:
    for document in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text("utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_tutorial_works_as_printed(preloaded: Path, tmp_path: Path) -> None:
    # The one thing that is not as printed, so that it takes seconds.
    short = TUTORIAL.replace("max_steps = 600", "max_steps = 12")
    assert short != TUTORIAL
    path = f"{preloaded}{os.pathsep}{os.environ['PATH']}"
    work = tmp_path / "work"
    work.mkdir()
    for language, block in re.findall(r"```(sh|python|toml)\n(.*?)```", short, re.DOTALL):
        if language != "sh":  # A file, whose name is in its first line.
            (work / block.split()[1]).write_text(block, "utf-8")
            continue
        result = subprocess.run(
            ["sh", "-e", "-c", block],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=work,
            env={**os.environ, "PATH": path},
        )
        assert result.returncode == 0, f"{block}\n{result.stderr}"
    for name in ("out.de", "fast.de"):
        assert len((work / name).read_text("utf-8").splitlines()) == 100
    assert (work / "both.html").stat().st_size > 1000


CLI_PAGE = runpy.run_path(str(ROOT / "docs" / "cli.py"))["page"]


@pytest.mark.parametrize("columns", ["40", "200"])
def test_the_page_of_commands_says_what_they_say(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stored = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert stored == CLI_PAGE(), "docs/cli.md is stale: run `make docs`"


def test_the_page_of_commands_takes_up_a_new_one() -> None:
    @click.group(help="Do things.", epilog="\b\nExamples:\n  tool walk --far   a long way")
    def tool() -> None: ...

    @tool.command(epilog="\b\nExamples:\n  tool walk\n    on\n\nMind\nthe gap.")
    @click.argument("where")
    @click.option("--speed", type=click.Choice(["slow", "fast"]), help="How fast.")
    @click.option("--secret", hidden=True)
    def walk(where: str, speed: str, secret: str) -> None:
        """Walk to WHERE.

        Look around.
        """

    assert (
        CLI_PAGE(tool, "tool").partition("not this.\n\n")[2]
        == """Do things.

Examples:

```text
tool walk --far   a long way
```

| command | what it does |
|---|---|
| [`tool walk`](#tool-walk) | Walk to WHERE. |

## tool walk

```text
tool walk [OPTIONS] WHERE
```

Walk to WHERE.

Look around.

| option | what it does |
|---|---|
| `--speed [slow\\|fast]` | How fast. |

Examples:

```text
tool walk
  on
```

Mind the gap.
"""
    )
