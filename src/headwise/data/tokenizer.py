"""Subword models on disk: the folder `tokenizer` of prepared data and of a run.

joint.model             or source.model and target.model; or one for each stream, by its name
NAME.json               a stream of something else, such as symbols of trees: its table
manifest.json           the SHA-256 of each; where streams have names, their kinds as well
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.data.subwords import Subwords
from headwise.errors import DataError
from headwise.files import Folder, parse_json, sync_directory, write_file

MANIFEST = "manifest.json"
SENTENCEPIECE = "sentencepiece"
SYMBOLS = "symbols"

_MOST_MANIFEST_BYTES = 1 << 16
_MOST_MODEL_BYTES = 32 << 20
"""Of a SentencePiece model: more than a million entries."""
_MOST_TABLE_BYTES = 1 << 20
"""Of a table of symbols. As objects in memory, JSON takes up to 24 times its bytes."""


def save_subwords(directory: Path, source: Subwords, target: Subwords) -> None:
    """Write the folder `tokenizer` into a directory that is being made; one model may be both."""
    models = {"joint": source} if source is target else {"source": source, "target": target}
    _save(directory, models, {}, {})


def copy_tokenizer(source: Folder, directory: Path) -> None:
    """Copy the folder `tokenizer`, if there is one, into a directory that is being made."""
    folder = source / "tokenizer"
    if not folder.exists():
        return
    copy = directory / "tokenizer"
    copy.mkdir()
    for name, digest in _digests(folder).items():
        write_file(copy / name, _read_file(folder, name, digest, _MOST_MODEL_BYTES))
    write_file(copy / MANIFEST, folder.read(MANIFEST, _MOST_MANIFEST_BYTES))
    sync_directory(copy)


def same_tokenizer(one: Folder, other: Folder, *, but_for: str = "") -> bool:
    """Return whether two directories have tokenizers of the same files, or neither has one.

    `but_for` is a stream with a table in which they may differ.
    """
    folders = one / "tokenizer", other / "tokenizer"
    first, second = (
        {name: digest for name, digest in _digests(each).items() if name != f"{but_for}.json"}
        if each.exists()
        else {}
        for each in folders
    )
    return first == second


def load_subwords(directory: Path | Folder) -> tuple[Subwords, Subwords]:
    """Load the source's and the target's subwords of a directory; they may be one."""
    folder = Folder.of(directory) / "tokenizer"
    digests = _digests(folder)
    names = ["joint"] if "joint.model" in digests else ["source", "target"]
    models = [_load(folder, name, digests) for name in names]
    return models[0], models[-1]


def save_streams(
    directory: Path,
    streams: Mapping[str, Subwords],
    tables: Mapping[str, object] | None = None,
    kinds: Mapping[str, str] | None = None,
) -> None:
    """Write the folder `tokenizer`: a subword model for each stream, by its name.

    Other streams have a table each instead, anything that JSON can hold; they are of symbols, or of
    what `kinds` says.
    """
    tables = tables or {}
    named = {
        **dict.fromkeys(streams, SENTENCEPIECE),
        **dict.fromkeys(tables, SYMBOLS),
        **(kinds or {}),
    }
    _save(directory, streams, {"streams": named}, tables)


def has_stream(directory: Path | Folder, name: str) -> bool:
    """Return whether a tokenizer has a stream of this name, of any kind."""
    folder = Folder.of(directory) / "tokenizer"
    manifest = _manifest(folder)
    return "streams" in manifest and name in _table(folder, manifest, "streams")


def load_stream(directory: Path | Folder, name: str) -> Subwords:
    """Load the subwords of one stream."""
    folder, digests = _stream(directory, name, SENTENCEPIECE)
    return _load(folder, name, digests)


def load_table(directory: Path | Folder, name: str, kind: str = SYMBOLS) -> Any:
    """Load the table of a stream that has no subwords, as JSON holds it."""
    folder, digests = _stream(directory, name, kind)
    file = f"{name}.json"
    content = _read_file(folder, file, digests.get(file), _MOST_TABLE_BYTES)
    try:
        return parse_json(content)
    except ValueError as error:
        raise DataError(f"{folder.path / file}: not JSON: {error}") from error


def _stream(directory: Path | Folder, name: str, kind: str) -> tuple[Folder, dict[str, Any]]:
    """Return the folder `tokenizer` and its digests; it must have a stream of this kind."""
    folder = Folder.of(directory) / "tokenizer"
    manifest = _manifest(folder)
    actual = _table(folder, manifest, "streams").get(name)
    if actual != kind:
        found = "no stream" if actual is None else f"another kind ({actual!r:.40}) of stream"
        raise DataError(f"{folder.path / MANIFEST}: has {found} {name!r}")
    return folder, _table(folder, manifest, "sha256")


def _save(
    directory: Path,
    models: Mapping[str, Subwords],
    notes: dict[str, Any],
    tables: Mapping[str, object],
) -> None:
    folder = directory / "tokenizer"
    folder.mkdir()
    files = {f"{name}.model": subwords.model for name, subwords in models.items()}
    for name, table in tables.items():
        files[f"{name}.json"] = json.dumps(table, indent=1, ensure_ascii=False).encode()
    digests = {}
    for name, content in files.items():
        write_file(folder / name, content)
        digests[name] = hashlib.sha256(content).hexdigest()
    write_file(folder / MANIFEST, json.dumps({**notes, "sha256": digests}, indent=1).encode())
    sync_directory(folder)


def _load(folder: Folder, name: str, digests: dict[str, Any]) -> Subwords:
    file = f"{name}.model"
    model = _read_file(folder, file, digests.get(file), _MOST_MODEL_BYTES)
    try:
        return Subwords(model)
    except DataError as error:
        raise DataError(f"{folder.path / file}: {error}") from error


def _read_file(folder: Folder, name: str, digest: str | None, most_bytes: int) -> bytes:
    path = folder.path / name
    try:
        content = folder.read(name, most_bytes)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise DataError(f"{path}: damaged: its SHA-256 is not the one it was saved with")
    return content


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
    if not all(map(_is_plain, digests)):
        raise DataError(f"{folder.path / MANIFEST}: not a manifest of subword models")
    return digests


def _is_plain(name: str) -> bool:
    """Return whether it can be the name of a model or a table, and no path."""
    stem, _, ending = name.rpartition(".")
    return ending in ("model", "json") and stem.isidentifier() and name != MANIFEST
