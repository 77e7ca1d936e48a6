import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from headwise.config import Config
from headwise.data import ParallelFiles, TokenShards, TsvFile, load_subwords, prepare
from headwise.data import text as text_module
from headwise.data.pool import without_interrupts
from headwise.errors import DataError
from headwise.recipes import load_recipe

WORDS = ["the", "a", "cat", "dog", "house", "sees", "runs", "small", "large", "green", "garden"]


def config(*overrides: str) -> Config:
    return load_recipe("base", ["data.vocab_size=290", "data.holdout_pairs=20", *overrides])


def sentences(count: int, seed: int = 0) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(2, 9))) for _ in range(count)]


def files(folder: Path, sources: list[str], targets: list[str], name: str = "t") -> ParallelFiles:
    paths = folder / f"{name}.en", folder / f"{name}.xx"
    for path, lines in zip(paths, (sources, targets), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return ParallelFiles(sources=(paths[0],), targets=(paths[1],))


def stored(directory: Path, part: str) -> list[tuple[str, str]]:
    """Read the pairs of a prepared directory back as text."""
    source, target = load_subwords(directory)
    shards = TokenShards(directory / part)
    shards.verify()
    return [
        (
            source.decode(shards.sequence("source", n).tolist()),
            target.decode(shards.sequence("target", n).tolist()),
        )
        for n in range(len(shards))
    ]


@pytest.mark.parametrize("joint", [True, False])
def test_every_pair_comes_back_from_train_or_valid(tmp_path: Path, joint: bool) -> None:
    sources = sentences(500)
    targets = [line[::-1] for line in sources]
    overrides = [] if joint else ["data.joint=false", "model.tying=two-way"]
    report = prepare(
        files(tmp_path, sources, targets), config(*overrides), tmp_path / "d", processes=1
    )
    train, valid = stored(tmp_path / "d", "train"), stored(tmp_path / "d", "valid")
    assert sorted(train + valid) == sorted(zip(sources, targets, strict=True))
    assert (report.train_pairs, report.valid_pairs) == (len(train), len(valid))
    assert report.train.pairs == report.train.kept == 500
    assert (report.source_vocab, report.target_vocab) == (290, 290)
    assert (tmp_path / "d" / "tokenizer" / "joint.model").exists() is joint
    saved = json.loads((tmp_path / "d" / "report.json").read_text())
    assert saved["train_pairs"] == len(train)


def test_no_source_sentence_is_in_both_parts(tmp_path: Path) -> None:
    sources = sentences(60) * 10
    targets = [f"{line} {n}" for n, line in enumerate(sources)]
    prepare(files(tmp_path, sources, targets), config(), tmp_path / "d", processes=1)
    train, valid = stored(tmp_path / "d", "train"), stored(tmp_path / "d", "valid")
    assert valid
    assert not {source for source, _ in train} & {source for source, _ in valid}


def test_the_result_does_not_depend_on_processes_or_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = sentences(2500)
    text = files(tmp_path, sources, sources)
    prepare(text, config(), tmp_path / "one", processes=1)
    prepare(text, config(), tmp_path / "two", processes=2)
    monkeypatch.setattr(text_module.read_blocks, "__defaults__", (77,))
    prepare(text, config(), tmp_path / "small-blocks", processes=1)
    reference = {
        p.relative_to(tmp_path / "one"): p.read_bytes()
        for p in (tmp_path / "one").rglob("*")
        if p.is_file()
    }
    assert len(reference) == 13
    for other in ("two", "small-blocks"):
        for name, content in reference.items():
            assert (tmp_path / other / name).read_bytes() == content, (other, name)


def test_validation_text_is_encoded_with_the_training_texts_subwords(tmp_path: Path) -> None:
    text = files(tmp_path, sentences(300), sentences(300, seed=1))
    held = files(tmp_path, ["the ünseen cat"], ["größe"], "v")
    report = prepare(text, config(), tmp_path / "d", valid=held, processes=1)
    assert stored(tmp_path / "d", "valid") == [("the ünseen cat", "größe")]
    assert (report.train_pairs, report.valid.kept) == (300, 1)


def test_cleaning_is_asked_for_and_counted(tmp_path: Path) -> None:
    good = sentences(300)
    other = [f"x {line}" for line in good]
    sources = [*good, *good[:7], "same same", "a " * 200, "a a a a a a a a a a"]
    targets = [*other, *other[:7], "same same", "b " * 200, "b"]
    text = files(tmp_path, sources, targets)
    held = files(tmp_path, ["a"], ["b"], "v")
    asked = [
        "data.drop_duplicates=true",
        "data.drop_copies=true",
        "data.max_tokens=150",
        "data.max_ratio=4",
    ]
    report = prepare(text, config(*asked), tmp_path / "d", valid=held, processes=1)
    repeats = len(good) + 7 - len(set(zip(sources[:307], targets[:307], strict=True)))
    assert report.train.dropped == {
        "a duplicate": repeats,
        "target equal to its source": 1,
        "longer than data.max_tokens": 1,
        "beyond data.max_ratio": 1,
    }
    assert report.train.pairs == report.train.kept + report.train.dropped.total()
    assert report.train.kept == report.train_pairs == len(stored(tmp_path / "d", "train"))
    untouched = prepare(text, config(), tmp_path / "e", valid=held, processes=1)
    assert (untouched.train.dropped, untouched.train_pairs) == ({}, 310)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_bad_line_leaves_nothing_behind(tmp_path: Path, processes: int) -> None:
    path = tmp_path / "t.tsv"
    path.write_bytes(b"the cat\tthe dog\n" * 3000 + b"caf\xe9\tx\n")
    with pytest.raises(DataError, match=r"t\.tsv:3001: not UTF-8"):
        prepare(TsvFile(path=path), config(), tmp_path / "d", processes=processes)
    assert [p.name for p in tmp_path.iterdir()] == ["t.tsv"]


def test_nothing_to_train_on_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="of 2 pairs none can be used"):
        prepare(files(tmp_path, ["", "a"], ["b", ""]), config(), tmp_path / "d", processes=1)
    with pytest.raises(DataError, match="exists already"):
        prepare(files(tmp_path, ["a"], ["b"]), config(), tmp_path, processes=1)


def test_each_phase_is_reported_when_it_starts(tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    text = files(tmp_path, sentences(1500), sentences(1500, seed=1))
    prepare(
        text, config(), tmp_path / "d", processes=1, on_progress=lambda *news: told.append(news)
    )
    assert told == [
        ("reading", 1000, None),
        ("reading", 1500, None),
        ("learning subwords", 0, None),
        ("encoding", 0, 1500),
        ("encoding", 1000, 1500),
        ("encoding", 1500, 1500),
    ]


def test_an_interrupt_is_held_back_until_processes_have_started() -> None:
    inside = []

    def start() -> None:
        with without_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)  # Long enough for any thread to take it.
            inside.append("started")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert inside == ["started"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
