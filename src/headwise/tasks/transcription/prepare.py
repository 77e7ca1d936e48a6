"""Prepare transcribed examples for training: learn scales and targets, encode both.

A prepared directory is whole or not there at all:

    tokenizer/            the means of colours or bands; the characters or subwords of the texts
    train/, valid/        shards: what the model reads of an example, and the ids of its text
    report.json           what was read, left out and why
"""

import json
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headwise.config import AnyConfig, TargetsConfig
from headwise.data import LineReport, ShardWriter, Subwords
from headwise.data.shards import Floats
from headwise.errors import DataError
from headwise.files import new_directory, write_file
from headwise.seeding import hashed
from headwise.tasks.encoders import Encoder, InputKind
from headwise.tasks.transcription.files import (
    Transcribed,
    TranscribedFiles,
    read_examples,
    read_texts,
)
from headwise.tasks.transcription.targets import STREAM, Characters, Targets, learn_subwords
from headwise.training.task import Progress

_LARGEST_SHARE = 0.1
"""Of the examples: what is held out at most."""

_PROGRESS_EXAMPLES = 1_000


@dataclass(frozen=True, kw_only=True)
class TranscriptionReport:
    """What became of the training examples and of the validation examples."""

    train_examples: int
    valid_examples: int
    unit: str
    """What they are called, in the plural."""
    targets: str
    """What the decoder writes: "characters" or "subwords"."""
    vocab: int
    """How many of these, special ids included."""
    longest_text: int
    """In tokens."""
    changes: dict[str, int]
    """What was done to examples, and to how many."""
    train: LineReport
    valid: LineReport

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON can hold it."""
        return {**vars(self), "train": self.train.to_dict(), "valid": self.valid.to_dict()}

    def lines(self) -> list[str]:
        """Say it in sentences: what there is to train on, what was left out and why."""
        unit = self.unit
        lines = [
            f"{self.train_examples:,} {unit} to train on, {self.valid_examples:,} to validate on, "
            f"vocabulary {self.vocab:,} ({self.targets}), longest text {self.longest_text:,} tokens"
        ]
        lines += [f"{count:,} {unit} {change}" for change, count in self.changes.items()]
        for name, part in (("training", self.train), ("validation", self.valid)):
            lines += [f"{name} {unit}: {sentence}" for sentence in part.lines(unit)]
        return lines


def prepare_examples(
    files: TranscribedFiles,
    config: AnyConfig,
    directory: Path,
    kind: InputKind,
    *,
    valid: TranscribedFiles | None = None,
    lenient: bool = False,
    trained: tuple[Encoder, Targets] | None = None,
    on_progress: Progress = lambda *_: None,
) -> TranscriptionReport:
    """Learn an encoder and targets from examples, unless they are given, and write a directory.

    Without validation examples, some are held out by what they are, so that none is in both parts.
    Memory does not grow with the files.
    """
    if directory.exists():
        raise DataError(f"{directory} exists already: choose another name, or remove it")
    data, seed = config.data, config.train.seed
    with new_directory(directory) as temporary:
        counted = _Counted()
        contents = counted.contents(files, data, kind, lenient, on_progress)
        encoder: Encoder | None
        if trained is None:
            encoder = kind.learn(contents, data, seed, None, on_progress)
        else:
            encoder, _ = trained
            deque(contents, maxlen=0)  # Read once all the same: to count and find faults.
        if encoder is None or not counted.report.kept:
            raise DataError(
                f"{files.paths[0]}: nothing to train on: of {counted.report.pairs:,} {kind.unit} "
                "none can be used"
            )
        if trained is not None:
            targets = trained[1]
        elif data.targets == "characters":
            targets = Characters.of(counted.characters)
        else:
            on_progress("learning subwords", 0, None)
            targets = learn_subwords(read_texts(files), data, seed)
        if isinstance(targets, Subwords):
            encoder.save(temporary, {}, {STREAM: targets})
        else:
            assert isinstance(targets, Characters)
            encoder.save(temporary, {STREAM: targets.table()})
        share = 0.0 if valid else min(_LARGEST_SHARE, data.holdout_examples / counted.report.kept)
        writing = _Writing(kind, encoder, targets)
        sizes: dict[str, int | Floats] = {kind.stream: encoder.stored, STREAM: len(targets)}
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
                    writing.add(example, held_out)
        if not len(train):
            raise DataError(
                f"nothing to train on: all {len(held_out):,} {kind.unit} were held out to validate "
                "on: give more, or some to validate on"
            )
        report = TranscriptionReport(
            train_examples=len(train),
            valid_examples=len(held_out),
            unit=kind.unit,
            targets=data.targets,
            vocab=len(targets),
            longest_text=writing.longest,
            changes=dict(writing.changes),
            train=train_report,
            valid=valid_report,
        )
        write_file(temporary / "report.json", json.dumps(report.to_dict(), indent=1).encode())
    return report


def notes(data: TargetsConfig, kind: InputKind) -> dict[str, Any]:
    """Return the settings that shards were made by, which a run of them must share."""
    return {key: getattr(data, key) for key in (*kind.settings, "targets")}


class _Counted:
    """What is in transcribed examples, counted while they are read for the first time."""

    def __init__(self) -> None:
        self.report = LineReport()
        self.characters: set[str] = set()

    def contents(
        self,
        files: TranscribedFiles,
        data: TargetsConfig,
        kind: InputKind,
        lenient: bool,
        on_progress: Progress,
    ) -> Iterator[Any]:
        for example in read_examples(files, data, kind, lenient=lenient, report=self.report):
            if self.report.kept % _PROGRESS_EXAMPLES == 0:
                on_progress("reading", self.report.pairs, None)
            self.characters.update(example.text)
            yield example.content


class _Writing:
    """What it takes to write examples, and what was done to them."""

    def __init__(self, kind: InputKind, encoder: Encoder, targets: Targets) -> None:
        self._kind, self._encoder, self._targets = kind, encoder, targets
        self.longest = 0
        self.changes: Counter[str] = Counter()

    def add(self, example: Transcribed, shards: ShardWriter) -> None:
        """Write one example."""
        encoded = self._encoder.encode(example.content)
        self.changes.update(encoded.changes)
        ids = np.array(self._targets.encode(example.text), dtype=np.int64)
        self.longest = max(self.longest, len(ids))
        shards.add(
            {
                self._kind.stream: (encoded.values, np.array([len(encoded.values)])),
                STREAM: (ids, np.array([len(ids)])),
            }
        )
