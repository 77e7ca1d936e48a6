"""An exported CTranslate2 model on disk: a directory that is whole or not there.

manifest.json               format, what was exported, and the SHA-256 of the files below
model.bin, config.json      what CTranslate2 reads, and with them:
source_vocabulary.json      the subwords by id; the end of the source is called <end>
target_vocabulary.json      the subwords by id
tokenizer/                  the subwords, as in a run
verification.json           how near to the model it computes; written last, not in the manifest
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from headwise.errors import CheckpointError, ConfigError
from headwise.files import flush, write_file

FORMAT_VERSION = 1
MANIFEST = "manifest.json"

Quantization = Literal["float32", "int8", "int16"]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What an export says of itself."""

    quantization: str
    """What its weights are stored and multiplied in."""
    weights: str
    """The checkpoint or average, within the run, that it was made from."""
    positions: int
    """The longest sequence, end token included, that it has positional encodings for."""
    ctranslate2: str
    """The version of the library that wrote it."""


def library() -> ModuleType:
    """Import CTranslate2, or say how to install it."""
    try:
        import ctranslate2  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigError(
            "CTranslate2 is not installed: pip install 'headwise[ctranslate2]'"
        ) from error
    module: ModuleType = ctranslate2
    return module


def seal(directory: Path, manifest: Manifest) -> None:
    """Flush every file of a directory being made to disk and write the manifest beside them."""
    digests = {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        with path.open("rb+") as file:
            flush(file)
            digests[str(path.relative_to(directory))] = hashlib.file_digest(
                file, "sha256"
            ).hexdigest()
    body = {"format_version": FORMAT_VERSION, **asdict(manifest), "sha256": digests}
    write_file(directory / MANIFEST, json.dumps(body, indent=1).encode() + b"\n")


def read_sealed(directory: Path) -> Manifest:
    """Read an export's manifest, after making sure that every file is as it was written."""
    path = directory / MANIFEST
    if not path.is_file():
        raise CheckpointError(
            f"{directory} is not an exported model: "
            "`headwise export RUN --to ctranslate2` makes one"
        )
    try:
        body = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: damaged: not JSON: {error}: export it anew") from error
    version = body.get("format_version") if isinstance(body, dict) else None
    if type(version) is int and version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format_version is {version}, and this Headwise reads {FORMAT_VERSION}: "
            "upgrade Headwise, or export it anew"
        )
    try:
        digests = dict(body["sha256"])
        fields = {name: body[name] for name in Manifest.__dataclass_fields__}
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: damaged: not a manifest: export it anew") from error
    if "model.bin" not in digests or type(fields["positions"]) is not int:
        raise CheckpointError(f"{path}: damaged: not a manifest: export it anew")
    for name, digest in digests.items():
        _check(directory / name, digest)
    return Manifest(**fields)


def read_vocabularies(directory: Path) -> tuple[list[str], list[str]]:
    """Read the tokens of the source's and of the target's ids, in order."""
    source, target = (
        json.loads((directory / f"{side}_vocabulary.json").read_bytes())
        for side in ("source", "target")
    )
    return source, target


def _check(path: Path, digest: str) -> None:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read: {error.strerror}: export it anew"
        ) from error
    if found != digest:
        raise CheckpointError(f"{path}: damaged: not as it was exported: export it anew")
