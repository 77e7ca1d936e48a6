"""`headwise evaluate` for classifiers."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from headwise.tasks.classification.baseline import Baseline, train_baseline
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.classification.files import Labelled, LabelledFiles, read_examples
from headwise.tasks.classification.windows import windows
from headwise.tasks.encoders import Encoded, InputKind
from headwise.training.task import Progress
from headwise.visible import visible

_MOST_MISTAKES = 10
_LONGEST_SHOWN = 200


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """An example of one class that was put into another."""

    text: str
    """Empty if it is no text."""
    place: str
    gold: str
    found: str
    probability: float
    """Of the class it was put into."""


@dataclass(frozen=True, kw_only=True)
class RunClasses:
    """How one run classifies the same examples as others."""

    run: str
    weights: str
    scores: ClassScores
    mistakes: tuple[Mistake, ...]
    """The most confident ones, the most confident first."""
    examples: int
    unit: str
    """What they are called, in the plural."""
    seconds: float
    """What reading the examples and classifying them took."""
    left_out: tuple[str, ...]
    """What of the files was not used, and why; and what was changed or cut off."""
    is_right: tuple[bool, ...]
    """For each example, whether its class was found; empty where it may have several labels."""

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
    """How several runs classify the same examples."""

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
            about = f"{visible(run.weights)}: {run.examples / run.seconds:,.0f} {run.unit}/s"
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
                f"{run.examples / run.seconds:,.0f}",
            )
            for run in (*self.runs, *([] if self.baseline is None else [self.baseline]))
        ]
        header = ("run", "accuracy", "95 %", "macro F1", "weighted F1", "calibration error")
        return text_table((*header, f"{self.runs[0].unit}/s"), rows)


def evaluate_runs(
    runs: Sequence[Path],
    files: LabelledFiles,
    *,
    kind: InputKind,
    checkpoint: str | None = None,
    with_baseline: bool = False,
    on_progress: Progress = lambda *_: None,
) -> ClassificationEvaluation:
    """Classify labelled examples with each run, and compare the answers with the labels.

    The baseline is trained on what the first run was trained on.
    """
    found, baseline = [], None
    for run in runs:
        classifier = Classifier.load(run, checkpoint=checkpoint)
        trained = None
        if with_baseline and baseline is None:
            trained = train_baseline(run, classifier, on_progress)
        test = _Test(files=files, kind=kind, classifier=classifier, on_progress=on_progress)
        scored = test.scored(str(run), trained)
        found.append(scored[0])
        baseline = baseline or (scored[1] if trained is not None else None)
    return ClassificationEvaluation(runs=tuple(found), baseline=baseline)


@dataclass(frozen=True, kw_only=True)
class _Test:
    """Labelled examples, read window by window, with the classes of one classifier."""

    files: LabelledFiles
    kind: InputKind
    classifier: Classifier
    on_progress: Progress
    report: LineReport = field(default_factory=LineReport)
    changes: Counter[str] = field(default_factory=Counter)
    """What was done to examples, and to how many."""

    def scored(self, run: str, baseline: Baseline | None) -> list[RunClasses]:
        """Classify the examples, once also with a baseline, and score the answers."""
        classifier = self.classifier
        examples: list[Labelled] = []
        rows: list[list[int]] = []
        answering: list[Callable[[list[Encoded]], NDArray[np.float64]]] = [classifier.probabilities]
        if baseline is not None:
            answering.append(baseline.probabilities)
        parts: list[list[NDArray[np.float64]]] = [[] for _ in answering]
        seconds = [0.0 for _ in answering]
        began = time.perf_counter()
        for window in windows(self._encoded()):
            self.on_progress(f"classifying with {Path(run).name}", len(examples), None)
            encoded = [each for _, each in window]
            reading = time.perf_counter() - began
            for number, answer in enumerate(answering):
                began = time.perf_counter()
                parts[number].append(answer(encoded))
                seconds[number] += reading + time.perf_counter() - began
            examples += [example for (example, _), _ in window]
            rows += [numbers for (_, numbers), _ in window]
            began = time.perf_counter()
        if not examples:
            raise DataError(
                f"{self.files.paths[0]}: there are no labelled {self.kind.unit} to evaluate on"
            )
        gold = np.zeros((len(examples), len(classifier.classes)), dtype=np.int64)
        for row, numbers in enumerate(rows):
            gold[row, numbers] = 1
        names = [(run, classifier.name)]
        if baseline is not None:
            names.append((baseline.name, baseline.name))
        return [
            self._scored(examples, gold, np.concatenate(part), name, weights, taken)
            for part, (name, weights), taken in zip(parts, names, seconds, strict=True)
        ]

    def _encoded(self) -> Iterator[tuple[tuple[Labelled, list[int]], Encoded]]:
        """Yield each example with the numbers of its classes, and how the model reads it."""
        classifier, data = self.classifier, self.classifier.config.data
        for example in read_examples(
            self.files, data, self.kind, lenient=False, report=self.report
        ):
            labels = [classifier.names.label_id(label, example.place) for label in example.labels]
            encoded = classifier.encoder.encode(example.content)
            cut = f"cut off after {self.kind.most(data)}"
            self.changes.update((*encoded.changes, *([cut] if encoded.is_cut else [])))
            # Images and sounds are not kept: their places are enough to name them.
            kept = example if isinstance(example.content, str) else example._replace(content="")
            yield (kept, labels), encoded

    def _scored(
        self,
        examples: list[Labelled],
        gold: NDArray[np.int64],  # [N, C]: 1 for each class that an example is in
        probabilities: NDArray[np.float64],  # [N, C]
        run: str,
        weights: str,
        seconds: float,
    ) -> RunClasses:
        classes = self.classifier.classes
        is_right: tuple[bool, ...] = ()
        mistakes: tuple[Mistake, ...] = ()
        if self.classifier.is_multi_label:
            scores = score_labels(gold, probabilities, classes)
        else:
            answers = probabilities.argmax(1)
            is_right = tuple((gold[np.arange(len(answers)), answers] > 0).tolist())
            scores = score_classes(gold.argmax(1), probabilities, classes)
            mistakes = _most_confident(examples, is_right, answers, probabilities, classes)
        return RunClasses(
            run=run,
            weights=weights,
            scores=scores,
            mistakes=mistakes,
            examples=len(examples),
            unit=self.kind.unit,
            seconds=seconds,
            left_out=(
                *self.report.lines(self.kind.unit),
                *(f"{count:,} {self.kind.unit} {done}" for done, count in self.changes.items()),
            ),
            is_right=is_right,
        )


def _most_confident(
    examples: list[Labelled],
    is_right: tuple[bool, ...],
    answers: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    classes: tuple[str, ...],
) -> tuple[Mistake, ...]:
    wrong = [row for row, right in enumerate(is_right) if not right]
    wrong.sort(key=lambda row: -probabilities[row, answers[row]])
    return tuple(
        Mistake(
            text=examples[row].content,
            place=examples[row].place,
            gold=examples[row].labels[0],
            found=classes[answers[row]],
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
        said = f": {text}" if text else ""
        lines.append(
            f"  {100 * each.probability:5.1f} % {each.found}, but {each.gold} ({each.place}){said}"
        )
    return "\n".join(map(visible, lines))
