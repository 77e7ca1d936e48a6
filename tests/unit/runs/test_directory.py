import errno
import fcntl
import json
import os
import subprocess
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from headwise.config import Config
from headwise.errors import CheckpointError, UnsafeFileError
from headwise.files import replacing
from headwise.recipes import load_recipe
from headwise.runs.directory import RunDirectory, differences
from headwise.runs.environment import describe, read_sessions, record_session
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


def test_settings_of_one_kind_of_model_alone_are_no_differences() -> None:
    found = differences(Config(), Config.from_dict({"model": {"kind": "recurrent"}}))
    assert "model.kind is 'transformer' there and 'recurrent' here" in found
    assert not any(line.startswith("model.positions ") for line in found)


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
    for number in (other.pid, os.getpid(), os.getppid()):
        (run.path / f".x.{number}.tmp").mkdir()
    with run.locked():
        assert [path.name for path in run.path.iterdir() if path.name.startswith(".x")] == []


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_reported(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(CheckpointError, match="its file system cannot lock files: keep the run on"),
        run.locked(),
    ):
        pass


@pytest.mark.parametrize("name", ["checkpoints", "averaged", "exports", "tensorboard"])
def test_nothing_is_written_through_a_symlink(
    run: RunDirectory, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / ".x.0.tmp").touch()
    (run.path / name).symlink_to(elsewhere)
    with (
        pytest.raises(UnsafeFileError, match=rf"{name} is a symlink.*mount --bind"),
        run.locked(),
    ):
        pass
    assert os.listdir(elsewhere) == [".x.0.tmp"]


def test_the_run_itself_may_be_named_by_a_symlink(run: RunDirectory, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(run.path)
    assert RunDirectory(link).config() == run.config()
    with RunDirectory(link).locked():
        pass


def test_a_report_that_is_being_written_survives_the_lock(run: RunDirectory) -> None:
    with replacing(run.path / "report.html") as file:
        file.write(b"page")
        with run.locked():
            pass
    assert (run.path / "report.html").read_bytes() == b"page"


def test_a_lock_that_is_a_link_changes_nothing_elsewhere(run: RunDirectory, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("precious")
    (run.path / ".lock").symlink_to(other)
    with (
        pytest.raises(UnsafeFileError, match=r"\.lock is a symlink"),
        run.locked(),
    ):
        pass
    assert other.read_text() == "precious"
    (run.path / ".lock").unlink()
    os.mkfifo(run.path / ".lock")
    with pytest.raises(UnsafeFileError, match=r"\.lock is a FIFO"), run.locked():
        pass


def test_a_diary_that_is_a_link_leads_nowhere(run: RunDirectory, tmp_path: Path) -> None:
    run.metrics_file.symlink_to(tmp_path / "other")
    with pytest.raises(UnsafeFileError, match=r"metrics\.jsonl is a symlink"):
        MetricsFile(run.metrics_file, step=0)
    assert not (tmp_path / "other").exists()


def test_names_that_are_not_steps_are_not_taken_for_them(run: RunDirectory) -> None:
    for name in (
        "step-00000010",
        "step-0000000010",
        "step-5",
        "step-\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661",
        "damaged-step-00000007",
        ".step-00000008.1.tmp",
    ):
        (run.checkpoints / name).mkdir(parents=True)
    assert run.steps() == [10]


def test_a_session_on_another_machine_is_reported(run: RunDirectory) -> None:
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


@pytest.mark.parametrize(
    "change",
    [
        {"step": 10**30},
        {"step": -1},
        {"loss": 10**400},
        {"loss": [1]},
        {f"k{n}": 1 for n in range(99)},
    ],
)
def test_numbers_out_of_range_are_not_metrics(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(line(10) | change) + "\n")
    with pytest.raises(CheckpointError, match="metrics.jsonl:1: not a line of metrics"):
        read_metrics(path)


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(line(10)) + "\n")
    os.truncate(path, 500_000_000)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=r"metrics.jsonl:2: .* more than 4,096 bytes"):
        read_metrics(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20
    os.truncate(path, 2**30 + 1)
    with pytest.raises(UnsafeFileError, match=r"metrics.jsonl is too large: 1,073,741,825 bytes"):
        read_metrics(path)


def test_of_a_very_long_diary_lines_are_left_out_evenly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwise.runs.metrics._MOST_LINES", 20)
    path = tmp_path / "metrics.jsonl"
    lines = [line(step, "valid" if step % 40 == 0 else "train") for step in range(400)]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    found = read_metrics(path)
    assert len(found) <= 20
    assert [each["step"] for each in found if each["kind"] == "valid"] == list(range(0, 400, 40))
    steps = [each["step"] for each in found if each["kind"] == "train"]
    apart = [after - before for before, after in pairwise(steps)]
    assert max(apart) - min(apart) <= 2, "two at most: a line of validation may lie between"


def test_only_plain_values_of_a_session_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    assert read_sessions(path) == []
    session = {
        "torch": "2.0",
        "threads": 3,
        "cpu": "x" * 10_000,
        "cores": 10**400,
        "python": [1],
        "numpy": None,
    }
    path.write_text(json.dumps({"sessions": [session, 7, "x"]}))
    assert read_sessions(path) == [{"torch": "2.0", "threads": 3}]
    for text in ("{", "[]", '{"sessions": 3}', "[" * 100_000):
        path.write_text(text)
        assert read_sessions(path) == []
