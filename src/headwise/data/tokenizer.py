"""Subword models on disk: the folder `tokenizer` of prepared data and of a run.

joint.model             or source.model and target.model
manifest.json           the SHA-256 of each
"""

import hashlib
import json
from pathlib import Path

from headwise.data.subwords import Subwords
from headwise.errors import DataError
from headwise.files import write_file


def save_subwords(directory: Path, source: Subwords, target: Subwords) -> None:
    """Write the folder `tokenizer` into a directory that is being made; one model may be both."""
    folder = directory / "tokenizer"
    folder.mkdir()
    models = {"joint": source} if source is target else {"source": source, "target": target}
    digests = {}
    for name, subwords in models.items():
        write_file(folder / f"{name}.model", subwords.model)
        digests[f"{name}.model"] = hashlib.sha256(subwords.model).hexdigest()
    write_file(folder / "manifest.json", json.dumps({"sha256": digests}, indent=1).encode())


def load_subwords(directory: Path) -> tuple[Subwords, Subwords]:
    """Load the source's and the target's subwords of a directory; they may be one."""
    folder = directory / "tokenizer"
    digests = _digests(folder / "manifest.json")
    names = ["joint.model"] if "joint.model" in digests else ["source.model", "target.model"]
    models = []
    for name in names:
        path = folder / name
        try:
            model = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from error
        if hashlib.sha256(model).hexdigest() != digests.get(name):
            raise DataError(f"{path}: damaged: its SHA-256 is not the one it was saved with")
        models.append(Subwords(model))
    return models[0], models[-1]


def _digests(path: Path) -> dict[str, str]:
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not a manifest: {error}") from error
    digests = manifest.get("sha256") if isinstance(manifest, dict) else None
    if not isinstance(digests, dict):
        raise DataError(f"{path}: not a manifest of subword models")
    return digests
