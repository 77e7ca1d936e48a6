"""Prepare parallel text for training: learn its subwords, encode it, store it.

A prepared directory is whole or not there at all:

    tokenizer/                            the subwords (see tokenizer.py)
    train/, valid/                        shards of token ids (see shards.py)
    report.json                           what was read, mended, left out and why
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headwise.config import Config, DataConfig
from headwise.data.encode import EncodedBlock, Encoder
from headwise.data.fingerprints import Fingerprints
from headwise.data.pool import in_processes
from headwise.data.shards import Packed, ShardWriter
from headwise.data.subwords import Subwords, sample_pairs
from headwise.data.text import LineReport, ParallelFiles, TsvFile, decode_block, read_blocks
from headwise.data.tokenizer import save_subwords
from headwise.errors import DataError
from headwise.files import new_directory, write_file
from headwise.machine import num_cores

Text = ParallelFiles | TsvFile
Progress = Callable[[str, int, int | None], None]
"""Told what is being done, how many pairs of it are done, and of how many if that is known."""

_PAIRS_FOR_ONE_PROCESS = 10_000
"""So many are encoded before other processes would have been started."""


@dataclass(frozen=True, kw_only=True)
class PreparedReport:
    """What became of every pair of the training text and of the validation text."""

    train_pairs: int
    valid_pairs: int
    source_vocab: int
    target_vocab: int
    train: LineReport = field(default_factory=LineReport)
    valid: LineReport = field(default_factory=LineReport)

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON can hold it."""
        return {**vars(self), "train": self.train.to_dict(), "valid": self.valid.to_dict()}

    def lines(self) -> list[str]:
        """Say it in sentences: what there is to train on, what was left out and why."""
        vocab = f"{self.source_vocab:,}"
        if self.target_vocab != self.source_vocab:
            vocab += f" and {self.target_vocab:,}"
        lines = [
            f"{self.train_pairs:,} pairs to train on, {self.valid_pairs:,} to validate on, "
            f"vocabulary {vocab}"
        ]
        for name, part in (("training", self.train), ("validation", self.valid)):
            lines += [f"{name} text: {sentence}" for sentence in part.lines("pairs")]
        return lines


def prepare(
    text: Text,
    config: Config,
    directory: Path,
    *,
    valid: Text | None = None,
    lenient: bool = False,
    processes: int | None = None,
    subwords: tuple[Subwords, Subwords] | None = None,
    on_progress: Progress = lambda *_: None,
) -> PreparedReport:
    """Learn subwords from a text, encode it and write a prepared directory.

    Subwords that are given are used instead of learning any. Without validation text, pairs are
    held out of the training text by their source sentence. Memory does not grow with the text,
    except with `data.drop_duplicates`, by 8 bytes a pair and as many again for moments. The result
    does not depend on the number of processes.
    """
    if directory.exists():
        raise DataError(f"{directory} exists already: choose another name, or remove it")
    with new_directory(directory) as temporary:
        return _prepare_in(
            temporary,
            text,
            valid,
            config,
            lenient,
            processes,
            subwords,
            on_progress,
        )


def _prepare_in(
    directory: Path,
    text: Text,
    valid: Text | None,
    config: Config,
    lenient: bool,
    processes: int | None,
    subwords: tuple[Subwords, Subwords] | None,
    on_progress: Progress,
) -> PreparedReport:
    data, seed = config.data, config.train.seed
    counts = LineReport()
    pairs = _decoded(text, lenient, counts, on_progress)
    # Where subwords are given, the text is still read once: to count it, and to find its faults.
    sample = sample_pairs(pairs, data.sample_pairs if subwords is None else 1, seed)
    if not sample:
        raise DataError(f"nothing to train on: of {counts.pairs:,} pairs none can be used")
    if processes is None:
        processes = num_cores() if counts.pairs > _PAIRS_FOR_ONE_PROCESS else 1
    if subwords is None:
        on_progress("learning subwords", 0, None)
        subwords = learn_subwords(sample, data)
    del sample
    source, target = subwords
    save_subwords(directory, source, target)
    encoder = Encoder(
        source=source,
        target=target,
        data=data,
        lenient=lenient,
        holdout_share=0.0 if valid else min(0.1, data.holdout_pairs / counts.kept),
        seed=seed,
    )
    sizes = {"source": len(source), "target": len(target)}
    train_report, valid_report = LineReport(), LineReport()
    with ShardWriter(directory / "valid", sizes) as held_out:
        with ShardWriter(directory / "train", sizes) as train:
            seen = Fingerprints()
            on_progress("encoding", 0, counts.pairs)
            for block in in_processes(encoder.encode, read_blocks(text), processes):
                train_report.add(block.report)
                on_progress("encoding", train_report.pairs, counts.pairs)
                fresh = (
                    _without_seen(block, seen, train_report)
                    if data.drop_duplicates
                    else block.train
                )
                train.add(fresh)
                held_out.add(block.held_out)
        if valid is not None:
            for block in in_processes(encoder.encode, read_blocks(valid), processes):
                valid_report.add(block.report)
                held_out.add(block.train)
    if not len(train):
        raise DataError(
            f"nothing to train on: of {train_report.pairs:,} pairs, {len(held_out):,} were held "
            "out to validate on and the others left out: give more text, or --valid-src and "
            "--valid-tgt"
        )
    report = PreparedReport(
        train=train_report,
        valid=valid_report,
        train_pairs=len(train),
        valid_pairs=len(held_out),
        source_vocab=len(source),
        target_vocab=len(target),
    )
    write_file(directory / "report.json", json.dumps(report.to_dict(), indent=1).encode())
    return report


def _decoded(
    text: Text, lenient: bool, counts: LineReport, on_progress: Progress
) -> Iterator[tuple[str, str]]:
    for block in read_blocks(text):
        pairs, report = decode_block(block, lenient=lenient)
        counts.add(report)
        on_progress("reading", counts.pairs, None)
        yield from pairs


def learn_subwords(sample: list[tuple[str, str]], data: DataConfig) -> tuple[Subwords, Subwords]:
    """Learn the subwords of both sides, which are the same if they share a vocabulary."""
    if data.joint:
        joint = Subwords.learn((side for pair in sample for side in pair), data)
        return joint, joint
    source, target = (Subwords.learn((pair[side] for pair in sample), data) for side in range(2))
    return source, target


def _without_seen(block: EncodedBlock, seen: Fingerprints, report: LineReport) -> dict[str, Packed]:
    """Leave out the pairs whose text has been seen, and count them."""
    fresh = seen.add(block.fingerprints)
    duplicates = int((~fresh).sum())
    if duplicates:
        report.dropped["a duplicate"] += duplicates
        report.kept -= duplicates
    return {
        stream: (ids[np.repeat(fresh, lengths)], lengths[fresh])
        for stream, (ids, lengths) in block.train.items()
    }
