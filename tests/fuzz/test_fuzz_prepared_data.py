"""Prepared data and exports: shards of token ids, tokenizer manifests, CTranslate2 manifests."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from headwise.config import DataConfig, Vocab
from headwise.data import ShardWriter, Subwords, TokenShards, load_subwords, save_subwords
from headwise.data.batches import Batches
from headwise.data.pairs import PAIR_FIELDS, collate_pairs
from headwise.interop.ctranslate2.files import Manifest, read_sealed, read_vocabularies, seal
from tests.fuzz.conftest import Fuzz
from tests.fuzz.contract import result_or_refusal
from tests.fuzz.mutations import EXTREMES, Draw, mutated, mutated_json

SIZES = {"source": 300, "target": 70_000}
LENGTHS = [3, 1, 4, 1, 5]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    directory = tmp_path / "shards"
    lengths = np.array(LENGTHS)
    with ShardWriter(directory, SIZES, sequences_per_shard=3) as writer:
        ids = np.arange(4, 4 + sum(LENGTHS))
        writer.add({"source": (ids, lengths), "target": (ids * 100, lengths)})
        writer.notes["pairs"] = len(LENGTHS)
    return directory


def use_shards(directory: Path) -> None:
    """Open the shards, check them as training does, and read their batches."""
    opened = TokenShards(directory)
    opened.verify(SIZES)
    for stream in SIZES:
        opened.sequence(stream, len(opened) - 1)
    batches = Batches(opened, PAIR_FIELDS, batch_tokens=100, seed=1)
    for pairs in batches.epoch(0):
        collate_pairs(batches.read(pairs), Vocab.shared(1000))


def test_shard_manifests(fuzz: Fuzz, shards: Path) -> None:
    path = shards / "manifest.json"
    content = path.read_bytes()

    def read(changed: bytes) -> None:
        path.write_bytes(changed)
        result_or_refusal(use_shards, shards)

    fuzz(mutated_json(json.loads(content)) | mutated(content), read)


@st.composite
def other_offsets(draw: Draw, valid: bytes) -> bytes:
    """Offsets one or two of which are others; the sizes of the files may still agree."""
    offsets = np.frombuffer(valid, dtype="<u8").copy()
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.integers(0, len(offsets) - 1))
        number = draw(st.integers(0, sum(LENGTHS)) | st.sampled_from(EXTREMES))
        offsets[place] = number % 2**64
    return offsets.tobytes()


def read_with(directory: Path, name: str, content: bytes) -> None:
    """Use shards with another file, of which the manifest has the digest."""
    path, manifest_path = directory / name, directory / "manifest.json"
    before = path.read_bytes(), manifest_path.read_bytes()
    manifest = json.loads(before[1])
    manifest["sha256"][name] = hashlib.sha256(content).hexdigest()
    path.write_bytes(content)
    manifest_path.write_text(json.dumps(manifest))
    result_or_refusal(use_shards, directory)
    path.write_bytes(before[0])
    manifest_path.write_bytes(before[1])


def test_offsets_and_ids(fuzz: Fuzz, shards: Path) -> None:
    manifest = json.loads((shards / "manifest.json").read_bytes())
    files = {name: (shards / name).read_bytes() for name in manifest["sha256"]}

    def changes(name: str) -> st.SearchStrategy[tuple[str, bytes]]:
        changed = mutated(files[name], most=2)
        if name.endswith("offsets"):
            changed |= other_offsets(files[name])
        return st.tuples(st.just(name), changed)

    fuzz(st.sampled_from(sorted(files)).flatmap(changes), lambda change: read_with(shards, *change))


def test_found_offsets_that_fall(shards: Path) -> None:
    read_with(shards, "00000.source.offsets", np.array([4, 3, 4, 8], dtype="<u8").tobytes())


def test_tokenizer_manifests(fuzz: Fuzz, tmp_path: Path) -> None:
    subwords = Subwords.learn(["the cat sees a small dog"] * 50, DataConfig(vocab_size=290))
    save_subwords(tmp_path, subwords, Subwords(subwords.model))
    path = tmp_path / "tokenizer" / "manifest.json"
    content = path.read_bytes()

    def read(changed: bytes) -> None:
        path.write_bytes(changed)
        result_or_refusal(load_subwords, tmp_path)

    fuzz(mutated_json(json.loads(content)) | mutated(content), read)


VOCABULARY = "source_vocabulary.json"

EXPORTED = {
    "model.bin": b"a model",
    "config.json": b"{}",
    VOCABULARY: json.dumps([f"<{n}>" for n in range(9)]).encode(),
    "target_vocabulary.json": json.dumps([f"<{n}>" for n in range(9)]).encode(),
}


@pytest.fixture
def export(tmp_path: Path) -> Path:
    directory = tmp_path / "export"
    directory.mkdir()
    for name, content in EXPORTED.items():
        (directory / name).write_bytes(content)
    seal(
        directory,
        Manifest(quantization="int8", weights="averaged", positions=64, ctranslate2="4.5.0"),
    )
    return directory


def test_ctranslate2_manifests(fuzz: Fuzz, export: Path) -> None:
    path = export / "manifest.json"
    content = path.read_bytes()

    def read(changed: bytes) -> None:
        path.write_bytes(changed)
        manifest = result_or_refusal(read_sealed, export)
        if manifest is not None:
            assert manifest.positions > 0
            assert isinstance(manifest.quantization, str)

    fuzz(mutated_json(json.loads(content)) | mutated(content), read)


def read_vocabulary(directory: Path, content: bytes) -> None:
    (directory / VOCABULARY).write_bytes(content)
    found = result_or_refusal(read_vocabularies, directory)
    assert found is None or all(isinstance(token, str) for side in found for token in side)


def test_ctranslate2_vocabularies(fuzz: Fuzz, export: Path) -> None:
    valid = EXPORTED[VOCABULARY]
    fuzz(
        mutated_json(json.loads(valid)) | mutated(valid),
        lambda content: read_vocabulary(export, content),
    )


@pytest.mark.parametrize("content", [b"", b'["', b"null", b"[null]", b"\xdb", b"\x00\x00[\xff"])
def test_found_ctranslate2_vocabularies(content: bytes, export: Path) -> None:
    read_vocabulary(export, content)
