"""Commands that serve every task, and those that serve translation only, on a run of another."""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwise.config import TASKS, Config, DataConfig, DecodeConfig, TaskRow, Vocab
from headwise.files import Folder
from headwise.runs.directory import RunDirectory
from headwise.tasks.report import Cell, Contents, Figure
from headwise.training.task import Progress
from tests.conftest import VOCAB, Headwise
from tests.decoder_only import TextReader

HOSTILE = "<img src=x onerror=alert(1)>"
BARE = Contents(does="reads")


class ReadingTask:
    """What attention and report need of a task, and no more."""

    name = "reading"
    contents = BARE

    def vocab(self, config: Config, folder: Folder | None) -> Vocab:
        return VOCAB

    def predictor(self, run: Path, *, checkpoint: str | None = None) -> TextReader:
        return TextReader()

    def report_contents(
        self,
        run: RunDirectory,
        predictor: TextReader,
        values: Mapping[str, Any],
        on_progress: Progress,
    ) -> Contents:
        assert not any(values.values())
        on_progress("reading", 1, 1)
        return self.contents


TASK = ReadingTask()


@pytest.fixture
def run(trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of the task: another's, by its config."""
    row = TaskRow(
        data=DataConfig,
        decode=DecodeConfig,
        module=f"{__name__}:TASK",
        verb="read",
        assembly="decoder",
        inputs="headwise.tasks.translation.inputs:INPUTS",
    )
    monkeypatch.setitem(TASKS, "reading", row)
    run = tmp_path / "run"
    shutil.copytree(trained_run, run)
    config = run / "config.toml"
    config.write_text(config.read_text().replace('task = "translation"', 'task = "reading"'))
    return run


def test_attention_is_that_of_the_tasks_own_predictor(
    run: Path, tmp_path: Path, headwise: Headwise
) -> None:
    out = tmp_path / "a.html"
    code, output, errors = headwise("attention", str(run), "an owl", "--out", str(out))
    assert (code, output, errors) == (0, "", f"using drawn weights\nwrote {out}\n")
    data = json.loads(out.read_text("utf-8").partition('id="page-data">')[2].partition("</")[0])
    assert data["records"][0]["target"] == "an owl"
    assert data["choice"] == {"kind": "decoder", "layer": 0}
    out.unlink()
    for options, message in (
        (["--target", "x"], f"--target needs a model with an encoder: {run} has none"),
        (["--kind", "cross"], "there is no cross attention: the model has decoder attention"),
    ):
        code, output, errors = headwise(
            "attention", str(run), "an owl", "--out", str(out), *options
        )
        assert (code, output) == (2, "")
        assert errors.splitlines()[-1].startswith(f"headwise: {message}")
        assert not out.exists()


def test_the_report_shows_what_the_task_says(
    run: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = Contents(
        title="Reader",
        does="continues text",
        trained_on=(12_345, "tokens"),
        scores=(Figure(name="Bits a byte", value="1.75"), Figure(name="B", value="2", more="b")),
        about_scores="Measured by `headwise evaluate`.",
        notes=(f"Over {HOSTILE} `{HOSTILE}`",),
        samples=(
            (
                Cell(label="Prompt", text=f"an {HOSTILE}", language="en"),
                Cell(label="Continued", text="owl\nsat", language="en", is_output=True),
            ),
        ),
        about_samples="From the validation text.",
        traced=("an owl sat", "an oak"),
        commands=(("Go on:", "headwise read RUN"),),
    )
    monkeypatch.setattr(ReadingTask, "contents", contents)
    code, _, errors = headwise("report", str(run))
    assert code == 0, errors
    page = (run / "report.html").read_text("utf-8")
    hidden = HOSTILE.replace("<", "&lt;").replace(">", "&gt;")
    for part in (
        "<h1>Reader</h1>",
        "parameters that continues text, trained for",
        "on 12,345 tokens.</p>",
        "<dt>Trained on</dt><dd>12,345<small>tokens</small></dd>",
        '<div class="first"><dt>Bits a byte</dt><dd>1.75</dd></div>',
        "<p>Measured by <code>headwise evaluate</code>.</p>",
        f'<p class="note">Over {hidden} <code>{hidden}</code></p>',
        f'<div><dt>Prompt</dt><dd lang="en" dir="auto">an {hidden}</dd></div>',
        '<div class="ours"><dt>Continued</dt><dd lang="en" dir="auto">owl<br>sat</dd></div>',
        "<p>Go on:</p>",
    ):
        assert part in page
    assert HOSTILE not in page
    data = json.loads(page.partition('id="page-data">')[2].partition("</script>")[0])
    assert [record["target"] for record in data["records"]] == ["an owl sat", "an oak"]
    assert [record["cross"] for record in data["records"]] == [[], []]


def test_what_the_task_leaves_out_the_page_leaves_out(run: Path, headwise: Headwise) -> None:
    code, _, errors = headwise("report", str(run))
    assert code == 0, errors
    page = (run / "report.html").read_text("utf-8")
    assert "<h1>run</h1>" in page
    for section in ("score", "examples", "attention", "next"):
        assert f'href="#{section}"' not in page
    for section in ("curves", "recipe", "machine"):
        assert f'href="#{section}"' in page


def test_a_test_set_of_translation_is_not_the_tasks(run: Path, headwise: Headwise) -> None:
    code, output, errors = headwise("report", str(run), "--src", "a", "--ref", "b")
    assert (code, output) == (2, "")
    assert errors.startswith(f"headwise: --src is of another task: {run} is reading.")


def test_a_task_without_predictor_report_or_attention_is_named(
    run: Path, tmp_path: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = ["attention", str(run), "an owl", "--out", str(tmp_path / "a.html")]
    report = ["report", str(run)]
    monkeypatch.setattr(sys.modules[__name__], "TASK", Silent())
    assert complaint(headwise(*attention)) == "shows no attention"
    assert complaint(headwise(*report)) == "has no report"
    monkeypatch.setattr(sys.modules[__name__], "TASK", object())
    assert complaint(headwise(*attention)) == "has no predictor"
    assert complaint(headwise(*report)) == "has no predictor"


class Silent:
    """A task whose predictor has a name and nothing else."""

    def predictor(self, run: Path, *, checkpoint: str | None = None) -> object:
        return SimpleNamespace(name="weights")


def complaint(result: tuple[int, str, str]) -> str:
    """Return what the task is said not to have."""
    code, output, errors = result
    assert (code, output) == (2, "")
    start, _, missing = errors.splitlines()[-1].partition(" is a run of reading, which ")
    assert start.startswith("headwise: ")
    return missing


@pytest.mark.parametrize(
    "arguments",
    [
        ("translate",),
        ("translate", "--engine", "ctranslate2"),
        ("export", "--to", "ctranslate2"),
    ],
)
def test_translations_own_verbs_name_the_right_one(
    run: Path, headwise: Headwise, arguments: tuple[str, ...]
) -> None:
    verb, *options = arguments
    code, output, errors = headwise(verb, str(run), *options)
    assert (code, output) == (2, "")
    assert errors == f"headwise: {run} is a run of reading: use `headwise read {run}`\n"
