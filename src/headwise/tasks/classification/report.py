"""A classifier's run, described for its report."""

import shlex
from collections.abc import Mapping
from typing import Any

from headwise.config import Vocab
from headwise.data import TokenShards
from headwise.evaluation.class_table import margin, percent
from headwise.runs.data import own_shards
from headwise.runs.directory import RunDirectory
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.classification.inputs import labelled_files
from headwise.tasks.classification.scores import RunClasses, evaluate_runs
from headwise.tasks.classification.tokenizer import LABEL, TEXT
from headwise.tasks.report import Cell, Contents, Figure
from headwise.training.task import Progress

_SAMPLES, _TRACED = 6, 3
_LONGEST_SAMPLE, _LONGEST_TRACED = 60, 24
"""Tokens."""

_UNSCORED = "Not scored yet. `headwise report` with `--table`, labelled texts, adds scores."


def report_contents(
    run: RunDirectory, classifier: Classifier, values: Mapping[str, Any], on_progress: Progress
) -> Contents:
    """Describe a run; it is scored on the texts of --table if those are given.

    Samples are the validation texts in the run's own directory, if they are there.
    """
    texts = _validation_texts(run, classifier)
    found = classifier.classify([text for text, _ in texts])
    samples = tuple(
        (
            Cell(label="Text", text=text),
            Cell(
                label="Class",
                text=f"{', '.join(each.labels)} ({percent(each.probability)} %)",
                is_output=True,
            ),
            Cell(label="Right", text=", ".join(gold)),
        )
        for (text, gold), each in zip(texts, found, strict=True)
    )
    about = "Validation texts, at regular intervals."
    if not samples:
        about = "No examples: the texts that the run was validated on are not in its directory."
    scores, about_scores, notes = _scores(run, values, on_progress)
    count = run.origin().get("train_texts")
    path = shlex.quote(str(run.path))
    return Contents(
        does=f"puts texts into {len(classifier.classes):,} classes",
        trained_on=(count, "texts") if type(count) is int and 0 < count < 2**63 else None,
        scores=scores,
        about_scores=about_scores,
        notes=notes,
        samples=samples,
        about_samples=about,
        traced=tuple(text for text, _ in texts if _is_short(classifier, text))[:_TRACED],
        commands=(
            ("Classify a text:", f'headwise classify {path} "…"'),
            (
                "Measure it on labelled texts:",
                f"headwise evaluate {path} --table test.csv --text-column text "
                "--label-column label",
            ),
            (
                "Train on texts of your own:",
                "headwise train text-tiny --table train.csv --text-column text "
                "--label-column label --run runs/mine",
            ),
        ),
    )


def _scores(
    run: RunDirectory, values: Mapping[str, Any], on_progress: Progress
) -> tuple[tuple[Figure, ...], str, tuple[str, ...]]:
    files = labelled_files(values, "table")
    if files is None:
        return (), _UNSCORED, ()
    evaluation = evaluate_runs(
        [run.path],
        files,
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
    about = " ".join((f"Of {scores.examples:,} labelled texts.", *evaluation.verdicts()))
    return figures, about, _notes(found)


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
        f"Sure and wrong: {percent(each.probability)} % {each.found}, but {each.gold}: {each.text}"
        for each in found.mistakes[:3]
    ]
    return tuple(notes)


def _validation_texts(
    run: RunDirectory, classifier: Classifier
) -> list[tuple[str, tuple[str, ...]]]:
    """Return short texts of the run's own validation data, and their classes."""
    shards = own_shards(run, "valid")
    count = 0 if shards is None else min(_SAMPLES, len(shards))
    found = []
    for sample in range(count):
        assert shards is not None
        # The first short one of each part of the data.
        first, end = (number * len(shards) // count for number in (sample, sample + 1))
        lengths = ((number, len(shards.sequence(TEXT, number))) for number in range(first, end))
        short = next((number for number, length in lengths if length <= _LONGEST_SAMPLE), None)
        if short is not None:
            found.append(_stored_text(shards, short, classifier))
    return found


def _stored_text(
    shards: TokenShards, number: int, classifier: Classifier
) -> tuple[str, tuple[str, ...]]:
    subwords, classes = classifier.tokenizer.subwords, classifier.classes
    ids = shards.checked_sequence(TEXT, number, len(subwords)).tolist()
    given = shards.checked_sequence(LABEL, number, len(classes)).tolist()
    numbers = [n for n, bit in enumerate(given) if bit] if classifier.is_multi_label else given
    text = subwords.decode([each for each in ids if each not in (Vocab.bos, Vocab.eos)])
    return text, tuple(classes[each] for each in numbers)


def _is_short(classifier: Classifier, text: str) -> bool:
    return 1 <= len(classifier.tokenizer.subwords.encode(text)) <= _LONGEST_TRACED
