"""Subword models on disk: the folder `tokenizer` of prepared data and of a run.

joint.model             or source.model and target.model; or one for each stream, by its name
manifest.json           the SHA-256 of each; where streams have names, their kinds as well
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.data.subwords import Subwords
from headwise.errors import DataError
from headwise.files import Folder, sync_directory, write_file

MANIFEST = "manifest.json"
SENTENCEPIECE = "sentencepiece"

_MOST_MANIFEST_BYTES = 1 << 16
_MOST_MODEL_BYTES = 32 << 20
"""Of a SentencePiece model: more than a million entries."""


def save_subwords(directory: Path, source: Subwords, target: Subwords) -> None:
    """Write the folder `tokenizer` into a directory that is being made; one model may be both."""
    models = {"joint": source} if source is target else {"source": source, "target": target}
    _save(directory, models, {})


def copy_tokenizer(source: Folder, directory: Path) -> None:
    """Copy the folder `tokenizer`, if there is one, into a directory that is being made."""
    folder = source / "tokenizer"
    if not folder.exists():
        return
    copy = directory / "tokenizer"
    copy.mkdir()
    for name, digest in _digests(folder).items():
        write_file(copy / name, _read_model(folder, name, digest))
    write_file(copy / MANIFEST, folder.read(MANIFEST, _MOST_MANIFEST_BYTES))
    sync_directory(copy)


def same_tokenizer(one: Folder, other: Folder) -> bool:
    """Return whether two directories have tokenizers of the same files, or neither has one."""
    folders = one / "tokenizer", other / "tokenizer"
    first, second = (_digests(each) if each.exists() else {} for each in folders)
    return first == second


def load_subwords(directory: Path | Folder) -> tuple[Subwords, Subwords]:
    """Load the source's and the target's subwords of a directory; they may be one."""
    folder = Folder.of(directory) / "tokenizer"
    digests = _digests(folder)
    names = ["joint"] if "joint.model" in digests else ["source", "target"]
    models = [_load(folder, name, digests) for name in names]
    return models[0], models[-1]


def save_streams(directory: Path, streams: Mapping[str, Subwords]) -> None:
    """Write the folder `tokenizer` with a subword model for each stream, by its name."""
    _save(directory, streams, {"streams": dict.fromkeys(streams, SENTENCEPIECE)})


def load_stream(directory: Path | Folder, name: str) -> Subwords:
    """Load the subwords of one stream."""
    folder = Folder.of(directory) / "tokenizer"
    manifest = _manifest(folder)
    kind = _table(folder, manifest, "streams").get(name)
    if kind != SENTENCEPIECE:
        found = "no stream" if kind is None else f"another kind ({kind!r:.40}) of stream"
        raise DataError(f"{folder.path / MANIFEST}: has {found} {name!r}")
    return _load(folder, name, _table(folder, manifest, "sha256"))


def _save(directory: Path, models: Mapping[str, Subwords], notes: dict[str, Any]) -> None:
    folder = directory / "tokenizer"
    folder.mkdir()
    digests = {}
    for name, subwords in models.items():
        write_file(folder / f"{name}.model", subwords.model)
        digests[f"{name}.model"] = hashlib.sha256(subwords.model).hexdigest()
    write_file(folder / MANIFEST, json.dumps({**notes, "sha256": digests}, indent=1).encode())
    sync_directory(folder)


def _load(folder: Folder, name: str, digests: dict[str, Any]) -> Subwords:
    file = f"{name}.model"
    model = _read_model(folder, file, digests.get(file))
    try:
        return Subwords(model)
    except DataError as error:
        raise DataError(f"{folder.path / file}: {error}") from error


def _read_model(folder: Folder, name: str, digest: str | None) -> bytes:
    path = folder.path / name
    try:
        model = folder.read(name, _MOST_MODEL_BYTES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if hashlib.sha256(model).hexdigest() != digest:
        raise DataError(f"{path}: damaged: its SHA-256 is not the one it was saved with")
    return model


def _manifest(folder: Folder) -> Any:
    path = folder.path / MANIFEST
    try:
        return folder.read_json(MANIFEST, _MOST_MANIFEST_BYTES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path}: not a manifest: {error}") from error


def _table(folder: Folder, manifest: Any, key: str) -> dict[str, Any]:
    table = manifest.get(key) if isinstance(manifest, dict) else None
    if not isinstance(table, dict):
        raise DataError(f"{folder.path / MANIFEST}: not a manifest of subword models")
    return table


def _digests(folder: Folder) -> dict[str, Any]:
    """Return the digests of the tokenizer's files, which have plain names."""
    digests = _table(folder, _manifest(folder), "sha256")
    if not all(name.removesuffix(".model").isidentifier() for name in digests):
        raise DataError(f"{folder.path / MANIFEST}: not a manifest of subword models")
    return digests
