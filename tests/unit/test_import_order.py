"""The order in which parts may import each other, and what may be imported at all at the start."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "headwise"

ORDER = [
    {"errors"},
    {
        "checks",
        "durations",
        "files",
        "garbage",
        "languages",
        "machine",
        "seeding",
        "signals",
        "visible",
    },
    {"config"},
    {"recipes"},
    {"paper"},
    {"model", "data"},
    {"runs"},
    {"decoding"},
    {"evaluation"},
    {"training"},
    {"tasks"},
    {"inspect", "interop"},
    {"serving"},
    {"workflows"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}


def imports_of(path: Path) -> list[str]:
    """List the top-level parts of headwise that a file imports, wherever in it they stand."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import on line {node.lineno}"
            names = [node.module or ""]
            if node.module == "headwise":
                names = [f"headwise.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found += [name.split(".")[1] for name in names if name.startswith("headwise.")]
    return found


def violations(source: Path) -> list[str]:
    """Describe every import that goes uphill or sideways."""
    found = []
    for path in sorted(source.rglob("*.py")):
        relative = path.relative_to(source)
        part = relative.parts[0].removesuffix(".py")
        if part.startswith("__"):
            continue  # The package's own face and `python -m headwise` may see everything.
        for imported in imports_of(path):
            if imported.startswith("__") or imported == part:
                continue
            if RANK[imported] >= RANK[part]:
                found.append(f"{relative} imports {imported}")
    return found


def test_every_part_has_its_place() -> None:
    parts = {p.name.removesuffix(".py") for p in SOURCE.iterdir() if p.suffix in ("", ".py")}
    assert {p for p in parts if not p.startswith("__")} <= set(RANK)


def test_imports_go_downhill_only() -> None:
    assert violations(SOURCE) == []


def test_an_uphill_import_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "bad.py").write_text("def f():\n    from headwise.training import adam\n")
    (tmp_path / "config.py").write_text("from headwise import model\n")
    assert violations(tmp_path) == ["config.py imports model", "model/bad.py imports training"]


def test_importing_headwise_and_its_command_line_imports_no_torch() -> None:
    code = (
        "import sys, headwise, headwise.cli; print('torch' in sys.modules, 'rich' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False False\n"
