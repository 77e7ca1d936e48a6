"""Tensors on disk, in the safetensors format.

Written here in one pass, by write() and with the digest taken on the way: the library's own writer
would need a second copy of the tensors in memory. Read by the library.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from headwise.errors import CheckpointError
from headwise.files import flush

_DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16"}
_ALIGNMENT = 64


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors by name, flush them to disk and return the file's SHA-256."""
    header: dict[str, object] = {}
    end = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for part in (struct.pack("<Q", len(text)), text):
            file.write(part)
            digest.update(part)
        for name in sorted(tensors):
            flat = tensors[name].detach().cpu().contiguous().flatten()
            raw = memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]
            file.write(raw)
            digest.update(raw)
        flush(file)
    return digest.hexdigest()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file."""
    try:
        return safetensors.torch.load_file(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: not a safetensors file: {error}") from error
