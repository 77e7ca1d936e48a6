"""Text for comparing models: the longest sentences are held out of training, to be tested on."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from headwise.config import Config
from headwise.data import ParallelFiles, Subwords, Text
from headwise.data.prepare import learn_subwords, prepare
from headwise.data.subwords import sample_pairs
from headwise.data.text import decode_block, read_blocks
from headwise.data.unseen import Pair, sentence_key, split_by_source
from headwise.files import new_directory, parse_json, write_file
from headwise.training.task import Progress
from headwise.workflows.reproduce.cell import TestSentence, write_test

_LONG_SHARE = 0.02
"""Of the sources: the longest, which training does not see; more if several are as long."""

_LARGEST_SHARE = 0.1
"""Training must not lose more than this."""

_FEWEST_LONG = 20
"""Sentences; fewer than these say nothing."""

_MOST_LONG = 500
_MOST_TEST = 1000


@dataclass(frozen=True, kw_only=True)
class BaselineText:
    """Prepared data and test sentences."""

    data: Path
    test: Path
    train_pairs: int
    test_sentences: int
    longest: int
    """Source tokens of the longest sentence in training."""
    long_sentences: int
    """Test sentences that are longer; 0 if the text is too small to hold any out."""
    long_median: int
    long_longest: int
    """Source tokens of those; 0 if there are none."""


def baseline_text(
    text: Text,
    valid: Text | None,
    config: Config,
    directory: Path,
    on_progress: Progress = lambda *_: None,
) -> BaselineText:
    """Split and encode a text, or open the directory in which that was done."""
    if not directory.is_dir():
        with new_directory(directory) as temporary:
            _make(text, valid, config, temporary, on_progress)
    counts = parse_json((directory / "text.json").read_bytes())
    return BaselineText(data=directory / "data", test=directory / "test.jsonl", **counts)


def _make(
    text: Text, valid: Text | None, config: Config, directory: Path, on_progress: Progress
) -> None:
    pairs = list(_pairs(text))
    sources = len({sentence_key(source) for source, _ in pairs})
    held_out = min(_MOST_TEST, sources // 10)
    split = split_by_source(pairs, test=held_out, valid=0 if valid else held_out)
    sample = sample_pairs(iter(split.train), config.data.sample_pairs, config.train.seed)
    subwords = learn_subwords(sample, config.data)
    train, long = _without_longest(split.train, subwords[0])
    longest = max((len(subwords[0].encode(source)) for source, _ in train), default=0)
    test = [
        TestSentence(
            source=source,
            references=references,
            is_long=bool(long) and len(subwords[0].encode(source)) > longest,
        )
        for source, references in split.test
    ]
    test += [TestSentence(source=s, references=r, is_long=True) for s, r in long.items()]
    files = {"train": train, **({} if valid else {"valid": split.valid})}
    for part, chosen in files.items():
        for side, name in enumerate(("source", "target")):
            lines = "".join(f"{pair[side]}\n" for pair in chosen)
            write_file(directory / f"{part}.{name}", lines.encode())
    write_file(directory / "test.jsonl", write_test(test))
    prepare(
        _files(directory, "train"),
        config,
        directory / "data",
        valid=valid or _files(directory, "valid"),
        subwords=subwords,
        on_progress=on_progress,
    )
    long_lengths = [len(subwords[0].encode(each.source)) for each in test if each.is_long]
    counts = {
        "train_pairs": len(train),
        "test_sentences": len(test) - len(long_lengths),
        "longest": longest,
        "long_sentences": len(long_lengths),
        "long_median": round(median(long_lengths)) if long_lengths else 0,
        "long_longest": max(long_lengths, default=0),
    }
    write_file(directory / "text.json", json.dumps(counts).encode())


def _pairs(text: Text) -> Iterator[Pair]:
    for block in read_blocks(text):
        yield from decode_block(block, lenient=False)[0]


def _without_longest(
    pairs: list[Pair], subwords: Subwords
) -> tuple[list[Pair], dict[str, tuple[str, ...]]]:
    """Return the pairs to train on, and the longest sources with their translations.

    None are held out if a tenth of the text would be too few to measure anything on.
    """
    lengths = {source: len(subwords.encode(source)) for source, _ in pairs}
    in_order = sorted(lengths.values(), reverse=True)
    wanted = max(_FEWEST_LONG, int(_LONG_SHARE * len(in_order)))
    if wanted >= len(in_order):
        return pairs, {}
    limit = in_order[wanted - 1] - 1
    long: dict[str, list[str]] = {}
    for source, target in pairs:
        if lengths[source] > limit:
            long.setdefault(source, []).append(target)
    if len(long) > _LARGEST_SHARE * len(in_order):
        return pairs, {}
    # Nor may training see another spelling of one.
    keys = set(map(sentence_key, long))
    train = [pair for pair in pairs if sentence_key(pair[0]) not in keys]
    chosen = sorted(long, key=_draw)[:_MOST_LONG]
    return train, {source: tuple(dict.fromkeys(long[source])) for source in chosen}


def _draw(source: str) -> bytes:
    return hashlib.blake2b(source.encode(), digest_size=8).digest()


def _files(directory: Path, part: str) -> ParallelFiles:
    return ParallelFiles.of(directory / f"{part}.source", directory / f"{part}.target")
