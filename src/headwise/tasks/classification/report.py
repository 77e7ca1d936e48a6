"""A classifier's run, described for its report."""

import shlex
from collections import Counter
from collections.abc import Mapping
from typing import Any

from headwise.evaluation import ClassScores
from headwise.evaluation.class_table import margin, percent
from headwise.runs.data import own_shards
from headwise.runs.directory import RunDirectory
from headwise.tasks.classification.classifier import Classification, Classifier
from headwise.tasks.classification.files import LabelledFiles
from headwise.tasks.classification.scores import RunClasses, evaluate_runs
from headwise.tasks.classification.stored import stored_example, stored_labels
from headwise.tasks.classification.text import TextEncoder
from headwise.tasks.encoders import Encoded, InputKind
from headwise.tasks.report import Cell, Confusion, Contents, Figure
from headwise.training.task import Progress

_MOST_COLUMNS = 20
"""Classes of a confusion matrix that fits a page."""

_SAMPLES, _TRACED = 6, 3
_SEARCHED = 2_000
"""Validation examples among which misclassified ones are looked for."""
_LONGEST_SAMPLE, _LONGEST_TRACED = 60, 24
"""Tokens of a text."""

_FLAGS = {
    "text": "--table test.csv --text-column text --label-column label",
    "images": "--images test",
    "audio": "--audio test",
}
_GIVEN = {"text": '"…"', "images": "image.png", "audio": "sound.wav"}


def report_contents(
    run: RunDirectory,
    classifier: Classifier,
    kind: InputKind,
    files: LabelledFiles | None,
    values: Mapping[str, Any],
    on_progress: Progress,
) -> Contents:
    """Describe a run; it is scored on labelled files if those are given.

    Samples are the validation examples in the run's own directory, if they are there: texts at
    regular intervals; of images and sounds, those that are misread first.
    """
    unit, flags = kind.unit, _FLAGS[classifier.input]
    shown = _validation_examples(run, classifier)
    samples = tuple(
        _sample(classifier, number, *each) for number, each in enumerate(shown, start=1)
    )
    about = f"Validation {unit}, at regular intervals."
    if classifier.input != "text":
        about = f"Validation {unit}: the most confident mistakes, then others at regular intervals."
    if not samples:
        about = f"No examples: the {unit} that the run was validated on are not in its directory."
    scores, about_scores, confusion, notes = _scores(run, kind, files, values, on_progress)
    count = run.origin().get("train_examples")
    path = shlex.quote(str(run.path))
    return Contents(
        does=f"puts {unit} into {len(classifier.classes):,} classes",
        trained_on=(count, unit) if type(count) is int and 0 < count < 2**63 else None,
        scores=scores,
        about_scores=about_scores,
        confusion=confusion,
        notes=notes,
        samples=samples,
        about_samples=about,
        traced=tuple(each for each, _, _ in shown if _is_traceable(classifier, each))[:_TRACED],
        commands=(
            ("Classify one:", f"headwise classify {path} {_GIVEN[classifier.input]}"),
            (f"Measure it on labelled {unit}:", f"headwise evaluate {path} {flags}"),
            (
                f"Train on {unit} of your own:",
                f"headwise train {classifier.config.row.recipe} "
                f"{flags.replace('test', 'train')} --run runs/mine",
            ),
        ),
    )


def _scores(
    run: RunDirectory,
    kind: InputKind,
    files: LabelledFiles | None,
    values: Mapping[str, Any],
    on_progress: Progress,
) -> tuple[tuple[Figure, ...], str, Confusion | None, tuple[str, ...]]:
    if files is None:
        unscored = f"Not scored yet. `headwise report` with labelled {kind.unit} adds scores."
        return (), unscored, None, ()
    evaluation = evaluate_runs(
        [run.path],
        files,
        kind=kind,
        with_baseline=bool(values.get("baseline")),
        on_progress=on_progress,
    )
    found = evaluation.runs[0]
    scores = found.scores
    figures = (
        Figure(
            name="Accuracy" if scores.confusion is not None else "All labels right",
            value=percent(scores.accuracy),
            more=f"% {margin(scores.accuracy_interval)}",
        ),
        Figure(
            name="Macro F1",
            value=percent(scores.macro_f1),
            more=f"% {margin(scores.macro_f1_interval)}",
        ),
        Figure(name="Calibration error", value=percent(scores.calibration_error), more="%"),
    )
    about = " ".join((f"Of {scores.examples:,} labelled {kind.unit}.", *evaluation.verdicts()))
    return figures, about, confusion_of(scores), _notes(found)


def confusion_of(scores: ClassScores) -> Confusion | None:
    """Return the confusion matrix; of many classes, of those that are confused most."""
    if scores.confusion is None:
        return None
    wrong: Counter[int] = Counter()
    for gold, found, count in scores.confusion:
        if gold != found:
            wrong.update({gold: count})
            wrong.update({found: count})
    total = len(scores.classes)
    about = "A row for each class, a column for each answer"
    chosen = list(range(total))
    if total > _MOST_COLUMNS:
        chosen = sorted(sorted(chosen, key=lambda number: -wrong[number])[:_MOST_COLUMNS])
        about += f": the {_MOST_COLUMNS} of {total:,} classes that are confused most"
    counts = {(gold, found): count for gold, found, count in scores.confusion}
    return Confusion(
        names=tuple(scores.classes[number].name for number in chosen),
        counts=tuple(tuple(counts.get((gold, found), 0) for found in chosen) for gold in chosen),
        about=f"{about}.",
    )


def _notes(found: RunClasses) -> tuple[str, ...]:
    """Say what was confused, and the most confident mistakes."""
    scores, names = found.scores, [each.name for each in found.scores.classes]
    notes = [
        "By class, F1: " + ", ".join(f"{each.name} {percent(each.f1)}" for each in scores.classes)
    ]
    wrong = sorted(
        ((count, gold, answer) for gold, answer, count in scores.confusion or () if gold != answer),
        key=lambda each: (-each[0], each[1:]),
    )
    if wrong:
        listed = ", ".join(
            f"{names[gold]} as {names[answer]} {count:,} times" for count, gold, answer in wrong[:5]
        )
        notes.append(f"Most often taken for another class: {listed}.")
    notes += [
        f"Confident mistake: {percent(each.probability)} % {each.found}, but {each.gold}: "
        f"{each.text or each.place}"
        for each in found.mistakes[:3]
    ]
    return tuple(notes)


def _validation_examples(
    run: RunDirectory, classifier: Classifier
) -> list[tuple[Encoded, Classification, list[int]]]:
    """Return some of the run's own validation data, with the answers and the right classes."""
    shards = own_shards(run, "valid")
    if shards is None or not len(shards):
        return []
    step = max(1, len(shards) // _SEARCHED)
    numbers = list(range(0, len(shards), step))[:_SEARCHED]
    examples = [stored_example(shards, number, classifier) for number in numbers]
    if classifier.input == "text":
        numbers = [n for n, each in zip(numbers, examples, strict=True) if _is_short(each)]
        numbers = _spread(numbers)
        examples = [stored_example(shards, number, classifier) for number in numbers]
    found = classifier.classify(examples)
    right = [stored_labels(shards, number, classifier) for number in numbers]
    together = list(zip(examples, found, right, strict=True))
    if classifier.input == "text":
        return together
    wrong = [each for each in together if set(each[1].labels) != _names(classifier, each[2])]
    wrong.sort(key=lambda each: -each[1].probability)
    others = [each for each in together if set(each[1].labels) == _names(classifier, each[2])]
    half = wrong[: _SAMPLES // 2]
    return half + _spread(others, _SAMPLES - len(half))


def _spread(items: list[Any], count: int = _SAMPLES) -> list[Any]:
    """Take some at regular intervals."""
    count = min(count, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def _names(classifier: Classifier, numbers: list[int]) -> set[str]:
    return {classifier.classes[number] for number in numbers}


def _sample(
    classifier: Classifier,
    number: int,
    example: Encoded,
    found: Classification,
    right: list[int],
) -> tuple[Cell, ...]:
    names = ", ".join(classifier.classes[label] for label in right)
    picture = classifier.encoder.picture(example)
    if isinstance(classifier.encoder, TextEncoder):
        first = Cell(label="Text", text=classifier.encoder.text(example))
    else:
        assert picture is not None
        label = "Image" if picture.kind == "image" else "Spectrogram"
        text = f"{picture.kind} {number}, class {names}"
        first = Cell(label=label, text=text, png=picture.png)
    return (
        first,
        Cell(
            label="Class",
            text=f"{', '.join(found.labels)} ({percent(found.probability)} %)",
            is_output=True,
        ),
        Cell(label="Right", text=names),
    )


def _is_short(example: Encoded) -> bool:
    return len(example.values) <= _LONGEST_SAMPLE


def _is_traceable(classifier: Classifier, example: Encoded) -> bool:
    if classifier.input != "text":
        return classifier.is_traceable(example)
    return 2 < len(example.values) <= _LONGEST_TRACED + 2
