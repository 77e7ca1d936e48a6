"""`headwise train`, `average` and `doctor` as people type them."""

import json
from pathlib import Path

import pytest
import torch

from headwise.data import ParallelFiles
from headwise.runs.checkpoint import read_manifest
from headwise.runs.directory import RunDirectory
from tests.conftest import Headwise
from tests.small_runs import SETTINGS, command, start, write_text


def in_process(arguments: list[str]) -> tuple[int, str, str]:
    """Run Python as a user would, in a process of its own."""
    process = start(arguments)
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ParallelFiles:
    return write_text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def finished(text: ParallelFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    code, output, errors = in_process([*command(run, text), "--tensorboard"])
    assert code == 0, errors
    lines = output.splitlines()
    assert lines[0] == f"finished at step 12 (train.max_steps = 12): {run}"
    assert lines[1].startswith("best validation loss ")
    assert lines[2].startswith("averaged the last 3 checkpoints: validation loss ")
    assert f"saved {run}/checkpoints/step-00000004" in errors
    assert "pairs to train on" in errors
    assert "perplexity" in errors
    assert "tokens/s" in errors
    assert "Warning" not in errors
    return run


def test_going_on_needs_only_the_run(finished: Path, headwise: Headwise) -> None:
    code, output, errors = headwise("train", "--run", str(finished))
    assert code == 0, errors
    assert output.startswith("finished at step 12")
    assert "going on from step 12" in errors


def test_other_settings_are_listed_in_one_line(
    finished: Path, text: ParallelFiles, headwise: Headwise
) -> None:
    _, _, *arguments = command(finished, text, "train.seed=4", "model.d_ff=32")
    code, output, errors = headwise(*arguments)
    assert (code, output) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith(f"headwise: {finished} is another run: ")
    assert "model.d_ff is 24 there and 32 here; train.seed is 1 there and 4 here" in line


def test_tensorboard_has_the_figures(finished: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(finished / "tensorboard"))
    events.Reload()
    assert {"train/loss", "valid/perplexity"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("train/loss")] == [3, 6, 9, 12]
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    written = [event.value for event in events.Scalars("train/loss")]
    assert written == pytest.approx(losses, rel=1e-6)


def test_average_writes_what_it_says(finished: Path, headwise: Headwise) -> None:
    code, output, errors = headwise("average", str(finished), "--last", "2")
    assert (code, errors) == (0, "")
    assert output == f"averaged 2 checkpoints (steps 8, 12): {finished}/averaged\n"
    assert read_manifest(RunDirectory(finished).averaged).notes == {"steps": [8, 12]}
    code, output, errors = headwise("average", str(finished), "--last", "9")
    assert "averaged 3 checkpoints, all there are of the 9 asked for (steps 4, 8, 12)" in output
    code, output, errors = headwise("average", str(finished / "none"))
    assert (code, output) == (2, "")
    assert "none does not exist" in errors


def test_plot_takes_a_run(finished: Path, tmp_path: Path, headwise: Headwise) -> None:
    page = tmp_path / "curves.html"
    code, _, errors = headwise("plot", str(finished), "--out", str(page))
    assert code == 0, errors
    assert "<svg" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--run", "r"], "r is a new run: give its text"),
        (["nonsense", "--run", "r"], "no recipe and no file 'nonsense'"),
        (["--src", "a", "--run", "r"], "1 source files and 0 target files"),
        (["--src", "a", "--tgt", "b", "--run", "r"], "a: cannot be read: No such file"),
        (
            ["--src", "a", "--tgt", "b", "--data", "d", "--run", "r"],
            "either files to train on or --data",
        ),
        (["--data", "d", "--run", "r"], "manifest.json: cannot be read"),
        (["--data", "d", "--run", "r", "--device", "warp"], "--device warp: torch knows no such"),
        (["--data", "d", "--run", "r", "--device", "cuda"], "--device cuda: this torch sees no"),
        (["--data", "d", "--run", "r", "--device", "meta"], "--device meta: cannot be used here"),
        (["--data", "d", "--run", "r", "--init-from", "x"], "x does not exist"),
        ([], "Missing option '--run'"),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    headwise: Headwise,
    arguments: list[str],
    complaint: str,
) -> None:
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    monkeypatch.chdir(tmp_path)
    code, output, errors = headwise("train", *arguments)
    assert (code, output) == (2, "")
    assert len(errors.splitlines()) == 1
    assert complaint in errors
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_is_not_finite_names_the_update(
    text: ParallelFiles, tmp_path: Path, headwise: Headwise
) -> None:
    wild = ("train.schedule=linear", "train.peak_rate=1e30", "train.warmup_steps=1")
    _, _, *arguments = command(tmp_path / "run", text, *wild)
    code, output, errors = headwise(*arguments)
    assert (code, output) == (2, "")
    last = errors.splitlines()[-1]
    assert "headwise: update 2, epoch 1, batch 2 (pairs" in last
    assert "stopped before the update; there is no checkpoint yet" in last


def test_doctor_says_what_a_run_takes_and_what_is_wrong_with_a_text(
    tmp_path: Path, headwise: Headwise
) -> None:
    parallel = write_text(tmp_path)
    source, target = parallel.sources[0], parallel.targets[0]
    source.write_bytes(source.read_bytes() + b"\n" + b"ban\xff\n" + b"dora\0\n")
    target.write_bytes(target.read_bytes() + b"ban\n" * 3)
    settings = [part for change in SETTINGS for part in ("--set", change)]
    files = ["--src", str(source), "--tgt", str(target)]
    before = sorted(tmp_path.iterdir())
    code, output, errors = headwise("doctor", "base", *files, *settings)
    assert code == 0, errors
    assert sorted(tmp_path.iterdir()) == before
    lines = output.splitlines()
    assert [line.split()[0] for line in lines[:6]] == [
        "machine",
        "software",
        "speed",
        "recipe",
        "needs",
        "files",
    ]
    assert "183 pairs to train on, 17 to validate on" in lines[5]
    assert f"left out 1 of 203 pairs: an empty side ({source}:201)" in output
    assert f"left out 1 of 203 pairs: not readable ({source}:202)" in output
    assert f"left out 1 of 203 pairs: a NUL character ({source}:203)" in output


def test_doctor_warns_of_the_absurd(headwise: Headwise) -> None:
    settings = ["--set", "train.max_steps=2000000000", "--set", "train.batch_tokens=4000000000"]
    small = [part for change in SETTINGS[2:6] for part in ("--set", change)]
    code, output, _ = headwise("doctor", *small, *settings)
    assert code == 0
    warnings = [line for line in output.splitlines() if line.startswith("warning")]
    assert len(warnings) == 2
    assert "`headwise train multi30k-tiny` fits" in warnings[0]
    assert "lower train.batch_tokens" in warnings[1]


def test_python_can_do_it_in_a_few_lines(text: ParallelFiles, tmp_path: Path) -> None:
    code = f"""
from headwise import Config, ParallelFiles, load_recipe, train
text = ParallelFiles.of({str(text.sources[0])!r}, [{str(text.targets[0])!r}])
config = load_recipe("base", {list(SETTINGS)!r})
assert isinstance(config, Config)
report = train(config, {str(tmp_path / "run")!r}, text=text)
print(report.state.step, report.reason)
"""
    assert in_process(["-c", code]) == (0, "12 train.max_steps = 12\n", "")
