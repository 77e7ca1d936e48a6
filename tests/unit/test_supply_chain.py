"""What is installed: pinned versions keep the lower bounds, the image and the audit use them."""

import json
import os
import re
import runpy
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
judge = runpy.run_path(str(ROOT / ".ci" / "audit.py"))["judge"]


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_pinned_versions_are_within_the_bounds_of_the_project() -> None:
    versions = pinned()
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    for requirement in map(Requirement, [*PROJECT["dependencies"], *extras]):
        if requirement.name != "headwise":
            version = versions[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), (str(requirement), version)


def test_the_table_of_lower_bounds_is_that_of_the_project() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    table = dict(re.findall(r"^\| ([\w.-]+) \| `([^`]+)` \|", text, re.MULTILINE))
    assert len(table) >= 8
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    stated = {
        requirement.name: requirement.specifier
        for requirement in map(Requirement, [*PROJECT["dependencies"], *extras])
    }
    for name, bound in table.items():
        assert stated[name] == Requirement(f"{name}{bound}").specifier, name


def torch_step(index: str, directory: Path) -> str:
    """Run the image's first step, where pip only prints what it was asked for."""
    pip = directory / "pip"
    pip.write_text('#!/bin/sh\necho "$PIP_INDEX_URL" "$@"\n')
    pip.chmod(0o755)
    (step, *_) = re.findall(r"^RUN (.*)", DOCKERFILE.replace("\\\n", " "), re.MULTILINE)
    path = f"{directory}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-ec", step],
        cwd=ROOT,
        env={"PATH": path, "TORCH_INDEX": index},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_index_of_torch_supplies_torch_alone(tmp_path: Path) -> None:
    asked = shlex.split(torch_step("https://torch.example", tmp_path))
    assert asked[:2] == ["https://torch.example", "install"]
    assert "--no-deps" in asked
    packages = [word for word in asked[2:] if not word.startswith("-")]
    assert packages == [f"torch=={pinned()['torch']}"]
    assert torch_step("", tmp_path) == ""
    assert DOCKERFILE.count("TORCH_INDEX") == 4  # A comment, the ARG, and twice in this step.


def test_the_image_takes_the_pinned_versions() -> None:
    assert "PIP_CONSTRAINT=/app/constraints.txt" in DOCKERFILE
    let_in = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    copied = [
        name
        for line in re.findall(r"^COPY (.*)", DOCKERFILE, re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert "constraints.txt" in copied
    assert let_in[0] == "*"
    assert {f"!{name}" for name in copied} <= set(let_in)


def report(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages})


CLEAN = {"name": "good", "version": "1", "vulns": []}
UNKNOWN = {"name": "odd", "skip_reason": "Dependency not found on PyPI"}
BAD = {"name": "bad", "version": "2", "vulns": [{"id": "CVE-1-2", "fix_versions": ["3"]}]}


@pytest.mark.parametrize(
    ("output", "errors", "code", "line"),
    [
        (report(CLEAN), "", 0, "no known vulnerability in 1 packages"),
        (report(CLEAN, UNKNOWN), "", 0, "not in the database: odd"),
        (report(CLEAN, BAD), "", 1, "bad 2: CVE-1-2, fixed in 3"),
        (report(UNKNOWN, UNKNOWN), "No known vulnerabilities found", 0, "skipped: "),
        ("", "Traceback\nrequests.exceptions.ProxyError: no route", 0, "skipped: "),
        ("", "could not connect within 60 seconds", 0, "skipped: "),
        ("", "usage\nERROR: torch is not pinned", 2, "pip-audit failed: ERROR: torch is not"),
    ],
)
def test_an_audit_fails_for_vulnerabilities_and_says_what_it_could_not_do(
    output: str, errors: str, code: int, line: str
) -> None:
    found, lines = judge(output, errors)
    assert found == code
    assert any(each.startswith(line) for each in lines), lines
