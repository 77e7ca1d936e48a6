"""`headwise evaluate` for classifiers."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from headwise.data import LineReport
from headwise.errors import DataError
from headwise.evaluation import (
    ClassScores,
    class_report,
    class_values,
    paired_difference,
    score_classes,
    score_labels,
    text_table,
)
from headwise.evaluation.class_table import margin, percent
from headwise.tasks.classification.baseline import train_baseline
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.classification.files import LabelledFiles, LabelledText, read_examples
from headwise.training.task import Progress
from headwise.visible import visible

_WINDOW = 1024
"""Texts that are classified between two reports of progress."""

_MOST_MISTAKES = 10
_LONGEST_SHOWN = 200


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A text of one class that was put into another."""

    text: str
    place: str
    gold: str
    found: str
    probability: float
    """Of the class it was put into."""


@dataclass(frozen=True, kw_only=True)
class RunClasses:
    """How one run classifies the same texts as others."""

    run: str
    weights: str
    scores: ClassScores
    mistakes: tuple[Mistake, ...]
    """The most confident ones, the most confident first."""
    texts: int
    seconds: float
    left_out: tuple[str, ...]
    """What of the files was not used, and why."""
    is_right: tuple[bool, ...]
    """For each text, whether its class was found; empty where it may have several labels."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {
            "run": self.run,
            "weights": self.weights,
            "seconds": self.seconds,
            "left_out": list(self.left_out),
            **class_values(self.scores),
            "mistakes": [vars(mistake) for mistake in self.mistakes],
        }


@dataclass(frozen=True, kw_only=True)
class ClassificationEvaluation:
    """How several runs classify the same texts."""

    runs: tuple[RunClasses, ...]
    baseline: RunClasses | None = None
    """What the runs are compared with, if that was asked for."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        values: dict[str, Any] = {"runs": [run.to_dict() for run in self.runs]}
        if self.baseline is not None:
            values["baseline"] = self.baseline.to_dict()
            values["verdicts"] = self.verdicts()
        return values

    def verdicts(self) -> list[str]:
        """Say of each run whether it is better than the baseline."""
        return [] if self.baseline is None else [_verdict(run, self.baseline) for run in self.runs]

    def text(self) -> str:
        """Return the tables of one run, or a line for each of several."""
        parts: list[str] = []
        if len(self.runs) == 1:
            (run,) = self.runs
            about = f"{visible(run.weights)}: {run.texts / run.seconds:,.0f} texts/s"
            parts += ["\n".join((about, *run.left_out)), class_report(run.scores), _mistakes(run)]
        if len(self.runs) > 1 or self.baseline is not None:
            parts += [self._table(), "\n".join(self.verdicts())]
        return "\n\n".join(filter(None, parts))

    def _table(self) -> str:
        rows = [
            (
                run.run,
                percent(run.scores.accuracy),
                margin(run.scores.accuracy_interval),
                percent(run.scores.macro_f1),
                percent(run.scores.weighted_f1),
                percent(run.scores.calibration_error),
                f"{run.texts / run.seconds:,.0f}",
            )
            for run in (*self.runs, *([] if self.baseline is None else [self.baseline]))
        ]
        header = ("run", "accuracy", "95 %", "macro F1", "weighted F1", "calibration error")
        return text_table((*header, "texts/s"), rows)


def evaluate_runs(
    runs: Sequence[Path],
    files: LabelledFiles,
    *,
    checkpoint: str | None = None,
    with_baseline: bool = False,
    on_progress: Progress = lambda *_: None,
) -> ClassificationEvaluation:
    """Classify labelled texts with each run, and compare the answers with the labels.

    The baseline is trained on what the first run was trained on.
    """
    found, baseline = [], None
    for run in runs:
        classifier = Classifier.load(run, checkpoint=checkpoint)
        test = _TestTexts.read(files, classifier)
        if with_baseline and baseline is None:
            on_progress("training the baseline", 0, None)
            trained = train_baseline(run, classifier)
            baseline = test.classified_by(trained, run=trained.name)
        found.append(test.classified_by(classifier, run=str(run), on_progress=on_progress))
    return ClassificationEvaluation(runs=tuple(found), baseline=baseline)


class _Answering(Protocol):
    """A Classifier, or a baseline with the same classes."""

    @property
    def name(self) -> str: ...
    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]: ...


@dataclass(frozen=True, kw_only=True)
class _TestTexts:
    """Labelled texts, with the classes of one classifier."""

    examples: tuple[LabelledText, ...]
    gold: NDArray[np.int64]  # [N, C]
    """1 for each class that a text is in."""
    classes: tuple[str, ...]
    is_multi_label: bool
    left_out: tuple[str, ...]

    @classmethod
    def read(cls, files: LabelledFiles, classifier: Classifier) -> Self:
        """Read files; a label that is no class is a DataError."""
        report, data = LineReport(), classifier.config.data
        examples = tuple(read_examples(files, data, lenient=False, report=report))
        if not examples:
            raise DataError(f"{files.paths[0]}: there are no labelled texts to evaluate on")
        gold = np.zeros((len(examples), len(classifier.classes)), dtype=np.int64)
        for row, example in enumerate(examples):
            for label in example.labels:
                gold[row, classifier.tokenizer.label_id(label, example.place)] = 1
        return cls(
            examples=examples,
            gold=gold,
            classes=classifier.classes,
            is_multi_label=classifier.is_multi_label,
            left_out=tuple(report.lines("texts")),
        )

    def classified_by(
        self, answering: _Answering, *, run: str, on_progress: Progress = lambda *_: None
    ) -> RunClasses:
        """Classify the texts, and score the answers."""
        began, parts = time.perf_counter(), []
        for start in range(0, len(self.examples), _WINDOW):
            on_progress(f"classifying with {Path(run).name}", start, len(self.examples))
            window = [example.text for example in self.examples[start : start + _WINDOW]]
            parts.append(answering.probabilities(window))
        seconds = time.perf_counter() - began
        probabilities = np.concatenate(parts)
        is_right: tuple[bool, ...] = ()
        mistakes: tuple[Mistake, ...] = ()
        if self.is_multi_label:
            scores = score_labels(self.gold, probabilities, self.classes)
        else:
            answers = probabilities.argmax(1)
            is_right = tuple((self.gold[np.arange(len(answers)), answers] > 0).tolist())
            scores = score_classes(self.gold.argmax(1), probabilities, self.classes)
            mistakes = self._mistakes(is_right, answers, probabilities)
        return RunClasses(
            run=run,
            weights=answering.name,
            scores=scores,
            mistakes=mistakes,
            texts=len(self.examples),
            seconds=seconds,
            left_out=self.left_out,
            is_right=is_right,
        )

    def _mistakes(
        self,
        is_right: tuple[bool, ...],
        answers: NDArray[np.int64],
        probabilities: NDArray[np.float64],
    ) -> tuple[Mistake, ...]:
        wrong = [row for row, right in enumerate(is_right) if not right]
        wrong.sort(key=lambda row: -probabilities[row, answers[row]])
        return tuple(
            Mistake(
                text=self.examples[row].text,
                place=self.examples[row].place,
                gold=self.examples[row].labels[0],
                found=self.classes[answers[row]],
                probability=float(probabilities[row, answers[row]]),
            )
            for row in wrong[:_MOST_MISTAKES]
        )


def _verdict(run: RunClasses, baseline: RunClasses) -> str:
    """Compare the accuracy on the same texts, with an interval for the difference."""
    difference, margin_of_it = paired_difference(run.is_right, baseline.is_right)
    points = f"{100 * abs(difference):.1f} ± {100 * margin_of_it:.1f} points of accuracy"
    name = visible(run.run)
    if abs(difference) <= margin_of_it:
        return f"{name}: no clear difference from the baseline ({points})"
    if difference < 0:
        return f"{name}: loses to the baseline by {points}"
    return f"{name}: better than the baseline by {points}"


def _mistakes(run: RunClasses) -> str:
    if not run.mistakes:
        return ""
    lines = ["most confident mistakes:"]
    for each in run.mistakes:
        text = each.text if len(each.text) <= _LONGEST_SHOWN else f"{each.text[:_LONGEST_SHOWN]}…"
        lines.append(
            f"  {100 * each.probability:5.1f} % {each.found}, but {each.gold} "
            f"({each.place}): {text}"
        )
    return "\n".join(map(visible, lines))
