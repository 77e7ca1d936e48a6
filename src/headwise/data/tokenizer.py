"""Subword models on disk: the folder `tokenizer` of prepared data and of a run.

joint.model             or source.model and target.model
manifest.json           the SHA-256 of each
"""

import hashlib
import json
from pathlib import Path

from headwise.data.subwords import Subwords
from headwise.errors import DataError
from headwise.files import Folder, sync_directory, write_file

MANIFEST = "manifest.json"

_MOST_MANIFEST_BYTES = 1 << 16
_MOST_MODEL_BYTES = 32 << 20
"""Of a SentencePiece model: more than a million entries."""


def save_subwords(directory: Path, source: Subwords, target: Subwords) -> None:
    """Write the folder `tokenizer` into a directory that is being made; one model may be both."""
    folder = directory / "tokenizer"
    folder.mkdir()
    models = {"joint": source} if source is target else {"source": source, "target": target}
    digests = {}
    for name, subwords in models.items():
        write_file(folder / f"{name}.model", subwords.model)
        digests[f"{name}.model"] = hashlib.sha256(subwords.model).hexdigest()
    write_file(folder / MANIFEST, json.dumps({"sha256": digests}, indent=1).encode())
    sync_directory(folder)


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
    names = ["joint.model"] if "joint.model" in digests else ["source.model", "target.model"]
    models = []
    for name in names:
        model = _read_model(folder, name, digests.get(name))
        try:
            models.append(Subwords(model))
        except DataError as error:
            raise DataError(f"{folder.path / name}: {error}") from error
    return models[0], models[-1]


def _read_model(folder: Folder, name: str, digest: str | None) -> bytes:
    path = folder.path / name
    try:
        model = folder.read(name, _MOST_MODEL_BYTES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if hashlib.sha256(model).hexdigest() != digest:
        raise DataError(f"{path}: damaged: its SHA-256 is not the one it was saved with")
    return model


def _digests(folder: Folder) -> dict[str, str]:
    path = folder.path / MANIFEST
    try:
        manifest = folder.read_json(MANIFEST, _MOST_MANIFEST_BYTES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path}: not a manifest: {error}") from error
    digests = manifest.get("sha256") if isinstance(manifest, dict) else None
    if not isinstance(digests, dict) or not all(map(_is_file_name, digests)):
        raise DataError(f"{path}: not a manifest of subword models")
    return digests


def _is_file_name(name: str) -> bool:
    """Return whether it is a plain name, of no other directory."""
    return name.removesuffix(".model").isidentifier()
