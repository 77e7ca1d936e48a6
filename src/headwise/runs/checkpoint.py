"""One checkpoint: a directory that is whole or not there, and that knows if it has been damaged.

    manifest.json            format and kind, the SHA-256 of every other file and of itself
    weights.safetensors      parameters by name; tied ones once, by the first of their names
    optimizer.safetensors    Adam's two means and its count for each parameter
    state.json               where training stood (state.py)

An average of checkpoints is the same without the last two.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from headwise.errors import CheckpointError
from headwise.files import new_directory, write_file
from headwise.runs.state import TrainingState
from headwise.runs.tensors import read_tensors, write_tensors

FORMAT_VERSION = 1

MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"


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
            WEIGHTS: write_tensors(temporary / WEIGHTS, weights),
            OPTIMIZER: write_tensors(temporary / OPTIMIZER, optimizer),
            STATE: hashlib.sha256(text).hexdigest(),
        }
        _write_manifest(temporary, Manifest(digests=digests))


def write_weights(directory: Path, weights: Mapping[str, Tensor], notes: dict[str, Any]) -> None:
    """Write weights alone into a directory being made, with notes on where they come from."""
    digests = {WEIGHTS: write_tensors(directory / WEIGHTS, weights)}
    _write_manifest(directory, Manifest(digests=digests, notes=notes))


def read_checkpoint(directory: Path) -> Checkpoint:
    """Read a whole checkpoint, after making sure that every byte of it is as it was written."""
    verify(directory, (WEIGHTS, OPTIMIZER, STATE))
    return Checkpoint(
        weights=read_tensors(directory / WEIGHTS),
        optimizer=read_tensors(directory / OPTIMIZER),
        state=read_state(directory),
    )


def read_weights(directory: Path) -> dict[str, Tensor]:
    """Read the weights of a checkpoint or of an average, after making sure that they are whole."""
    verify(directory, (WEIGHTS,))
    return read_tensors(directory / WEIGHTS)


def read_state(directory: Path) -> TrainingState:
    """Read where training stood at a checkpoint."""
    verify(directory, (STATE,))
    path = directory / STATE
    try:
        return TrainingState.from_dict(json.loads(path.read_bytes()))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a training state: {error}") from error


def verify(directory: Path, names: tuple[str, ...]) -> None:
    """Raise CheckpointError unless these files are there and as they were written."""
    manifest = read_manifest(directory)
    for name in names:
        path = directory / name
        if name not in manifest.digests:
            raise CheckpointError(f"{directory / MANIFEST}: has no {name}")
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
        if digest != manifest.digests[name]:
            raise CheckpointError(f"{path}: damaged: its SHA-256 is not the one it was saved with")


def read_manifest(directory: Path) -> Manifest:
    """Read what a checkpoint directory says of itself, after making sure that it is undamaged."""
    path = directory / MANIFEST
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: damaged: not JSON: {error}") from error
    version = body.get("format_version") if isinstance(body, dict) else None
    if type(version) is int and version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format_version is {version}, and this Headwise reads {FORMAT_VERSION}: "
            "upgrade Headwise"
        )
    digest = body.pop("sha256", None) if isinstance(body, dict) else None
    # The bytes too: a changed space is still a damaged file.
    if digest != _digest(body) or raw != _json({**body, "sha256": digest}):
        raise CheckpointError(f"{path}: damaged: it is not as it was saved")
    files, notes = body.get("files"), body.get("notes")
    known = (WEIGHTS, OPTIMIZER, STATE)
    if not isinstance(files, dict) or not set(files) <= set(known) or not isinstance(notes, dict):
        raise CheckpointError(f"{path}: not a checkpoint's manifest")
    return Manifest(digests=files, notes=notes)


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
