"""`headwise reproduce table3` and `baseline`: whole tables of tiny models, and going on."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwise.data import ParallelFiles
from headwise.runs.directory import RunDirectory
from headwise.runs.environment import read_sessions
from headwise.training.events import Updated
from headwise.workflows.reproduce import children
from headwise.workflows.reproduce.cell import Training, train_and_measure
from headwise.workflows.train import train
from tests.conftest import Headwise
from tests.small_runs import start, write_text

TINY = (
    "data.vocab_size=320",
    "data.holdout_pairs=20",
    "train.batch_tokens=300",
    "train.log_every_steps=2",
    "decode.beam=1",
    "decode.max_extra_tokens=2",
)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ParallelFiles:
    """Short sentences, and a few longer ones for the test on such."""
    found = write_text(tmp_path_factory.mktemp("text"), pairs=1500)
    for path in (*found.sources, *found.targets):
        lines = path.read_text().splitlines()
        long = [" ".join(lines[n : n + 3]) for n in range(0, 180, 3)]
        path.write_text("".join(f"{line}\n" for line in [*lines, *long]))
    return found


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train here, which saves importing torch for each training."""

    def train_here(_: children.Children, training: Training) -> dict[str, Any]:
        return train_and_measure(Training.from_json(training.to_json().encode()))

    monkeypatch.setattr(children.Children, "train", train_here)


def arguments(verb: str, text: ParallelFiles, out: Path, *more: str) -> list[str]:
    settings = [part for change in TINY for part in ("--set", change)]
    files = ["--src", str(text.sources[0]), "--tgt", str(text.targets[0])]
    return ["reproduce", verb, *files, "--out", str(out), *settings, *more]


def cells(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())["cells"]) if path.exists() else {}


def kill_when(is_time: Callable[[], bool], command: list[str]) -> None:
    """Start a command and kill it, by SIGKILL, once it has come so far."""
    process = start(["-m", "headwise", *command])
    deadline = time.monotonic() + 120
    while not is_time() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    trainings = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(process.pid, signal.SIGKILL)
    _, errors = process.communicate()
    assert is_time(), errors
    while any(map(is_running, trainings)):
        assert time.monotonic() < deadline, "a training has to end with the command"
        time.sleep(0.01)


def is_running(process: str) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


TABLE3 = ("--factor", "16", "--rows", "E", "--tokens", "3000")


def test_some_rows_of_table_3(
    text: ParallelFiles, tmp_path: Path, headwise: Headwise, in_this_process: None
) -> None:
    command = arguments("table3", text, tmp_path, *TABLE3)
    code, output, errors = headwise(*command)
    assert code == 0, errors
    assert "learned positions" in output
    assert "±" in output
    assert "The paper's findings" in output
    assert "Conditions differ" in output
    page = (tmp_path / "table3.html").read_text()
    assert "Here against the paper" in page
    found = json.loads((tmp_path / "table3.json").read_text())
    base, learned = found["rows"]
    assert len(base["perplexities"]) == 2
    assert learned["parameters"] > base["parameters"]
    by_seed = [found["cells"][f"{row}, seed 1"]["tokens"] for row in ("base", "e-learned")]
    assert by_seed[0] == by_seed[1], "rows are trained on the same tokens"

    code, _, errors = headwise(*arguments("table3", text, tmp_path, *TABLE3[:-1], "4000"))
    assert (code, errors.count("\n")) == (2, 1)
    assert "other conditions: budget" in errors


def test_tokens_follow_from_the_minutes_of_base(
    text: ParallelFiles, tmp_path: Path, headwise: Headwise, in_this_process: None
) -> None:
    options = ("--factor", "16", "--rows", "base", "--seeds", "1", "--minutes", "0.005")
    code, output, errors = headwise(*arguments("table3", text, tmp_path, *options))
    assert code == 0, errors
    assert "No intervals" in output
    assert set(cells(tmp_path / "table3.json")) == {"speed of base", "base, seed 1"}


def test_an_unfinished_training_is_resumed(
    text: ParallelFiles, tmp_path: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = arguments("table3", text, tmp_path, *TABLE3[:3], "base", *TABLE3[4:], "--seeds", "1")

    def interrupted(_: children.Children, training: Training) -> dict[str, Any]:
        def on_event(event: object) -> None:
            if isinstance(event, Updated) and event.step == 5:
                raise KeyboardInterrupt

        train(training.config, training.run, data=training.data, on_event=on_event)
        raise AssertionError("it should have been interrupted")

    monkeypatch.setattr(children.Children, "train", interrupted)
    code, _, _ = headwise(*command)
    assert code == 130
    monkeypatch.setattr(children.Children, "train", lambda _, each: train_and_measure(each))
    code, _, errors = headwise(*command)
    assert code == 0, errors
    (run,) = tmp_path.glob("table3-*/base-seed-1")
    sessions = read_sessions(RunDirectory(run).environment_file)
    assert [session["from_step"] for session in sessions] == [0, 4]


def test_a_killed_table_3_goes_on(
    text: ParallelFiles, tmp_path: Path, headwise: Headwise, request: pytest.FixtureRequest
) -> None:
    command = arguments("table3", text, tmp_path, *TABLE3, "--seeds", "1")
    stored = tmp_path / "table3.json"
    kill_when(lambda: "base, seed 1" in cells(stored), command)
    before = cells(stored)["base, seed 1"]
    request.getfixturevalue("in_this_process")
    code, output, errors = headwise(*command)
    assert code == 0, errors
    assert "one seed has no interval" in output
    assert cells(stored)["base, seed 1"] == before
    assert "e-learned, seed 1" in cells(stored)


BASELINE = (
    *("--minutes", "0.01", "--set", "model.d_model=16", "--set", "model.d_ff=32"),
    *("--set", "train.bleu_pairs=4"),
)


def test_the_models_that_the_transformer_replaced(
    text: ParallelFiles, tmp_path: Path, headwise: Headwise, in_this_process: None
) -> None:
    code, output, errors = headwise(*arguments("baseline", text, tmp_path, *BASELINE))
    assert code == 0, errors
    for name in ("Transformer", "Bahdanau", "Sutskever"):
        assert name in output
    assert "which no sentence in training has" in output
    assert "BLEU by length" in (tmp_path / "baseline.html").read_text()
    found = json.loads((tmp_path / "baseline.json").read_text())
    first, *others = found["models"]
    for other in others:
        assert other["parameters"] == pytest.approx(first["parameters"], rel=0.05)
    for model in found["models"]:
        cell = found["cells"][f"{model['name']}, seed 1"]
        assert cell["parameters"] == model["parameters"]
        assert cell["test"]["long"]["sentences"] >= 20

    code, _, errors = headwise(*arguments("baseline", text, tmp_path, *BASELINE, "--jobs", "2"))
    assert (code, errors.count("\n")) == (2, 1)
    assert "other conditions: jobs" in errors


def test_a_text_too_small_for_longer_sentences_is_said(
    tmp_path: Path, headwise: Headwise, in_this_process: None
) -> None:
    small = write_text(tmp_path, pairs=200)
    code, output, errors = headwise(*arguments("baseline", small, tmp_path / "out", *BASELINE))
    assert code == 0, errors
    assert "that test is left out" in errors
    assert "that test is left out" in output


def test_a_killed_baseline_goes_on(
    text: ParallelFiles, tmp_path: Path, headwise: Headwise, request: pytest.FixtureRequest
) -> None:
    command = arguments("baseline", text, tmp_path, *BASELINE)
    stored = tmp_path / "baseline.json"
    kill_when(lambda: "Transformer, seed 1" in cells(stored), command)
    before = cells(stored)["Transformer, seed 1"]
    request.getfixturevalue("in_this_process")
    code, _, errors = headwise(*command)
    assert code == 0, errors
    assert cells(stored)["Transformer, seed 1"] == before
    assert len(cells(stored)) == 3


def test_what_cannot_be_done_is_said_in_a_line(
    text: ParallelFiles, tmp_path: Path, headwise: Headwise
) -> None:
    for wrong, said in (
        (["table3"], "give the text"),
        (arguments("table3", text, tmp_path, "--rows", "F")[1:], "'F' is not one of"),
        (arguments("table3", text, tmp_path, "--tokens", "9", "--minutes", "1")[1:], "not both"),
    ):
        code, output, errors = headwise("reproduce", *wrong)
        assert (code, output, errors.count("\n")) == (2, "", 1)
        assert said in errors
    assert not (tmp_path / "table3.json").exists()


def test_the_error_of_a_training_is_that_of_the_command(
    text: ParallelFiles, tmp_path: Path, headwise: Headwise
) -> None:
    wrong = ("--seeds", "1", "--set", "train.peak_rate=1e30", "--set", "train.clip_norm=0")
    code, _, errors = headwise(*arguments("table3", text, tmp_path, *TABLE3, *wrong))
    assert code == 2
    assert "headwise: base, seed 1: update " in errors
