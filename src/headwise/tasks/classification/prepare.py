"""Prepare labelled examples for training: list the classes, encode the texts, images or sounds.

A prepared directory is whole or not there at all:

    tokenizer/            the subwords, or the means of colours or bands; the names of the classes
    train/, valid/        shards: what the model reads of an example, its weight, and its class; or,
                          where an example may have several labels, 0 or 1 for each class
    report.json           what was read, cut off, left out and why
"""

import json
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headwise.config import AnyConfig, LabelsConfig
from headwise.data import LineReport, ShardWriter, Subwords
from headwise.data.shards import Floats
from headwise.errors import DataError
from headwise.files import new_directory, write_file
from headwise.seeding import hashed
from headwise.tasks.classification.classes import LABEL, Classes
from headwise.tasks.classification.files import Labelled, LabelledFiles, read_examples
from headwise.tasks.encoders import Encoder, InputKind
from headwise.training.task import Progress
from headwise.visible import visible

WEIGHT = "weight"
"""The stream of an example's weight in the loss."""

_LARGEST_SHARE = 0.1
"""Of the examples: what is held out at most."""

_MOST_NAMES = 8
_PROGRESS_EXAMPLES = 1_000


@dataclass(frozen=True, kw_only=True)
class ClassReport:
    """What became of the training examples and of the validation examples."""

    train_examples: int
    valid_examples: int
    unit: str
    """What they are called, in the plural."""
    vocab: int
    """Subwords; 0 where the examples are no texts."""
    classes: dict[str, int]
    """How many examples of the training files each class has."""
    cut: int
    """Examples longer than what is read."""
    most: str
    """How much is read of each."""
    changes: dict[str, int]
    """What else was done, and to how many examples."""
    train: LineReport
    valid: LineReport

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON can hold it."""
        return {**vars(self), "train": self.train.to_dict(), "valid": self.valid.to_dict()}

    def lines(self) -> list[str]:
        """Say it in sentences: what there is to train on, what was left out and why."""
        unit = self.unit
        vocab = f", vocabulary {self.vocab:,}" if self.vocab else ""
        lines = [
            f"{self.train_examples:,} {unit} to train on, {self.valid_examples:,} to validate on, "
            f"{len(self.classes):,} classes{vocab}",
            f"classes: {_counted(self.classes)}",
        ]
        single = [name for name, count in self.classes.items() if count == 1]
        if single:
            lines.append(f"classes of a single example, too few to learn: {_named(single)}")
        if self.cut:
            lines.append(f"cut off {self.cut:,} {unit} after {self.most}")
        lines += [f"{count:,} {unit} {change}" for change, count in self.changes.items()]
        for name, part in (("training", self.train), ("validation", self.valid)):
            lines += [f"{name} {unit}: {sentence}" for sentence in part.lines(unit)]
        return lines


def prepare_examples(
    files: LabelledFiles,
    config: AnyConfig,
    directory: Path,
    kind: InputKind,
    *,
    valid: LabelledFiles | None = None,
    lenient: bool = False,
    trained: tuple[Encoder, Classes] | None = None,
    subwords: Subwords | None = None,
    on_progress: Progress = lambda *_: None,
) -> ClassReport:
    """Learn an encoder and classes from examples, unless they are given, and write a directory.

    With subwords alone, or if the classes given lack one, they are those of the examples. Without
    validation examples, some are held out by what they are, so that none is in both parts. Memory
    does not grow with the files.
    """
    if directory.exists():
        raise DataError(f"{directory} exists already: choose another name, or remove it")
    data, seed = config.data, config.train.seed
    with new_directory(directory) as temporary:
        counted = _Counted()
        contents = counted.contents(files, data, kind, lenient, on_progress)
        if trained is None:
            encoder = kind.learn(contents, data, seed, subwords, on_progress)
        else:
            encoder, _ = trained
            deque(contents, maxlen=0)  # Read once all the same: to count and find faults.
        if encoder is None or not counted.report.kept:
            raise DataError(
                f"{files.paths[0]}: nothing to train on: of {counted.report.pairs:,} {kind.unit} "
                "none can be used"
            )
        if trained is not None and set(counted.classes) <= set(trained[1].names):
            classes = trained[1]
        else:
            classes = Classes.of(counted.classes, kind.unit)
        encoder.save(temporary, {LABEL: classes.table()})
        share = 0.0 if valid else min(_LARGEST_SHARE, data.holdout_examples / counted.report.kept)
        writing = _Writing(kind, encoder, classes, data, _weights(counted.classes, data))
        sizes: dict[str, int | Floats] = {
            kind.stream: encoder.stored,
            WEIGHT: Floats(1),
            LABEL: len(classes),
        }
        train_report, valid_report = LineReport(), LineReport()
        with ShardWriter(temporary / "valid", sizes) as held_out:
            held_out.notes.update(notes(data, kind))
            with ShardWriter(temporary / "train", sizes) as train:
                found = read_examples(files, data, kind, lenient=lenient, report=train_report)
                for number, example in enumerate(found):
                    if number % _PROGRESS_EXAMPLES == 0:
                        on_progress("encoding", number, counted.report.kept)
                    identity = kind.identity(example.content)
                    is_held_out = hashed(f"holdout {seed} {identity}") < share * 2**64
                    writing.add(example, held_out if is_held_out else train)
            if valid is not None:
                found = read_examples(valid, data, kind, lenient=lenient, report=valid_report)
                for example in found:
                    if lenient and not set(example.labels) <= set(classes.names):
                        valid_report.kept -= 1
                        valid_report.drop("a label that the training data lacks", example.place)
                        continue
                    writing.add(example, held_out)
        if not len(train):
            raise DataError(
                f"nothing to train on: all {len(held_out):,} {kind.unit} were held out to validate "
                "on: give more, or some to validate on"
            )
        report = ClassReport(
            train_examples=len(train),
            valid_examples=len(held_out),
            unit=kind.unit,
            vocab=encoder.stored if isinstance(encoder.stored, int) else 0,
            classes={name: counted.classes[name] for name in classes.names},
            cut=writing.cut,
            most=kind.most(data),
            changes=dict(writing.changes),
            train=train_report,
            valid=valid_report,
        )
        write_file(temporary / "report.json", json.dumps(report.to_dict(), indent=1).encode())
    return report


def notes(data: LabelsConfig, kind: InputKind) -> dict[str, Any]:
    """Return the settings that shards were made by, which a run of them must share."""
    keys = (*kind.settings, "multi_label", "class_weights")
    return {key: getattr(data, key) for key in keys}


class _Counted:
    """What is in labelled examples, counted while they are read for the first time."""

    def __init__(self) -> None:
        self.report = LineReport()
        self.classes: Counter[str] = Counter()

    def contents(
        self,
        files: LabelledFiles,
        data: LabelsConfig,
        kind: InputKind,
        lenient: bool,
        on_progress: Progress,
    ) -> Iterator[Any]:
        for example in read_examples(files, data, kind, lenient=lenient, report=self.report):
            if self.report.kept % _PROGRESS_EXAMPLES == 0:
                on_progress("reading", self.report.pairs, None)
            self.classes.update(example.labels)
            yield example.content


class _Writing:
    """What it takes to write examples, and what was done to them."""

    def __init__(
        self,
        kind: InputKind,
        encoder: Encoder,
        classes: Classes,
        data: LabelsConfig,
        weights: dict[str, float],
    ) -> None:
        self._kind, self._encoder, self._classes = kind, encoder, classes
        self._data, self._weights = data, weights
        self.cut = 0
        self.changes: Counter[str] = Counter()

    def add(self, example: Labelled, shards: ShardWriter) -> None:
        """Write one example."""
        encoded = self._encoder.encode(example.content)
        self.cut += encoded.is_cut
        self.changes.update(encoded.changes)
        numbers = [self._classes.label_id(label, example.place) for label in example.labels]
        labels = np.array(numbers, dtype=np.int64)
        if self._data.multi_label:
            labels = np.bincount(labels, minlength=len(self._classes))
        weight = self._weights.get(example.labels[0], 1.0) if example.labels else 1.0
        shards.add(
            {
                self._kind.stream: (encoded.values, np.array([len(encoded.values)])),
                WEIGHT: (np.array([[weight]], dtype=np.float32), np.array([1])),
                LABEL: (labels, np.array([len(labels)])),
            }
        )


def _weights(counts: Counter[str], data: LabelsConfig) -> dict[str, float]:
    """Return the weight of an example of each class; the mean over all examples is 1."""
    if data.class_weights == "none":
        return {}
    total = counts.total()
    return {name: total / (len(counts) * count) for name, count in counts.items()}


def _counted(classes: dict[str, int]) -> str:
    named = [f"{name} {count:,}" for name, count in classes.items()]
    return visible(", ".join(named[:_MOST_NAMES])) + _and_more(named)


def _named(names: list[str]) -> str:
    return visible(", ".join(names[:_MOST_NAMES])) + _and_more(names)


def _and_more(names: list[str]) -> str:
    left = len(names) - _MOST_NAMES
    return f" and {left:,} more" if left > 0 else ""
