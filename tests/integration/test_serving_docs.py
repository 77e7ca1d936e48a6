"""The documentation of the server is correct: its examples, and the container's commands."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from headwise.serving.keys import Keys, add_key
from headwise.serving.limits import Limits
from tests.generators import served_generator
from tests.servers import running, served, start_serve
from tests.unit.tasks.test_generator import make_generator

ROOT = Path(__file__).parents[2]
DOCUMENTS = {name: (ROOT / name).read_text("utf-8") for name in ("README.md", "docs/serving.md")}


def curls(document: str) -> list[str]:
    """Return the curl commands of a document, each on one line."""
    blocks = re.findall(r"```sh\n(.*?)```", document, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith("curl ")]


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_the_examples_with_curl_work(trained_run: Path, tmp_path: Path) -> None:
    commands = [command for document in DOCUMENTS.values() for command in curls(document)]
    assert len(commands) >= 12
    key = add_key(tmp_path / "keys", "reader")
    model = served(trained_run, source="en", target="de")
    language_model = served_generator(make_generator())
    with (
        running([model, language_model]) as free,
        running([model], keys=Keys(tmp_path / "keys")) as guarded,
    ):
        for command in commands:
            server = guarded if "$KEY" in command else free
            result = subprocess.run(
                ["sh", "-c", f"{command.replace('http://127.0.0.1:8000', server.url)} --silent"],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
                env=os.environ | {"KEY": key},
            )
            answers = [result.stdout]
            if '"stream": true' in command:
                *answers, last, _ = result.stdout.replace("data: ", "").split("\n\n")
                assert last == "[DONE]"
            assert answers
            assert all("error" not in json.loads(answer) for answer in answers), command


def test_the_documented_limits_are_the_defaults() -> None:
    document, limits = DOCUMENTS["docs/serving.md"], Limits()
    assert f"{limits.characters:,}: `--max-characters`" in document
    assert f"{limits.queue:,}: `--max-queue`" in document
    assert f"{limits.deadline:g} s: `--deadline`" in document
    assert f"header, body | {limits.read_seconds:g} s each" in document
    assert f"beam, candidates | {limits.candidates} |" in document
    assert f"continuations of a prompt | {limits.candidates} |" in document
    assert f"{limits.cost:,} tokens: `--max-cost`" in document
    assert f"{limits.requests}: `--max-requests`" in document
    assert f"alignment | {limits.attention_weights:,} |" in document
    assert limits.rate is None
    assert limits.hang_seconds == 60
    assert f"{limits.connections}: `--max-connections`" in document
    assert f"time to take an answer | {limits.answer_seconds:g} s" in document
    assert (
        f"{limits.all_bodies_bytes // 10**6} MB; {limits.keyless_bodies_bytes // 10**6} MB for"
        in document
    )
    assert f"of all together | {limits.all_answers_bytes // 10**6} MB |" in document
    assert f"({limits.stop_seconds:g} seconds for that)" in document
    assert f"{limits.body_bytes // 1000} kB, counted" in document
    assert limits.body_bytes == 20 * limits.characters


def instructions() -> dict[str, str]:
    """Return what the Dockerfile says, by its words; of those that come again, the last."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split(" ", 1) for line in lines)


def test_the_containers_commands_work(trained_run: Path, tmp_path: Path) -> None:
    found = instructions()
    program, verb, *options = json.loads(found["ENTRYPOINT"])
    assert (program, verb) == ("headwise", "serve")
    assert options[options.index("--port") + 1] == found["EXPOSE"] == "8000"
    options[options.index("--port") + 1] = "0"
    with start_serve(trained_run, tmp_path, *options) as server:
        check = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
        assert (check[0], "/healthz" in check[2]) == ("python", True)
        check[0] = sys.executable
        for port, code in ((server.port, 0), (1, 1)):
            command = [part.replace(":8000/", f":{port}/") for part in check]
            assert subprocess.run(command, capture_output=True, check=False).returncode == code
        lines = server.log.read_text().splitlines()
        # It cannot know that the container's networks are not the machine's.
        assert len([line for line in lines if line.startswith("warning: 0.0.0.0 ")]) == 2


def test_the_container_copies_existing_files() -> None:
    found = instructions()
    text = (ROOT / "Dockerfile").read_text("utf-8")
    for line in re.findall(r"^COPY (.*)", text, re.MULTILINE):
        for name in shlex.split(line)[:-1]:
            assert (ROOT / name).exists()
    assert found["USER"] == "headwise"
    assert "useradd --uid 10001 headwise" in found["RUN"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (extras,) = re.findall(r"'\.\[(.*?)\]'", found["RUN"])
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    minimum = project["requires-python"].removeprefix(">=").split(".")
    assert found["FROM"] == "${BASE}"
    (version,) = re.findall(r"^ARG BASE=python:([\d.]+)-slim$", text, re.MULTILINE)
    assert version.split(".") >= minimum
