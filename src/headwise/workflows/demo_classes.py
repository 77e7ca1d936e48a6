"""The demos of classification: questions, images, sounds, beside a baseline."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from headwise.data import LineReport
from headwise.data.prepare import Progress
from headwise.evaluation.class_table import margin, percent
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.classification.files import LabelledFiles, read_examples
from headwise.tasks.classification.kinds import kind_of
from headwise.tasks.classification.report import confusion_of, report_contents
from headwise.tasks.classification.scores import ClassificationEvaluation, evaluate_runs
from headwise.tasks.report import Figure
from headwise.workflows.demo_runs import SAMPLES, TrainedDemo
from headwise.workflows.report import write_report


@dataclass(frozen=True, kw_only=True)
class ClassDemo:
    """What a demo trains on and says."""

    name: str
    recipe: str
    unit: str
    """What is classified, in the plural."""
    about: str
    train: str
    """The name of the file, or the folder, to train on."""
    test: str
    get: Callable[[Path, Callable[[str], None]], Path]
    """Get the files, into a folder of its own in the one given, unless they are there; return it.
    The second argument is told what is done."""
    files: Callable[[Path], LabelledFiles]
    """Make labelled files of one of them."""
    options: str
    """How a command names them, with {} for the path."""
    example: Callable[[Path], str]
    """What a command is given to classify, by the path of the test: a text in quotes, or a path."""
    try_out: str
    """What to say before people type something."""
    minutes: float = 3.0
    """Of training."""


@dataclass(frozen=True, kw_only=True)
class ClassDemoReport:
    """The results of a trained demo."""

    demo: ClassDemo
    training: TrainedDemo
    evaluation: ClassificationEvaluation
    samples: list[tuple[str, str, str]]
    """Some of the test: what or where it is, its class, and the right one."""
    classifier: Classifier
    page: Path
    """The report, as a page."""


def evaluate_class_demo(
    demo: ClassDemo, training: TrainedDemo, *, on_progress: Progress = lambda *_: None
) -> ClassDemoReport:
    """Classify the test, and compare with the baseline if scikit-learn is there."""
    run, classifier = training.run, Classifier.load(training.run.path)
    kind, test = kind_of(classifier.config), demo.files(training.test)
    evaluation = evaluate_runs(
        [run.path],
        test,
        kind=kind,
        with_baseline=find_spec("sklearn") is not None,
        on_progress=on_progress,
    )
    scores = evaluation.runs[0].scores
    contents = replace(
        report_contents(run, classifier, kind, None, {}, on_progress),
        scores=(
            Figure(
                name="Accuracy",
                value=percent(scores.accuracy),
                more=f"% {margin(scores.accuracy_interval)}",
            ),
            Figure(name="Macro F1", value=percent(scores.macro_f1), more="%"),
        ),
        confusion=confusion_of(scores),
        about_scores=" ".join(
            (f"Of {scores.examples:,} {demo.unit} that it never saw.", *evaluation.verdicts())
        ),
    )
    reading = read_examples(test, classifier.config.data, kind, lenient=False, report=LineReport())
    # At regular intervals: a folder has all of one class together.
    step = max(1, scores.examples // SAMPLES)
    shown = list(islice(reading, 0, step * SAMPLES, step))
    found = classifier.classify([classifier.encoder.encode(each.content) for each in shown])
    return ClassDemoReport(
        demo=demo,
        training=training,
        evaluation=evaluation,
        samples=[
            (
                each.content if isinstance(each.content, str) else Path(each.place).name,
                answer.label,
                each.labels[0],
            )
            for each, answer in zip(shown, found, strict=True)
        ],
        classifier=classifier,
        page=write_report(run, classifier, contents),
    )
