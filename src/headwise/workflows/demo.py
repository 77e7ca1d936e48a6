"""The demo: get text, train a model, score it on held-out sentences, and show some of them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwise.config import Config
from headwise.data.prepare import Progress
from headwise.errors import ConfigError, DownloadError
from headwise.files import replace_file
from headwise.runs.directory import RunDirectory
from headwise.runs.state import TrainingState
from headwise.tasks.table import load_task
from headwise.tasks.translation.report import UNSEEN, Sample, contents_of
from headwise.tasks.translation.scores import RunScores, evaluate_translator
from headwise.tasks.translation.translator import Translator
from headwise.training.events import Event
from headwise.workflows.demo_runs import (
    DATA,
    SAMPLES,
    check_space,
    finished,
    remove_demo,
    timed_recipe,
    writing_in,
)
from headwise.workflows.demo_tasks import TASKS, DemoTask, TaskName
from headwise.workflows.demo_text import DemoText, get_text
from headwise.workflows.report import write_report
from headwise.workflows.runs import Inputs, check_same
from headwise.workflows.train import train

_EXPLORED = 4


@dataclass(frozen=True, kw_only=True)
class DemoTraining:
    """A demo whose training has ended or was stopped."""

    run: RunDirectory
    text: DemoText
    state: TrainingState
    is_new: bool
    """False for a demo that was trained before, and is only shown."""
    signal: int = 0
    """The signal that stopped training, or 0."""


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """The results of a trained demo."""

    training: DemoTraining
    scores: RunScores
    exact: float
    """The share of sentences whose translation equals one of the references."""
    samples: list[Sample]
    """The first of them."""
    translator: Translator
    page: Path
    """The report, as a page."""


def train_demo(
    run: Path | None,
    *,
    task: TaskName | None = None,
    minutes: float | None = None,
    overrides: Sequence[str] = (),
    fresh: bool = False,
    say: Callable[[str], None] = lambda _: None,
    on_event: Callable[[Event], None] = lambda _: None,
    on_progress: Progress = lambda *_: None,
) -> DemoTraining:
    """Get the text of a task and train on it for some minutes, or continue an earlier demo.

    The default task is the run's, else "tatoeba", or "numbers" if that cannot be downloaded. The
    default minutes are the run's, else the recipe's.
    """
    path = run or _default_run(TASKS[task or "tatoeba"])
    there = _task_of(path)
    known = task or there
    chosen = TASKS[known or "tatoeba"]
    with writing_in(path.parent):
        try:
            text = _text(chosen, path, say)
        except DownloadError as error:
            if known is not None:
                raise
            chosen = TASKS["numbers"]
            path = run or _default_run(chosen)
            say(f"{error}.")
            say(f"So it learns {chosen.what} instead (--task numbers), without any download.")
            text = _text(chosen, path, say)
        if fresh and (path / "config.toml").exists():
            _task_of(path)  # Never remove a run that is not a demo's.
            remove_demo(path)
        config = _config(path, chosen, minutes, overrides)
        state = finished(path)
        if state is not None:
            return DemoTraining(run=RunDirectory(path), text=text, state=state, is_new=False)
        data = text.encoded(config, fresh=fresh, on_progress=on_progress)
        say(
            f"{chosen.what[0].upper()}{chosen.what[1:]}: {text.manifest['train_pairs']:,} pairs, "
            f"{_minutes(config.train.max_minutes)} of training, then a test on "
            f"{text.manifest['test_sentences']:,} {chosen.noun} that it never saw."
        )
        report = train(config, path, data=data, on_event=on_event, on_progress=on_progress)
    return DemoTraining(
        run=RunDirectory(path), text=text, state=report.state, is_new=True, signal=report.signal
    )


def evaluate_demo(training: DemoTraining, *, on_progress: Progress = lambda *_: None) -> DemoReport:
    """Translate the held-out sentences with the recipe's beam, and score them."""
    sources, references = training.text.test()
    translator = Translator.load(training.run.path)
    scores = evaluate_translator(
        training.run.path, translator, sources, references, on_progress=on_progress
    )
    # For later use, such as the model card.
    kept = json.dumps(scores.scores.to_dict(), indent=1) + "\n"
    replace_file(training.run.scores_file, kept.encode())
    samples = [
        Sample(
            source=source,
            translation=translation,
            references=tuple(text for text in texts if text is not None),
        )
        for source, translation, *texts in zip(
            sources, scores.translations, *references, strict=True
        )
    ]
    exact = sum(sample.translation in sample.references for sample in samples) / len(samples)
    contents = contents_of(
        training.run,
        scores=scores,
        samples=samples[:SAMPLES],
        sentences=[
            sentence
            for sentence in (*training.text.task.examples, *_short(samples))
            if translator.fits(sentence)
        ],
        about_samples=" ".join((UNSEEN, _sentence(training.text.task.credit))).strip(),
    )
    return DemoReport(
        training=training,
        scores=scores,
        exact=exact,
        samples=samples[:SAMPLES],
        translator=translator,
        page=write_report(training.run, translator, contents),
    )


def _minutes(minutes: float) -> str:
    return "a minute" if minutes == 1 else f"{minutes:g} minutes"


def _sentence(credit: str) -> str:
    return f"{credit}." if credit else ""


def _short(samples: list[Sample]) -> list[str]:
    """Return some sentences whose attention fits a screen."""
    return [s.source for s in samples if 4 <= len(s.source.split()) <= 9][:_EXPLORED]


def _text(task: DemoTask, run: Path, say: Callable[[str], None]) -> DemoText:
    if not run.exists():
        check_space(run.parent)
    return get_text(task, run.parent / DATA, say)


def _default_run(task: DemoTask) -> Path:
    return Path("runs") / ("demo" if task.name == "tatoeba" else f"demo-{task.name}")


def _task_of(path: Path) -> TaskName | None:
    """Return the task of a run; None if there is no run yet."""
    if not (path / "config.toml").exists():
        return None
    data = RunDirectory(path).origin().get("data")
    folder = Path(data).parent if isinstance(data, str) else Path()
    for name in TASKS:
        if (folder.parent.name, folder.name) == (DATA, name):
            return name
    raise ConfigError(f"{path} is a run, but not of a demo: choose another name for --run")


def _config(path: Path, task: DemoTask, minutes: float | None, overrides: Sequence[str]) -> Config:
    """Return the config of an existing run, or the recipe's with these minutes."""
    if (path / "config.toml").exists():
        run = RunDirectory(path)
        _check_same(run, task, minutes)
        config = run.config(overrides)
        check_same(run, config, load_task(config), Inputs())
        return config
    recipe: Config = timed_recipe(task.recipe, minutes, overrides)
    return recipe


def _check_same(run: RunDirectory, task: DemoTask, minutes: float | None) -> None:
    """Refuse a task or minutes that differ from those of the existing run."""
    path, before = run.path, run.config().train.max_minutes
    if _task_of(path) != task.name:
        what, option = f"of --task {_task_of(path)}", f"--task {task.name}"
        beside = path.with_name(f"{path.name}-{task.name}")
    elif minutes is not None and minutes != before:
        # The learning rate decays to zero by the clock, so training cannot be extended.
        what, option = f"of {before:g} minutes", f"--minutes {minutes:g}"
        beside = path.with_name(f"{path.name}-{minutes:g}")
    else:
        return
    raise ConfigError(
        f"{path} is a demo {what}: `headwise demo {option} --run {beside}` trains another beside "
        "it; with --fresh it takes its place"
    )
