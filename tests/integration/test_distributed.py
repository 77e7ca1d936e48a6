"""Two processes under torchrun are one process with accumulation 2, and survive each other."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headwise.data import ParallelFiles
from headwise.runs.checkpoint import read_weights
from headwise.runs.metrics import read_metrics
from headwise.workflows.train import train
from tests.small_runs import (
    command,
    digests,
    small_config,
    small_text_config,
    start,
    write_book,
    write_text,
)

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ROOT = Path(__file__).parents[2]

RunTwo = Callable[[list[str]], str]


@pytest.fixture
def run_two(preloaded: Path) -> RunTwo:
    """Return a function that runs two processes of Python to their end: arguments in, stdout out.

    None of them imports torch again. So signals would not reach them.
    """

    def call(arguments: list[str]) -> str:
        python = str(preloaded / "python")
        command = [python, *TORCHRUN, "--no-python", python, *arguments]
        result = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    return call


@pytest.mark.usefixtures("double")
def test_two_processes_are_one_for_a_language_model_too(tmp_path: Path, run_two: RunTwo) -> None:
    book = write_book(tmp_path)
    worker = ["-m", "tests.double_worker", str(tmp_path / "two"), str(book.paths[0])]
    run_two(worker)
    train(small_text_config("train.accumulate=2"), tmp_path / "one", text=book)
    step = "checkpoints/step-00000012"
    two, one = read_weights(tmp_path / "two" / step), read_weights(tmp_path / "one" / step)
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=0, atol=1e-9)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ParallelFiles:
    return write_text(tmp_path_factory.mktemp("text"))


def losses(run: Path) -> list[tuple[str, int, float]]:
    lines = read_metrics(run / "metrics.jsonl")
    return [(line["kind"], line["step"], line["loss"]) for line in lines]


def test_two_processes_are_one_with_accumulation_2_in_double_precision(
    text: ParallelFiles, tmp_path: Path, double: None, run_two: RunTwo
) -> None:
    """Dropout on: it is keyed by the batch, whichever process has it."""
    files = [str(text.sources[0]), str(text.targets[0])]
    worker = ["-m", "tests.double_worker", str(tmp_path / "two"), *files]
    run_two(worker)
    train(small_config("train.accumulate=2"), tmp_path / "one", text=text)
    step = "checkpoints/step-00000012"
    two, one = read_weights(tmp_path / "two" / step), read_weights(tmp_path / "one" / step)
    assert one["source_embedding.weight"].dtype == torch.float64
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=0, atol=1e-9)
    for ours, theirs in zip(losses(tmp_path / "two"), losses(tmp_path / "one"), strict=True):
        assert ours[:2] == theirs[:2]
        assert ours[2] == pytest.approx(theirs[2], abs=1e-9)


def children(parent: int) -> list[int]:
    listed = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True)
    return [int(line) for line in listed.stdout.split()]


def test_a_killed_worker_is_started_again_and_nothing_is_lost(
    text: ParallelFiles, tmp_path: Path, run_two: RunTwo
) -> None:
    settings = ("train.max_steps=80", "train.accumulate=2")
    output = run_two(command(tmp_path / "undisturbed", text, *settings))
    assert output.count("finished at step 80") == 1, "one process speaks"

    run = tmp_path / "run"
    process = start([*TORCHRUN, "--max-restarts", "1", *command(run, text, *settings)], cwd=ROOT)
    deadline = time.monotonic() + 60
    while not (run / "checkpoints/step-00000004").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    workers = children(process.pid)
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGKILL)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "finished at step 80" in output
    assert "going on from step" in errors
    assert digests(run) == digests(tmp_path / "undisturbed")

    # And the losses are those of one process with twice the accumulation.
    alone = small_config("train.max_steps=80", "train.accumulate=4")
    train(alone, tmp_path / "alone", text=text)
    pairs = zip(losses(tmp_path / "undisturbed"), losses(tmp_path / "alone"), strict=True)
    for ours, theirs in pairs:
        assert ours[:2] == theirs[:2]
        assert ours[2] == pytest.approx(theirs[2], rel=1e-4)
