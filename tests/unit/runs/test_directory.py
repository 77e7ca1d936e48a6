import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headwise.config import Config
from headwise.errors import CheckpointError
from headwise.recipes import load_recipe
from headwise.runs.directory import RunDirectory, differences
from headwise.runs.environment import describe, record_session
from headwise.runs.metrics import MetricsFile, read_metrics


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "config.toml").write_text(load_recipe("big").to_toml())
    return RunDirectory(tmp_path)


def test_a_directory_without_a_config_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="none does not exist: `headwise train"):
        RunDirectory(tmp_path / "none")
    with pytest.raises(CheckpointError, match="is not a run directory"):
        RunDirectory(tmp_path)


def test_a_runs_config_is_what_it_was_made_with(run: RunDirectory) -> None:
    assert run.config() == load_recipe("big")
    run.config_file.write_text("format_version = 2")
    with pytest.raises(CheckpointError, match="config.toml: format_version = 2 is newer"):
        run.config()


def test_differences_name_key_and_both_values() -> None:
    assert differences(Config(), Config()) == []
    assert differences(Config(), load_recipe("base", ["train.seed=2", "model.d_ff=64"])) == [
        "model.d_ff is 2048 there and 64 here",
        "train.seed is 1 there and 2 here",
    ]


def test_only_one_process_at_a_time_writes_to_a_run(run: RunDirectory) -> None:
    code = (
        "import sys; from pathlib import Path; from headwise.runs.directory import RunDirectory\n"
        f"with RunDirectory(Path({str(run.path)!r})).locked():\n"
        "    print('in', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdin is not None
    assert other.stdout.readline() == "in\n"
    busy = pytest.raises(CheckpointError, match="another process is writing to this run")
    with busy, run.locked():
        pass
    other.kill()
    other.communicate()
    # Whoever's number it is: nobody else can be writing.
    for number in (other.pid, os.getpid(), os.getppid()):
        (run.path / f".x.{number}.tmp").mkdir()
    with run.locked():
        assert [path.name for path in run.path.iterdir() if path.name.startswith(".x")] == []


def test_a_lock_that_is_a_link_changes_nothing_elsewhere(run: RunDirectory, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("precious")
    (run.path / ".lock").symlink_to(other)
    with (
        pytest.raises(CheckpointError, match=r"\.lock: cannot be locked: it is a link"),
        run.locked(),
    ):
        pass
    assert other.read_text() == "precious"
    (run.path / ".lock").unlink()
    os.mkfifo(run.path / ".lock")
    with run.locked():
        pass


def test_a_diary_that_is_a_link_leads_nowhere(run: RunDirectory, tmp_path: Path) -> None:
    run.metrics_file.symlink_to(tmp_path / "other")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl: cannot be written: it is a link"):
        MetricsFile(run.metrics_file, step=0)
    assert not (tmp_path / "other").exists()


def test_names_that_are_not_steps_are_not_taken_for_them(run: RunDirectory) -> None:
    for name in ("step-00000010", "step-5", "damaged-step-00000007", ".step-00000008.1.tmp"):
        (run.checkpoints / name).mkdir(parents=True)
    assert run.steps() == [10]


def test_a_session_on_another_machine_is_told(run: RunDirectory) -> None:
    session = describe(torch.device("cpu"), 1)
    assert session["torch"] == torch.__version__
    assert session["threads"] == torch.get_num_threads()
    assert record_session(run, session, 0) == []
    assert record_session(run, session, 10) == []
    assert record_session(run, session | {"threads": 7, "torch": "9.9"}, 20) == [
        f"torch was {torch.__version__!r} in the last session and is '9.9' now",
        f"threads was {session['threads']} in the last session and is 7 now",
    ]
    sessions = json.loads(run.environment_file.read_text())["sessions"]
    assert [s["from_step"] for s in sessions] == [0, 10, 20]


def line(step: int, kind: str = "train") -> dict[str, object]:
    return {"kind": kind, "step": step, "loss": 1.5}


def test_metrics_go_on_after_the_step_that_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = MetricsFile(path, step=0)
    for step in (10, 20, 30):
        first.add(line(step))
    first.close()
    with path.open("a") as file:
        file.write('{"kind": "train", "st')  # Its writer was killed in the middle of a line.
    assert [values["step"] for values in read_metrics(path)] == [10, 20, 30]
    second = MetricsFile(path, step=20)
    second.add(line(30, "valid"))
    second.sync()
    second.close()
    assert read_metrics(path) == [line(10), line(20), line(30, "valid")]
    assert os.listdir(tmp_path) == ["metrics.jsonl"]


@pytest.mark.parametrize(
    "text", ["nonsense\n", "[]\n", '{"kind": "x", "step": 1}\n', '{"kind": "train"}\n', "\n"]
)
def test_a_wrong_line_of_metrics_is_named_and_stops_no_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(line(10)) + "\n" + text)
    with pytest.raises(CheckpointError, match="metrics.jsonl:2: not"):
        read_metrics(path)
    file = MetricsFile(path, step=10)
    file.close()
    assert file.unreadable == 1
    assert read_metrics(path) == [line(10)]
