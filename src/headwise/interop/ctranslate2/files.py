"""An exported CTranslate2 model on disk: a directory that is written atomically.

manifest.json               format, what was exported, and the SHA-256 of the files below
model.bin, config.json      what CTranslate2 reads, and with them:
source_vocabulary.json      the subwords by id; the source's eos is called <end>
target_vocabulary.json      the subwords by id
tokenizer/                  the subwords, as in a run
verification.json           how close to the model it is; written last, not in the manifest
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from headwise.config import SMALLEST_VOCABULARY
from headwise.errors import CheckpointError, ConfigError, UnsafeFileError
from headwise.files import Folder, flush, write_file

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
VERIFICATION = "verification.json"

MODEL = "model.bin"
_READ_BY_LIBRARY = (MODEL, "config.json", "source_vocabulary.json", "target_vocabulary.json")

_PLAIN_NAME = re.compile(r"(tokenizer/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")

_MOST_JSON_BYTES = 8 << 20
"""Of a vocabulary: some 500,000 entries."""

_MOST_TOKENIZER_BYTES = 32 << 20

_MOST_MANIFEST_BYTES = 1 << 20

MOST_MODEL_BYTES = 1 << 40

Quantization = Literal["float32", "int8", "int16"]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The manifest of an export."""

    quantization: str
    """The type in which its weights are stored and multiplied."""
    weights: str
    """The checkpoint or average, within the run, that it was made from."""
    positions: int
    """The longest sequence, end token included, that it has positional encodings for."""
    ctranslate2: str
    """The version of the library that wrote it."""


def library() -> ModuleType:
    """Import CTranslate2, or say how to install it."""
    try:
        import ctranslate2
    except ImportError as error:
        raise ConfigError(
            "CTranslate2 is not installed: pip install 'headwise[ctranslate2]'"
        ) from error
    module: ModuleType = ctranslate2
    return module


def seal(directory: Path, manifest: Manifest) -> None:
    """Flush every file of a new directory to disk and write the manifest."""
    digests = {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        with path.open("rb+") as file:
            flush(file)
            digests[str(path.relative_to(directory))] = hashlib.file_digest(
                file, "sha256"
            ).hexdigest()
    body = {"format_version": FORMAT_VERSION, **asdict(manifest), "sha256": digests}
    write_file(directory / MANIFEST, json.dumps(body, indent=1).encode() + b"\n")


def read_sealed(directory: Path | Folder, *, most_bytes: int = MOST_MODEL_BYTES) -> Manifest:
    """Read an export's manifest, after checking the digest of every file.

    A model of more than `most_bytes` is refused.
    """
    folder = Folder.of(directory)
    path = folder.path / MANIFEST
    try:
        body = folder.read_json(MANIFEST, _MOST_MANIFEST_BYTES)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{folder.path} is not an exported model: "
            "`headwise export RUN --to ctranslate2` makes one"
        ) from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged: not JSON: {error}: export it again") from error
    version = body.get("format_version") if isinstance(body, dict) else None
    if type(version) is int and version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format_version is {version}, and this Headwise reads {FORMAT_VERSION}: "
            "upgrade Headwise, or export it again"
        )
    try:
        digests = dict(body["sha256"])
        fields = {name: body[name] for name in Manifest.__dataclass_fields__}
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: damaged: not a manifest: export it again") from error
    positions = fields.pop("positions")
    if (
        not set(_READ_BY_LIBRARY) <= set(digests)
        or not all(isinstance(text, str) for text in (*digests.values(), *fields.values()))
        or type(positions) is not int
        or not 0 < positions < 2**31
    ):
        raise CheckpointError(f"{path}: damaged: not a manifest: export it again")
    for name in digests:
        if not _PLAIN_NAME.fullmatch(name):
            raise CheckpointError(f"{path}: {name!r:.100} is not the name of an exported file")
    for name, digest in digests.items():
        inner, _, last = name.rpartition("/")
        most = _MOST_TOKENIZER_BYTES if inner else _MOST_JSON_BYTES
        within = folder / inner if inner else folder
        _check(within, last, digest, most_bytes if name == MODEL else most)
    _check_no_others(folder, set(digests))
    return Manifest(positions=positions, **fields)


def read_vocabularies(directory: Path | Folder) -> tuple[list[str], list[str]]:
    """Read the source's and the target's tokens, by id."""
    folder = Folder.of(directory)
    source, target = (
        _vocabulary(folder, f"{side}_vocabulary.json") for side in ("source", "target")
    )
    return source, target


def _vocabulary(folder: Folder, name: str) -> list[str]:
    path = folder.path / name
    try:
        tokens = folder.read_json(name, _MOST_JSON_BYTES)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged: not JSON: {error}: export it again") from error
    if (
        not isinstance(tokens, list)
        or not all(isinstance(token, str) for token in tokens)
        or len(set(tokens)) != len(tokens)
        or len(tokens) < SMALLEST_VOCABULARY
    ):
        raise CheckpointError(f"{path}: damaged: not a vocabulary: export it again")
    return tokens


def _check_no_others(folder: Folder, sealed: set[str]) -> None:
    """Refuse files outside the manifest that CTranslate2 would read, such as vmap.txt."""
    for name in folder.names():
        if name.endswith((".txt", ".json", ".bin")) and name not in {
            *sealed,
            MANIFEST,
            VERIFICATION,
        }:
            raise UnsafeFileError(f"{folder.path}: {name!r} is not a part of the export: remove it")


def _check(folder: Folder, name: str, digest: str, most_bytes: int) -> None:
    path = folder.path / name
    try:
        with folder.open(name, most_bytes) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read: {error.strerror}: export it again"
        ) from error
    if found != digest:
        raise CheckpointError(f"{path}: damaged: not as it was exported: export it again")
