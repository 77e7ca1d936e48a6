"""Prepare trees for training: learn the subwords of their words, list their symbols, encode them.

A prepared directory is whole or not there at all:

    tokenizer/            the subwords, and the symbols with the bounds of trees
    train/, valid/        shards: the subwords of a sentence, the symbols of its tree, and the
                          source position of the next word at each symbol; valid/ also has the
                          trees as they are, to compare with
    report.json           what was read, left out and why
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headwise.config import ParsingConfig, ParsingDataConfig
from headwise.data import LineReport, ShardWriter, Subwords, TokenShards
from headwise.data.subwords import sample_texts
from headwise.data.trees import Tree, clean, read_tree, read_trees, write_tree
from headwise.errors import DataError
from headwise.files import new_directory, write_file
from headwise.seeding import hashed
from headwise.tasks.parsing.files import TreeFiles
from headwise.tasks.parsing.linearise import linearise
from headwise.tasks.parsing.tokenizer import SOURCE, TARGET, TreeCounts, TreeTokenizer
from headwise.training.task import Progress

ALIGNED, TREE = "aligned", "tree"

_LARGEST_SHARE = 0.1
"""Of the trees: what is held out at most."""

_LONGEST_SOURCE = 2**16 - 1
"""Subwords of a sentence: positions are stored in two bytes."""

_PROGRESS_TREES = 100


@dataclass(frozen=True, kw_only=True)
class TreeReport:
    """What became of the training trees and of the validation trees."""

    train_trees: int
    """Those of files with a weight count as often as they are seen in an epoch."""
    valid_trees: int
    source_vocab: int
    symbols: int
    train: LineReport
    valid: LineReport

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON can hold it."""
        return {**vars(self), "train": self.train.to_dict(), "valid": self.valid.to_dict()}

    def lines(self) -> list[str]:
        """Say it in sentences: what there is to train on, what was left out and why."""
        lines = [
            f"{self.train_trees:,} trees to train on, {self.valid_trees:,} to validate on, "
            f"vocabulary {self.source_vocab:,} and {self.symbols:,} symbols"
        ]
        for name, part in (("training", self.train), ("validation", self.valid)):
            lines += [f"{name} trees: {sentence}" for sentence in part.lines("trees")]
        return lines


def prepare_trees(
    files: TreeFiles,
    config: ParsingConfig,
    directory: Path,
    *,
    valid: TreeFiles | None = None,
    lenient: bool = False,
    tokenizer: TreeTokenizer | None = None,
    subwords: Subwords | None = None,
    on_progress: Progress = lambda *_: None,
) -> TreeReport:
    """Learn a tokenizer from trees, unless one is given, and write a prepared directory.

    With subwords alone, the symbols are still those of the trees.

    Without validation trees, some are held out by their sentences, so that no sentence is in both
    parts. Memory does not grow with the files.
    """
    if directory.exists():
        raise DataError(f"{directory} exists already: choose another name, or remove it")
    data, seed = config.data, config.train.seed
    with new_directory(directory) as temporary:
        report, counts = LineReport(), TreeCounts()
        sentences = _sentences(_cleaned(files, lenient, report), counts, data, report, on_progress)
        # Where a tokenizer is given, the trees are still read once: to count and find faults.
        size = data.sample_trees if tokenizer is None and subwords is None else 1
        sample = sample_texts(sentences, size, seed, unit="trees")
        if not sample:
            raise DataError(f"nothing to train on: of {report.pairs:,} trees none can be used")
        if tokenizer is None:
            on_progress("learning subwords", 0, None)
            texts = (text for (text,) in sample)
            tokenizer = TreeTokenizer.learn(texts, counts, data, subwords)
        del sample
        tokenizer.save(temporary)
        share = 0.0 if valid else min(_LARGEST_SHARE, data.holdout_trees / report.kept)
        train_report, valid_report = LineReport(), LineReport()
        sizes = {SOURCE: len(tokenizer.subwords), ALIGNED: 2**16, TARGET: len(tokenizer.symbols)}
        encoder = _Encoder(tokenizer, data)
        with ShardWriter(temporary / "valid", {**sizes, TREE: 256}) as held_out:
            with ShardWriter(temporary / "train", sizes) as train:
                for number, found in enumerate(_cleaned(files, lenient, train_report)):
                    if number % _PROGRESS_TREES == 0:
                        on_progress("encoding", number, report.kept)
                    example = encoder.encode(found, train_report)
                    if example is None:
                        continue
                    sentence = " ".join(found.tree.words())
                    if share and hashed(f"holdout {seed} {sentence}") < share * 2**64:
                        held_out.add_example(_with_tree(example, found.tree))
                        continue
                    for _ in range(_copies(found.weight, f"{seed} {number}")):
                        train.add_example(example)
            if valid is not None:
                for found in _cleaned(valid, lenient, valid_report):
                    example = encoder.encode(found, valid_report)
                    if example is not None:
                        held_out.add_example(_with_tree(example, found.tree))
        if not len(train):
            raise DataError(
                f"nothing to train on: of {train_report.pairs:,} trees, {len(held_out):,} were "
                "held out to validate on and the others left out: give more trees, or --valid-trees"
            )
        prepared = TreeReport(
            train_trees=len(train),
            valid_trees=len(held_out),
            source_vocab=len(tokenizer.subwords),
            symbols=len(tokenizer.symbols.names),
            train=train_report,
            valid=valid_report,
        )
        write_file(temporary / "report.json", json.dumps(prepared.to_dict(), indent=1).encode())
    return prepared


def stored_tree(shards: TokenShards, number: int) -> Tree:
    """Return a validation tree as it was before it was encoded."""
    content = bytes(shards.checked_sequence(TREE, number, 256).tolist())
    try:
        return read_tree(content.decode())
    except (DataError, UnicodeDecodeError) as error:
        raise DataError(f"{shards.directory}: tree {number} is damaged: prepare it anew") from error


@dataclass(frozen=True)
class _Found:
    """A tree that can be used, where it is from, and the weight of its file."""

    tree: Tree
    place: str
    weight: float


def _cleaned(files: TreeFiles, lenient: bool, report: LineReport) -> Iterator[_Found]:
    """Yield the trees of files as a parser is to learn them; count those without words."""
    for path, weight in zip(files.paths, files.weights, strict=True):
        for found in read_trees(path, lenient=lenient, report=report):
            tree, place = clean(found.tree), f"{path}:{found.line}"
            if tree is None:
                report.kept -= 1
                report.drop("nothing but traces", place)
            else:
                yield _Found(tree, place, weight)


def _sentences(
    trees: Iterator[_Found],
    counts: TreeCounts,
    data: ParsingDataConfig,
    report: LineReport,
    on_progress: Progress,
) -> Iterator[tuple[str]]:
    """Yield the words of trees, joined by spaces, and count what the trees have in them."""
    for number, found in enumerate(trees):
        if number % _PROGRESS_TREES == 0:
            on_progress("reading", report.pairs, None)
        counts.add(linearise(found.tree, data.leaves))
        yield (" ".join(found.tree.words()),)


@dataclass(frozen=True)
class _Encoder:
    tokenizer: TreeTokenizer
    data: ParsingDataConfig

    def encode(self, found: _Found, report: LineReport) -> dict[str, list[int]] | None:
        """Return the streams of one tree; None, and count it, if it is far too long."""
        source, ends = self.tokenizer.encode_words(found.tree.words())
        if len(source) > _LONGEST_SOURCE:
            report.kept -= 1
            report.drop(f"more than {_LONGEST_SOURCE:,} subwords", found.place)
            return None
        target, leaves_before = self.tokenizer.encode_tree(found.tree, self.data.leaves)
        aligned = np.array(ends)[leaves_before].tolist()
        return {SOURCE: source, ALIGNED: aligned, TARGET: target}


def _with_tree(example: dict[str, list[int]], tree: Tree) -> dict[str, list[int]]:
    return {**example, TREE: list(write_tree(tree).encode())}


def _copies(weight: float, key: str) -> int:
    """Return how often a tree of this weight is in the data."""
    whole = int(weight)
    return whole + (hashed(f"weight {key}") < (weight - whole) * 2**64)
