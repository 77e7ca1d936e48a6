"""Processes that are killed, told to stop, or run out of disk, at any moment."""

import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from headwise.config import AnyConfig
from headwise.data import ParallelFiles
from headwise.runs.checkpoint import read_checkpoint
from headwise.runs.directory import RunDirectory
from headwise.signals import SAME_SECONDS
from headwise.tasks.classification.files import LabelledFiles
from headwise.tasks.language_model.files import TextFiles
from headwise.tasks.parsing.files import TreeFiles
from headwise.workflows.train import train
from tests.small_runs import (
    command,
    digests,
    small_class_config,
    small_config,
    small_text_config,
    small_tree_config,
    small_vector_config,
    start,
    write_book,
    write_images,
    write_labelled,
    write_text,
    write_trees,
)

# Large enough that much of the time goes into saving, where a kill would do harm.
SETTINGS = ("train.max_steps=24", "train.save_every_steps=1", "model.d_model=64", "model.d_ff=512")


def finish(process: "subprocess.Popen[str]", timeout: float = 60) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=timeout)
    return process.returncode, output, errors


def wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 60
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ParallelFiles:
    return write_text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def undisturbed(text: ParallelFiles, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    run = tmp_path_factory.mktemp("runs") / "undisturbed"
    train(small_config(*SETTINGS), run, text=text)
    return digests(run)


def kill_again_and_again(
    run: Path,
    text: ParallelFiles | TextFiles | TreeFiles | LabelledFiles,
    kills: int,
    seed: int,
) -> int:
    """Kill at random moments, checking each time that what is there can be used.

    Return how often: the run may come to its end before.
    """
    generator = random.Random(seed)
    for killed in range(kills):
        process = start(command(run, text, *SETTINGS))
        wait_for(run / ".lock", process)
        steps = RunDirectory(run).steps() if run.exists() else []
        before = steps[-1] if steps else 0
        # From when it has begun to train: importing torch takes longer than all of that.
        next_step = run / "checkpoints" / f"step-{before + 1:08}"
        wait_for(next_step, process)
        time.sleep(generator.random() * 0.3)
        process.kill()
        process.communicate()
        steps = RunDirectory(run).steps()
        assert steps, "a save was seen, so there is something to go on from"
        assert steps[-1] >= before
        for step in steps:
            read_checkpoint(RunDirectory(run).step_directory(step))
        if process.returncode != -signal.SIGKILL:
            return killed
    return kills


def test_a_run_killed_again_and_again_ends_as_if_it_had_not_been(
    undisturbed: dict[str, str], text: ParallelFiles, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    killed = kill_again_and_again(run, text, kills=3, seed=1)
    assert killed, "the run ended before its first kill came: nothing was tried"
    code, output, errors = finish(start(command(run, text, *SETTINGS)))
    assert code == 0, errors
    assert "finished at step 24" in output
    assert digests(run) == undisturbed
    assert [p.name for p in run.iterdir() if p.name.startswith(".")] == [".lock"]
    assert not [p for p in (run / "checkpoints").iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize(
    ("write", "config"),
    [
        (write_book, small_text_config),
        (write_trees, small_tree_config),
        (write_labelled, small_class_config),
        (write_images, partial(small_vector_config, "vit-tiny")),
    ],
)
def test_a_run_of_another_task_that_was_killed_ends_as_if_it_had_not_been(
    write: Callable[[Path], TextFiles | TreeFiles | LabelledFiles],
    config: Callable[..., AnyConfig],
    tmp_path: Path,
) -> None:
    files, run = write(tmp_path), tmp_path / "run"
    train(config(*SETTINGS), tmp_path / "undisturbed", text=files)
    killed = kill_again_and_again(run, files, kills=1, seed=1)
    assert killed, "the run ended before its first kill came: nothing was tried"
    train(config(*SETTINGS), run, text=files)
    assert digests(run) == digests(tmp_path / "undisturbed")


@pytest.mark.slow
def test_two_hundred_kills_leave_nothing_unusable(
    undisturbed: dict[str, str], text: ParallelFiles, tmp_path: Path
) -> None:
    kills = number = 0
    while kills < 200:
        number += 1
        run = tmp_path / f"run-{number}"
        killed = kill_again_and_again(run, text, kills=5, seed=number)
        assert killed, "a run ended before its first kill came: nothing was tried"
        kills += killed
        code, _, errors = finish(start(command(run, text, *SETTINGS)))
        assert code == 0, errors
        assert digests(run) == undisturbed


def test_a_kill_while_the_text_is_prepared_leaves_no_run_behind(
    text: ParallelFiles, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = tmp_path / "run"
    # A text that does not end, nor begin.
    endless = tmp_path_factory.mktemp("text") / "pipe"
    os.mkfifo(endless)
    process = start(command(run, replace(text, sources=(endless,)), *SETTINGS))
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".run.*.tmp")) and time.monotonic() < deadline:
        time.sleep(0.002)
    assert process.poll() is None
    process.kill()
    process.communicate()
    assert not run.exists()
    code, _, errors = finish(start(command(run, text, *SETTINGS, "train.max_steps=1")))
    assert code == 0, errors
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_exits_with_its_code(
    text: ParallelFiles, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    run = tmp_path / "run"
    changes = ("train.max_steps=100000", "train.save_every_steps=0")
    process = start(command(run, text, *changes))
    wait_for(run / "metrics.jsonl", process)
    time.sleep(0.3)
    process.send_signal(number)
    found, output, errors = finish(process)
    assert found == code, errors
    (step,) = RunDirectory(run).steps()
    assert output == f"stopped: saved step {step:,}; the same command goes on from there\n"
    assert "Traceback" not in errors


# Not the model's forward pass: the estimate before training calls that, too, when signals still end
# the process.
_STEP_THAT_DOES_NOT_END = """
import time
from pathlib import Path
from headwise.training.loop import TrainingLoop
def accumulate(*_):
    Path("begun").touch()
    time.sleep(60)
TrainingLoop._accumulate = accumulate
from headwise.cli import main
main()
"""


def test_a_second_signal_exits_at_once(text: ParallelFiles, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = command(run, text)
    assert arguments[:2] == ["-m", "headwise"]
    process = start(["-c", _STEP_THAT_DOES_NOT_END, *arguments[2:]], cwd=tmp_path)
    wait_for(tmp_path / "begun", process)
    process.send_signal(signal.SIGTERM)
    time.sleep(SAME_SECONDS + 0.2)
    process.send_signal(signal.SIGTERM)
    code, output, _ = finish(process, timeout=20)
    assert (code, output) == (143, ""), "it did not wait for the batch, nor say that it saved"
    assert RunDirectory(run).steps() == []


def test_a_full_disk_is_said_and_the_last_checkpoint_is_intact(
    text: ParallelFiles, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    changes = ("train.max_steps=100000", "train.save_every_steps=4")
    process = start(command(run, text, *changes))
    wait_for(run / "checkpoints" / "step-00000004", process)
    process.kill()
    process.communicate()
    last = RunDirectory(run).steps()[-1]
    small = start(
        command(run, text, *changes),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000)),
    )
    code, output, errors = finish(small)
    assert (code, output) == (2, "")
    said = errors.strip().splitlines()[-1]
    assert "cannot be saved: File too large: the last good checkpoint is" in said
    assert said.endswith(f"step-{last:08}")
    assert RunDirectory(run).steps()[-1] == last
    assert not [p for p in (run / "checkpoints").iterdir() if p.name.startswith(".")]
    read_checkpoint(RunDirectory(run).step_directory(last))
