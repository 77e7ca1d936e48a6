import shutil
from pathlib import Path

import pytest

from headwise.errors import CheckpointError
from headwise.runs.checkpoint import read_weights, write_weights
from headwise.runs.directory import RunDirectory
from headwise.tasks.translation import trained
from headwise.tasks.translation.trained import load_model


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> RunDirectory:
    shutil.copytree(trained_run, tmp_path / "run")
    return RunDirectory(tmp_path / "run")


def set_to(run: RunDirectory, key: str, before: object, after: object) -> None:
    text = run.config_file.read_text("utf-8")
    assert f"\n{key} = {before}\n" in text
    run.config_file.write_text(text.replace(f"\n{key} = {before}\n", f"\n{key} = {after}\n"))


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [("d_model", 32, 2**20), ("num_layers", 1, 1000), ("d_k", 16, 2**40)],
)
def test_a_config_of_another_size_is_refused_before_a_model_is_made(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, key: str, before: int, after: int
) -> None:
    monkeypatch.setattr(trained, "build_model", lambda *_: pytest.fail("a model was made"))
    set_to(run, key, before, after)
    with pytest.raises(
        CheckpointError, match=r"has [\d,]+ parameters, and .*config\.toml .* describes"
    ):
        load_model(run)


def test_weights_of_the_same_size_and_other_shapes_are_refused(run: RunDirectory) -> None:
    weights = read_weights(run.averaged)
    name = next(name for name, weight in weights.items() if weight.dim() == 2)
    changed = {key: weight.clone() for key, weight in weights.items()}
    changed[name] = changed[name].t().contiguous()
    shutil.rmtree(run.averaged)
    run.averaged.mkdir()
    write_weights(run.averaged, changed, {})
    with pytest.raises(CheckpointError, match="has shape .* not .*: it is of another model"):
        load_model(run)
