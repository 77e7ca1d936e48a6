from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from headwise.config import Config
from headwise.errors import CheckpointError, UnsafeFileError
from headwise.runs.checkpoint import read_manifest, read_weights, write_checkpoint
from headwise.runs.checkpoints import average, choose, due_steps, last_good, prune
from headwise.runs.directory import RunDirectory
from headwise.runs.state import TrainingState


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "config.toml").write_text(Config().to_toml())
    (tmp_path / "checkpoints").mkdir()
    return RunDirectory(tmp_path)


def save(
    run: RunDirectory, step: int, loss: float = float("inf"), interrupted: bool = False
) -> None:
    weights = {"w": torch.tensor([float(step), 1.0])}
    state = TrainingState(step=step, valid_loss=loss, interrupted=interrupted)
    write_checkpoint(run.step_directory(step), weights, weights, state)


def save_all(run: RunDirectory, steps: Sequence[int]) -> None:
    for step in steps:
        save(run, step)


def damage(run: RunDirectory, step: int) -> None:
    (run.step_directory(step) / "weights.safetensors").write_bytes(b"x")


def test_training_goes_on_from_the_last_whole_checkpoint(run: RunDirectory) -> None:
    assert last_good(run) == (None, [])
    save_all(run, [10, 20, 30])
    checkpoint, problems = last_good(run)
    assert checkpoint is not None
    assert (checkpoint.state.step, problems) == (30, [])
    damage(run, 30)
    checkpoint, problems = last_good(run)
    assert checkpoint is not None
    assert checkpoint.state.step == 20
    assert len(problems) == 1
    assert "step-00000030/weights.safetensors: damaged" in problems[0]
    assert run.steps() == [10, 20]
    assert (run.checkpoints / "damaged-step-00000030").is_dir()


def test_a_checkpoint_under_another_ones_name_is_not_it(run: RunDirectory) -> None:
    save_all(run, [10, 20])
    run.step_directory(20).rename(run.step_directory(21))
    checkpoint, problems = last_good(run)
    assert checkpoint is not None
    assert checkpoint.state.step == 10
    assert "step-00000021: holds step 20" in problems[0]


def test_a_run_without_any_whole_checkpoint_is_an_error(run: RunDirectory) -> None:
    save_all(run, [10, 20])
    damage(run, 10)
    damage(run, 20)
    with pytest.raises(CheckpointError, match="no checkpoint can be used: .*20.*; .*10.*remove"):
        last_good(run)
    assert run.steps() == [10, 20]


def test_the_average_is_the_mean_of_the_last_that_were_due(run: RunDirectory) -> None:
    save_all(run, [10, 20, 30])
    save(run, 35, interrupted=True)
    save(run, 40)
    assert average(run, 3) == ([20, 30, 40], [])
    assert read_weights(run.averaged)["w"].tolist() == [30.0, 1.0]
    assert read_manifest(run.averaged).notes == {"steps": [20, 30, 40]}
    assert average(run, 9) == ([10, 20, 30, 40], [])
    assert read_weights(run.averaged)["w"].tolist() == [25.0, 1.0]
    assert due_steps(run) == [10, 20, 30, 40]


def test_an_average_passes_over_damage_and_of_nothing_is_an_error(run: RunDirectory) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint to average yet"):
        average(run, 5)
    save_all(run, [10, 20, 30])
    damage(run, 20)
    (run.step_directory(10) / "state.json").write_bytes(b"x")
    steps, (problem,) = average(run, 2)
    assert steps == [30]
    assert "step-00000020/weights.safetensors: damaged" in problem
    damage(run, 30)
    with pytest.raises(CheckpointError, match="to average yet: .*00000030.*; .*00000020"):
        average(run, 2)


def test_the_best_is_one_that_was_validated(run: RunDirectory) -> None:
    save(run, 10, loss=3.0)
    save(run, 20, loss=float("nan"))
    save(run, 30)
    assert choose(run, "best") == run.step_directory(10)


def test_pruning_keeps_the_last_the_best_and_what_is_damaged(run: RunDirectory) -> None:
    save_all(run, [10, 20, 30, 40])
    save(run, 45, interrupted=True)
    save(run, 50)
    (run.step_directory(20) / "state.json").write_bytes(b"x")
    prune(run, keep=2, best=10)
    assert run.steps() == [10, 20, 40, 50]
    save(run, 55, interrupted=True)
    prune(run, keep=2, best=10)
    assert run.steps() == [10, 20, 40, 50, 55]
    assert not [path for path in run.checkpoints.iterdir() if path.name.startswith(".")]


def test_the_weights_to_use_are_the_average_the_best_or_the_last(run: RunDirectory) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        choose(run)
    save_all(run, [10, 20])
    assert choose(run) == run.step_directory(20)
    save(run, 30, loss=2.0)
    save(run, 40, loss=3.0)
    assert choose(run) == choose(run, "best") == run.step_directory(30)
    assert choose(run, "last") == run.step_directory(40)
    assert choose(run, "10") == run.step_directory(10)
    with pytest.raises(CheckpointError, match="averaged does not exist: `headwise average`"):
        choose(run, "averaged")
    average(run, 2)
    assert choose(run) == choose(run, "averaged") == run.averaged
    with pytest.raises(CheckpointError, match="no checkpoint of step 5, but: 10, 20, 30, 40"):
        choose(run, "5")
    with pytest.raises(CheckpointError, match="no checkpoint '../x': it is averaged, best, last"):
        choose(run, "../x")


@pytest.mark.parametrize("name", ["", "state.json", "manifest.json"])
def test_a_symlink_is_not_passed_over_as_damage_is(
    run: RunDirectory, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    save_all(run, [10, 20])
    path = run.step_directory(20) / name
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "moved"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    for act in (
        lambda: last_good(run),
        lambda: choose(run, "best"),
        lambda: average(run, 2),
        lambda: prune(run, keep=1, best=10),
    ):
        with pytest.raises(UnsafeFileError, match=f"{path} is a symlink"):
            act()
    assert elsewhere.exists()
