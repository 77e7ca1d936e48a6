"""A run and files with names, languages and content made to act on a terminal: all is escaped."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Headwise
from tests.small_runs import SETTINGS, write_text

NAME = "run\x1b[2J\nheadwise: done\r\x9b31m\u202e[red]<img src=x>"
SHOWN = r"run\x1b[2J\nheadwise: done\r\x9b31m\u202e[red]<img src=x>"
LANGUAGE = '"x\\u001b[31m\\n\\u202e\\"><img src=x>"'

Run = Callable[..., str]


@pytest.fixture
def hostile(trained_run: Path, tmp_path: Path) -> Path:
    run = tmp_path / NAME
    shutil.copytree(trained_run, run)
    config = (run / "config.toml").read_text("utf-8")
    for side in ("source", "target"):
        config = config.replace(f'{side}_language = ""', f"{side}_language = {LANGUAGE}")
    assert LANGUAGE in config
    (run / "config.toml").write_text(config, "utf-8")
    return run


@pytest.fixture
def printed(headwise: Headwise) -> Run:
    """Return a function that runs a command, and gives what it printed if that is harmless."""

    def run(*arguments: str | Path, code: int = 0) -> str:
        found, out, errors = headwise(*map(str, arguments))
        assert found == code, errors
        for line in (out + errors).split("\n"):
            assert line.replace("\t", "").isprintable(), line  # Tabs are only in a --tsv.
            assert not line.startswith("headwise: done"), "a name made a line of its own"
        return out + errors

    return run


def test_translating_and_looking(hostile: Path, tmp_path: Path, printed: Run) -> None:
    text, out = tmp_path / "in\x1b[1A", tmp_path / "out\x1b[1A"
    text.write_text("bana dora\n")
    said = printed("translate", hostile, "--input", text, "--output", out)
    assert said == f"using {tmp_path}/{SHOWN}/averaged\n"
    text.write_bytes(b"ba\xff\n")
    said = printed("translate", hostile, "--input", text, "--output", out, code=2)
    assert f"headwise: {tmp_path}/in\\x1b[1A:1: not UTF-8 text" in said
    page = tmp_path / "page\x1b[1A\n.html"
    said = printed("attention", hostile, "<img\x1b[", "--out", page)
    assert said.endswith(f"wrote {tmp_path}/page\\x1b[1A\\n.html\n")
    assert "<img" not in page.read_text("utf-8")
    assert SHOWN in printed("plot", hostile, "--out", hostile / "curves.html")
    curves = (hostile / "curves.html").read_text("utf-8")
    assert "<img" not in curves
    assert curves.replace("\n", "").isprintable()


def test_scoring(hostile: Path, tmp_path: Path, printed: Run) -> None:
    other = tmp_path / f"{NAME}2"
    shutil.copytree(hostile, other)
    source, reference = tmp_path / "s", tmp_path / "r\x1b[1A"
    source.write_text("bana dora\n" * 3)
    reference.write_text("dora bana\n" * 3)
    files = ("--src", source, "--ref", reference)
    assert f"{SHOWN}/averaged: perplexity" in printed("evaluate", hostile, *files)
    said = printed("evaluate", hostile, other, *files)
    assert f"{SHOWN}2" in said
    assert f"* differs from {tmp_path}/{SHOWN} (p <" in said
    found = json.loads(printed("evaluate", hostile, *files, "--json"))
    assert found["runs"][0]["run"] == str(hostile)
    assert SHOWN in printed("report", hostile, *files)
    assert "<img" not in (hostile / "report.html").read_text("utf-8")
    language = ("--language", "x\x1b[31m\ny\t")
    assert r"Moses BLEU (x\x1b[31m\ny\t)" in printed("score", reference, reference, *language)
    table = printed("score", reference, reference, *language, "--tsv")
    assert {line.count("\t") for line in table.splitlines()} == {4}
    assert r"Moses BLEU (x\x1b[31m\ny\t), lower-cased" in table


def test_other_engines_and_machines(hostile: Path, tmp_path: Path, printed: Run) -> None:
    pytest.importorskip("ctranslate2")
    said = printed("export", hostile, "--to", "ctranslate2")
    assert f"exported {tmp_path}/{SHOWN}/averaged as int8: {tmp_path}/{SHOWN}/exports/" in said
    recipe = hostile / "config.toml"
    assert f"recipe    {tmp_path}/{SHOWN}/config.toml: " in printed("doctor", recipe)


def test_damaged_files_of_a_run(hostile: Path, printed: Run) -> None:
    assert SHOWN in printed("average", hostile)
    (hostile / "metrics.jsonl").write_text('{"kind": "\x1b[2J"\x1b\n')
    assert f"{SHOWN}/metrics.jsonl:1: not JSON" in printed(
        "plot", hostile, "--out", hostile / "curves.html", code=2
    )
    (hostile / "config.toml").write_text('[data]\n"\\u001b[2J\\n" = 1\n')
    assert f"{SHOWN}/config.toml: unknown key" in printed("translate", hostile, code=2)
    (hostile / "config.toml").write_text('[train]\nschedule = "\\u001b[2J"\n')
    assert r"train.schedule = '\x1b[2J' must be one of" in printed("translate", hostile, code=2)
    (hostile / "config.toml").unlink()
    assert f"{SHOWN} is not a run directory" in printed("translate", hostile, code=2)


def test_preparing_and_training(tmp_path: Path, printed: Run) -> None:
    text = write_text(tmp_path, pairs=200)
    source, target = (tmp_path / f"t\x1b[1A\n\udce9.{side}" for side in ("src", "tgt"))
    shutil.copy(text.sources[0], source)
    shutil.copy(text.targets[0], target)
    source.write_bytes(b"\xff\n" + source.read_bytes().partition(b"\n")[2])
    files = ("--src", source, "--tgt", target)
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    assert r"t\x1b[1A\n\udce9.src:1: not UTF-8 text" in printed(
        "prepare", *files, *settings, "--out", tmp_path / NAME, code=2
    )
    run = ("--run", tmp_path / NAME)
    said = printed("train", *files, *settings, *run, "--lenient")
    assert rf"not readable ({tmp_path}/t\x1b[1A\n\udce9.src:1)" in said
    assert f"saved {tmp_path}/{SHOWN}/checkpoints/step-" in said
    assert f"finished at step 12 (train.max_steps = 12): {tmp_path}/{SHOWN}\n" in said
    assert SHOWN in printed("train", *run, "--set", "train.max_steps=13", code=2)


def test_serving(hostile: Path, printed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import headwise.serving.server

    monkeypatch.setattr(
        headwise.serving.server, "serve", lambda _, __, announce: announce("http://\x1b[2J")
    )
    said = printed("serve", hostile, "--port", "0")
    assert f"using {hostile.parent}/{SHOWN}/averaged\n" in said
    assert r'x\x1b[31m\n\u202e"><img src=x> to x\x1b[31m\n\u202e' in said
    assert r"serving at http://\x1b[2J" in said
