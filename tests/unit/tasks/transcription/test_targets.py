"""Transcriptions as characters or subwords."""

import hashlib
import json
from pathlib import Path

import pytest

from headwise.config import AudioTranscriptionDataConfig, ImageTranscriptionDataConfig, Vocab
from headwise.data.tokenizer import save_streams
from headwise.errors import DataError
from headwise.tasks.transcription.targets import (
    STREAM,
    Characters,
    learn_subwords,
    load_targets,
)

TEXTS = ["one two", "two three", "three one two", "Größe 日本"] * 30


def save(directory: Path, table: object) -> None:
    save_streams(directory, {}, {STREAM: table})


def test_characters_come_back(tmp_path: Path) -> None:
    characters = Characters.of(set("".join(TEXTS)))
    save(tmp_path, characters.table())
    loaded = load_targets(tmp_path, ImageTranscriptionDataConfig())
    assert len(loaded) == len(characters) == 4 + len(set("".join(TEXTS)))
    for text in TEXTS[:4]:
        ids = loaded.encode(text)
        assert ids == characters.encode(text)
        assert min(ids) > Vocab.eos
        assert loaded.decode([Vocab.bos, *ids, Vocab.eos]) == text
        assert "".join(loaded.tokens(ids)) == text


def test_an_unknown_character_is_shown_as_one() -> None:
    characters = Characters.of(set("abc"))
    assert characters.decode(characters.encode("axc")) == "a\N{REPLACEMENT CHARACTER}c"


def test_too_many_characters_are_an_error() -> None:
    with pytest.raises(DataError, match="20,001 different characters.*data.targets=subwords"):
        Characters.of([chr(0x20000 + number) for number in range(20_001)])


@pytest.mark.parametrize(
    "table",
    [[], {}, {"characters": []}, {"characters": ["ab"]}, {"characters": ["a", "a"]},
     {"characters": "abc"}, {"characters": ["a", 3]}, {"characters": ["\0"]}],
)  # fmt: skip
def test_a_table_of_anything_else_is_an_error(tmp_path: Path, table: object) -> None:
    save(tmp_path, table)
    with pytest.raises(DataError, match="target.json: not a table of different characters"):
        Characters.load(tmp_path)


def test_half_a_pair_in_a_table_is_an_error(tmp_path: Path) -> None:
    save(tmp_path, {"characters": ["a"]})
    content = json.dumps({"characters": ["\ud800"]}).encode()
    (tmp_path / "tokenizer" / "target.json").write_bytes(content)
    manifest = tmp_path / "tokenizer" / "manifest.json"
    values = json.loads(manifest.read_text())
    values["sha256"]["target.json"] = hashlib.sha256(content).hexdigest()
    manifest.write_text(json.dumps(values))
    with pytest.raises(DataError, match=r"target\.json: not"):
        Characters.load(tmp_path)


def test_subwords_are_learned_from_the_texts(tmp_path: Path) -> None:
    data = AudioTranscriptionDataConfig(targets="subwords", vocab_size=290, sample_examples=50)
    subwords = learn_subwords(TEXTS, data, seed=1)
    save_streams(tmp_path, {STREAM: subwords})
    loaded = load_targets(tmp_path, data)
    assert loaded == subwords
    assert [loaded.decode(loaded.encode(text)) for text in TEXTS[:4]] == TEXTS[:4]
    with pytest.raises(DataError, match="has another kind"):
        load_targets(tmp_path, AudioTranscriptionDataConfig())
