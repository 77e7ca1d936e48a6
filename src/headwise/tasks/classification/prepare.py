"""Prepare labelled texts for training: learn subwords, list the classes, encode.

A prepared directory is whole or not there at all:

    tokenizer/            the subwords, and the names of the classes
    train/, valid/        shards: the ids of a text, its weight, and its class; or, where a text
                          may have several labels, 0 or 1 for each class
    report.json           what was read, cut off, left out and why
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headwise.config import ClassificationConfig, ClassificationDataConfig
from headwise.data import LineReport, ShardWriter, Subwords
from headwise.data.shards import Floats
from headwise.data.subwords import sample_texts
from headwise.errors import DataError
from headwise.files import new_directory, write_file
from headwise.seeding import hashed
from headwise.tasks.classification.files import LabelledFiles, LabelledText, read_examples
from headwise.tasks.classification.tokenizer import LABEL, TEXT, ClassTokenizer
from headwise.training.task import Progress
from headwise.visible import visible

WEIGHT = "weight"
"""The stream of a text's weight in the loss."""

_LARGEST_SHARE = 0.1
"""Of the texts: what is held out at most."""

_MOST_NAMES = 8
_PROGRESS_TEXTS = 1_000


@dataclass(frozen=True, kw_only=True)
class ClassReport:
    """What became of the training texts and of the validation texts."""

    train_texts: int
    valid_texts: int
    vocab: int
    classes: dict[str, int]
    """How many texts of the training files each class has."""
    cut: int
    """Texts longer than what is read."""
    longest: int
    train: LineReport
    valid: LineReport

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON can hold it."""
        return {**vars(self), "train": self.train.to_dict(), "valid": self.valid.to_dict()}

    def lines(self) -> list[str]:
        """Say it in sentences: what there is to train on, what was left out and why."""
        lines = [
            f"{self.train_texts:,} texts to train on, {self.valid_texts:,} to validate on, "
            f"{len(self.classes):,} classes, vocabulary {self.vocab:,}",
            f"classes: {_counted(self.classes)}",
        ]
        single = [name for name, count in self.classes.items() if count == 1]
        if single:
            lines.append(f"classes of a single text, which are hardly learned: {_named(single)}")
        if self.cut:
            lines.append(f"cut off {self.cut:,} texts after {self.longest:,} tokens (data.longest)")
        for name, part in (("training", self.train), ("validation", self.valid)):
            lines += [f"{name} texts: {sentence}" for sentence in part.lines("texts")]
        return lines


def prepare_texts(
    files: LabelledFiles,
    config: ClassificationConfig,
    directory: Path,
    *,
    valid: LabelledFiles | None = None,
    lenient: bool = False,
    tokenizer: ClassTokenizer | None = None,
    subwords: Subwords | None = None,
    on_progress: Progress = lambda *_: None,
) -> ClassReport:
    """Learn a tokenizer from texts, unless one is given, and write a prepared directory.

    With subwords alone, the classes are still those of the texts.

    Without validation texts, some are held out by what they say, so that no text is in both parts.
    Memory does not grow with the files.
    """
    if directory.exists():
        raise DataError(f"{directory} exists already: choose another name, or remove it")
    data, seed = config.data, config.train.seed
    with new_directory(directory) as temporary:
        counted = _Counted()
        texts = counted.texts(files, data, lenient, on_progress)
        # Where a tokenizer is given, the texts are still read once: to count and find faults.
        size = data.sample_examples if tokenizer is None and subwords is None else 1
        sample = sample_texts(texts, size, seed, unit="examples")
        if not sample:
            raise DataError(
                f"nothing to train on: of {counted.report.pairs:,} texts none can be used"
            )
        if tokenizer is None:
            on_progress("learning subwords", 0, None)
            learned_from = (text for (text,) in sample)
            tokenizer = ClassTokenizer.learn(learned_from, counted.classes, data, subwords)
        del sample
        tokenizer.save(temporary)
        share = 0.0 if valid else min(_LARGEST_SHARE, data.holdout_examples / counted.report.kept)
        encoder = _Encoder(tokenizer, data, _weights(counted.classes, data))
        sizes: dict[str, int | Floats] = {
            TEXT: len(tokenizer.subwords),
            WEIGHT: Floats(1),
            LABEL: len(tokenizer.classes),
        }
        train_report, valid_report = LineReport(), LineReport()
        with ShardWriter(temporary / "valid", sizes) as held_out:
            held_out.notes.update(notes(data))
            with ShardWriter(temporary / "train", sizes) as train:
                found = read_examples(files, data, lenient=lenient, report=train_report)
                for number, example in enumerate(found):
                    if number % _PROGRESS_TEXTS == 0:
                        on_progress("encoding", number, counted.report.kept)
                    is_held_out = hashed(f"holdout {seed} {example.text}") < share * 2**64
                    encoder.add(example, held_out if is_held_out else train)
            if valid is not None:
                for example in read_examples(valid, data, lenient=lenient, report=valid_report):
                    if lenient and not encoder.knows(example):
                        valid_report.kept -= 1
                        valid_report.drop("a label that the training texts lack", example.place)
                        continue
                    encoder.add(example, held_out)
        if not len(train):
            raise DataError(
                f"nothing to train on: all {len(held_out):,} texts were held out to validate on: "
                "give more texts, or --valid-table"
            )
        report = ClassReport(
            train_texts=len(train),
            valid_texts=len(held_out),
            vocab=len(tokenizer.subwords),
            classes={name: counted.classes[name] for name in tokenizer.classes},
            cut=encoder.cut,
            longest=data.longest,
            train=train_report,
            valid=valid_report,
        )
        write_file(temporary / "report.json", json.dumps(report.to_dict(), indent=1).encode())
    return report


def notes(data: ClassificationDataConfig) -> dict[str, Any]:
    """Return the settings that shards were made by, which a run of them must share."""
    return {
        "longest": data.longest,
        "multi_label": data.multi_label,
        "class_weights": data.class_weights,
    }


class _Counted:
    """What is in labelled texts, counted while they are read for the first time."""

    def __init__(self) -> None:
        self.report = LineReport()
        self.classes: Counter[str] = Counter()

    def texts(
        self,
        files: LabelledFiles,
        data: ClassificationDataConfig,
        lenient: bool,
        on_progress: Progress,
    ) -> Iterator[tuple[str]]:
        for example in read_examples(files, data, lenient=lenient, report=self.report):
            if self.report.kept % _PROGRESS_TEXTS == 0:
                on_progress("reading", self.report.pairs, None)
            self.classes.update(example.labels)
            yield (example.text,)


class _Encoder:
    def __init__(
        self,
        tokenizer: ClassTokenizer,
        data: ClassificationDataConfig,
        weights: dict[str, float],
    ) -> None:
        self._tokenizer, self._data, self._weights = tokenizer, data, weights
        self.cut = 0

    def knows(self, example: LabelledText) -> bool:
        """Return whether all labels of a text are classes."""
        return set(example.labels) <= set(self._tokenizer.classes)

    def add(self, example: LabelledText, shards: ShardWriter) -> None:
        """Write one text."""
        ids, is_cut = self._tokenizer.encode(example.text, self._data.longest)
        self.cut += is_cut
        numbers = [self._tokenizer.label_id(label, example.place) for label in example.labels]
        labels = np.array(numbers, dtype=np.int64)
        if self._data.multi_label:
            labels = np.bincount(labels, minlength=len(self._tokenizer.classes))
        weight = self._weights.get(example.labels[0], 1.0) if example.labels else 1.0
        shards.add(
            {
                TEXT: (np.array(ids), np.array([len(ids)])),
                WEIGHT: (np.array([[weight]], dtype=np.float32), np.array([1])),
                LABEL: (labels, np.array([len(labels)])),
            }
        )


def _weights(counts: Counter[str], data: ClassificationDataConfig) -> dict[str, float]:
    """Return the weight of a text of each class; the mean over all texts is 1."""
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
