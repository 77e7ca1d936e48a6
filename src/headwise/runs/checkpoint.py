"""One checkpoint: a directory that is whole or not there, and that knows if it has been damaged.

    manifest.json            format and kind, the SHA-256 of every other file and of itself
    weights.safetensors      parameters by name; tied ones once, by the first of their names
    optimizer.safetensors    Adam's two means and its count for each parameter
    state.json               where training stood (state.py)

An average of checkpoints is the same without the last two.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any

from torch import Tensor

from headwise.errors import CheckpointError
from headwise.files import Folder, create_file, new_directory, parse_json, write_file
from headwise.runs.state import TrainingState
from headwise.runs.tensors import (
    MOST_BYTES,
    MOST_HEADER_BYTES,
    describe_tensors,
    load_tensors,
    save_tensors,
)

FORMAT_VERSION = 1

MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"

_MOST_BYTES = {
    MANIFEST: 1 << 20,
    WEIGHTS: MOST_BYTES,
    OPTIMIZER: MOST_BYTES,
    STATE: 1 << 16,
}
_MOST_HEADER_BYTES = {WEIGHTS: MOST_HEADER_BYTES, OPTIMIZER: 4 * MOST_HEADER_BYTES}
"""Adam has three tensors for each of the weights."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What training needs to go on."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: TrainingState


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a checkpoint directory says of itself."""

    digests: dict[str, str]
    """The SHA-256 of each file, by name."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What else there is to say: an average names the steps it was made from."""


def write_checkpoint(
    directory: Path,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: TrainingState,
) -> None:
    """Write a checkpoint to train on from; the directory must not exist yet."""
    with new_directory(directory) as temporary:
        text = _json(state.to_dict())
        write_file(temporary / STATE, text)
        digests = {
            WEIGHTS: _write_tensors(temporary / WEIGHTS, weights),
            OPTIMIZER: _write_tensors(temporary / OPTIMIZER, optimizer),
            STATE: hashlib.sha256(text).hexdigest(),
        }
        _write_manifest(temporary, Manifest(digests=digests))


def write_weights(directory: Path, weights: Mapping[str, Tensor], notes: dict[str, Any]) -> None:
    """Write weights alone into a directory being made, with notes on where they come from."""
    digests = {WEIGHTS: _write_tensors(directory / WEIGHTS, weights)}
    _write_manifest(directory, Manifest(digests=digests, notes=notes))


def read_checkpoint(directory: Path | Folder) -> Checkpoint:
    """Read a whole checkpoint, after making sure that every byte of it is as it was written."""
    folder = Folder.of(directory)
    manifest = read_manifest(folder)
    return Checkpoint(
        weights=_tensors(folder, WEIGHTS, manifest),
        optimizer=_tensors(folder, OPTIMIZER, manifest),
        state=_state(folder, manifest),
    )


def describe_weights(directory: Path | Folder) -> dict[str, Tensor]:
    """Read names, shapes and types of the weights, as tensors on the meta device."""
    folder = Folder.of(directory)
    with _opened(folder, WEIGHTS) as file:
        return describe_tensors(file, folder.path / WEIGHTS)


def read_weights(directory: Path | Folder) -> dict[str, Tensor]:
    """Read the weights of a checkpoint or of an average, after making sure that they are whole."""
    folder = Folder.of(directory)
    return _tensors(folder, WEIGHTS, read_manifest(folder))


def read_state(directory: Path | Folder) -> TrainingState:
    """Read where training stood at a checkpoint."""
    folder = Folder.of(directory)
    return _state(folder, read_manifest(folder))


def verify(directory: Path | Folder, names: tuple[str, ...]) -> None:
    """Raise CheckpointError unless these files are there and as they were written."""
    folder = Folder.of(directory)
    manifest = read_manifest(folder)
    for name in names:
        with _opened(folder, name, manifest):
            pass


def read_manifest(directory: Path | Folder) -> Manifest:
    """Read what a checkpoint directory says of itself, after making sure that it is undamaged."""
    folder = Folder.of(directory)
    path = folder.path / MANIFEST
    with _opened(folder, MANIFEST) as file:
        raw = file.read()
    try:
        body = parse_json(raw)
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged: not JSON: {error}") from error
    version = body.get("format_version") if isinstance(body, dict) else None
    if type(version) is int and version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format_version is {version}, and this Headwise reads {FORMAT_VERSION}: "
            "upgrade Headwise"
        )
    digest = body.pop("sha256", None) if isinstance(body, dict) else None
    try:
        # The bytes too: a changed space is still a damaged file.
        is_same = digest == _digest(body) and raw == _json({**body, "sha256": digest})
    except RecursionError:
        is_same = False  # Nested more deeply than anything that was saved.
    if not is_same:
        raise CheckpointError(f"{path}: damaged: it is not as it was saved")
    files, notes = body.get("files"), body.get("notes")
    known = (WEIGHTS, OPTIMIZER, STATE)
    if not isinstance(files, dict) or not set(files) <= set(known) or not isinstance(notes, dict):
        raise CheckpointError(f"{path}: not a checkpoint's manifest")
    return Manifest(digests=files, notes=notes)


@contextmanager
def _opened(
    folder: Folder, name: str, manifest: Manifest | None = None
) -> Iterator[BufferedReader]:
    """Open a file of a checkpoint; with its manifest, make sure that the file is undamaged.

    The caller reads from the open file that was checked, whatever has its name by then.
    """
    path = folder.path / name
    if manifest is not None and name not in manifest.digests:
        raise CheckpointError(f"{folder.path / MANIFEST}: has no {name}")
    try:
        with folder.open(name, _MOST_BYTES[name]) as file:
            if manifest is not None:
                if name in _MOST_HEADER_BYTES:
                    # It bounds the size: a digest of a sparse terabyte would take an hour.
                    describe_tensors(file, path, _MOST_HEADER_BYTES[name])
                    file.seek(0)
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                if digest != manifest.digests[name]:
                    raise CheckpointError(
                        f"{path}: damaged: its SHA-256 is not the one it was saved with"
                    )
                file.seek(0)
            yield file
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error


def _tensors(folder: Folder, name: str, manifest: Manifest) -> dict[str, Tensor]:
    with _opened(folder, name, manifest) as file:
        return load_tensors(file, folder.path / name)


def _state(folder: Folder, manifest: Manifest) -> TrainingState:
    with _opened(folder, STATE, manifest) as file:
        raw = file.read()
    try:
        return TrainingState.from_dict(parse_json(raw))
    except ValueError as error:
        raise CheckpointError(f"{folder.path / STATE}: not a training state: {error}") from error


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    with create_file(path) as file:
        return save_tensors(file, tensors)


def _write_manifest(directory: Path, manifest: Manifest) -> None:
    body = {
        "format_version": FORMAT_VERSION,
        "files": dict(manifest.digests),
        "notes": manifest.notes,
    }
    write_file(directory / MANIFEST, _json({**body, "sha256": _digest(body)}))


def _digest(body: object) -> str:
    return hashlib.sha256(_json(body)).hexdigest()


def _json(body: object) -> bytes:
    return json.dumps(body, indent=1, sort_keys=True).encode() + b"\n"
