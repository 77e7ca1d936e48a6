"""What the documents claim is so: symbols and tests exist, commands and code run."""

import ast
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAPER = (ROOT / "docs" / "paper.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
ROWS = [row for row in PAPER.splitlines() if row.startswith(("| §", "| Table"))]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_map_covers_every_section() -> None:
    sections = {row.split("|")[1].split(",")[0].strip() for row in ROWS}
    assert sections >= {
        *(f"§3.{part}" for part in ("1", "2.1", "2.2", "2.3", "3", "4", "5")),
        "§5.3",
        "§5.4",
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


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_commands_of_the_readme_run() -> None:
    commands = [
        shlex.split(line, comments=True)
        for line in "".join(blocks("sh")).splitlines()
        if line.startswith("headwise ")
    ]
    assert len(commands) >= 3
    for command in commands:
        result = subprocess.run(
            [sys.executable, "-m", *command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert result.returncode == 0, (command, result.stderr)
        assert result.stdout


def test_the_python_of_the_readme_runs() -> None:
    (code,) = blocks("python")
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert re.fullmatch(r"3,\d{3},\d{3} parameters, \d+\.\d nats a token\n", result.stdout)


def test_the_map_of_the_readme_names_what_is_there() -> None:
    for path in re.findall(r"^\| `([^`]+)` \|", README, re.MULTILINE):
        assert (ROOT / path).exists(), path


def test_documents_link_only_to_files_that_exist() -> None:
    for document in ROOT.glob("*.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text("utf-8")):
            assert (ROOT / target).exists(), f"{document.name} links to {target}"
