"""Run directories from strangers: one clear error, nothing written elsewhere, little memory."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

from headwise.interop.ctranslate2.export import export
from headwise.runs.directory import RunDirectory
from headwise.workflows.serve import load_served
from headwise.workflows.translators import load_translator
from tests.conftest import Headwise
from tests.hostile_runs import Case, cases

CASES = cases()

SOME = CASES[::8]
"""Spread over the whole table, which is ordered by kind."""

_MOST_SECONDS = 120
"""A safety net only: what reads a FIFO or a terabyte would not end."""

_MOST_MIB = 200


@dataclass(frozen=True)
class Good:
    """A run without fault, and how it translates a text."""

    run: Path
    text: Path
    translations: dict[str, bytes]
    """By the name of the weights."""


@pytest.fixture(scope="module")
def good(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Good:
    directory = tmp_path_factory.mktemp("good")
    run, text = directory / "run", directory / "text"
    shutil.copytree(trained_run, run, ignore=shutil.ignore_patterns("exports", "report.html"))
    for name in ("step-00000050", "step-00000100"):
        shutil.rmtree(run / "checkpoints" / name, ignore_errors=True)
    export(RunDirectory(run), None, "float32")
    scores = {"sentences": 3, "bleu": {"value": 12.5}}
    (run / "scores.json").write_text(json.dumps(scores))
    text.write_text("ban dora kuti\nkon ban\n")
    translators = [
        *(load_translator(run, checkpoint=which) for which in ("averaged", "150", "200")),
        load_translator(run, engine="ctranslate2"),
    ]
    translations = {}
    for translator in translators:
        found = translator.translate(text.read_text("utf-8").splitlines())
        lines = "".join(f"{translation.text}\n" for translation in found)
        translations[Path(translator.name).name] = lines.encode()
    return Good(run=run, text=text, translations=translations)


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `serve` end once its models are loaded."""
    monkeypatch.setattr("headwise.serving.server.serve", lambda *_: None)


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    def late(*_: FrameType | int | None) -> None:
        raise TimeoutError("the command does not end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(_MOST_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def snapshot(directory: Path) -> dict[str, bytes | str]:
    """What is in a directory: the content of its files, and where its symlinks lead."""
    return {
        str(path.relative_to(directory)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        for path in directory.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def memory_mib(key: str) -> float:
    """Read VmRSS, or VmHWM, the largest value it had."""
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {key} in /proc/self/status")


def peak_mib(act: Callable[[], None]) -> float:
    """Return by how much memory grew at most meanwhile; 0 where the kernel does not tell."""
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        act()
        return 0.0
    reset.write_text("5")  # VmHWM begins anew.
    before = memory_mib("VmRSS")
    act()
    return memory_mib("VmHWM") - before


def check(case: Case, good: Good, directory: Path, headwise: Headwise) -> str:
    """Give a command a wrong run; return what it said, or nothing if it succeeded."""
    run, outside, out = directory / "run", directory / "outside", directory / "out"
    shutil.copytree(good.run, run)
    outside.mkdir()
    (outside / "file").write_bytes(b"precious")
    case.mutate(run / case.place, outside)
    before = snapshot(outside)
    places = {"run": run, "text": good.text, "out": out}
    found: list[tuple[int, str, str]] = []
    command = [part.format(**places) for part in case.command]
    grown = peak_mib(lambda: found.append(headwise(*command)))
    ((code, output, errors),) = found
    assert grown < _MOST_MIB, errors
    assert snapshot(outside) == before, "something outside the run was changed"
    assert {path.name for path in directory.iterdir()} <= {"run", "outside", "out"}
    assert "Traceback" not in errors
    said = [line for line in errors.splitlines() if line.startswith("headwise: ")]
    if code == 2:
        assert len(said) == 1, errors
        assert len(said[0]) < 2000
        assert output == ""
        return said[0]
    assert code == 0, errors
    assert not case.must_fail, f"it succeeded: {output}{errors}"
    if out.exists():
        used = errors.splitlines()[0].removeprefix("using ")
        assert out.read_bytes() == good.translations[Path(used).name]
    return ""


def test_a_card_has_finite_numbers_only(good: Good, tmp_path: Path) -> None:
    shutil.copytree(good.run, tmp_path / "run")
    line = '{"kind": "valid", "step": 7, "minutes": Infinity, "bleu": NaN, "perplexity": "x"}\n'
    (tmp_path / "run" / "metrics.jsonl").write_text(line)
    (served,) = load_served([tmp_path / "run"])
    assert served.card["training"] == {"steps": 7}
    assert served.card["test"] == {"sentences": 3, "bleu": 12.5}


def test_memory_is_measured() -> None:
    if Path("/proc/self/clear_refs").exists():
        assert 40 < peak_mib(lambda: bytearray(50 << 20).clear()) < 100


def test_there_are_two_hundred_cases() -> None:
    assert len(CASES) >= 200
    assert 25 <= len(SOME) <= 50


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_a_hostile_run_is_refused_in_one_line(
    case: Case, good: Good, tmp_path: Path, headwise: Headwise
) -> None:
    check(case, good, tmp_path, headwise)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_hostile_run_is_refused_in_one_line(
    case: Case, good: Good, tmp_path: Path, headwise: Headwise
) -> None:
    check(case, good, tmp_path, headwise)
