"""Tensors on disk, in the safetensors format.

Written here in one pass, by write() and with the digest taken on the way: the library's own writer
would need a second copy of the tensors in memory. Read by the library.
"""

import hashlib
import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from headwise.errors import CheckpointError
from headwise.files import flush, parse_json

_DTYPES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
}
_DTYPES_BY_NAME = {name: dtype for dtype, name in _DTYPES.items()}
_ALIGNMENT = 64

MOST_HEADER_BYTES = 8 << 20
"""The names, shapes and places of a thousand layers take 4 MB."""

_MOST_DIMENSIONS = 8

MOST_BYTES = 1 << 42
"""Of a file of tensors: a trillion parameters."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors by name, flush them to disk and return the file's SHA-256.

    The path may be that of an open file, as /dev/fd/3 is.
    """
    with path.open("wb") as file:
        return save_tensors(file, tensors)


def save_tensors(file: BinaryIO, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors by name to an open file, flush it to disk and return its SHA-256."""
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


def describe_tensors(
    file: BinaryIO, path: Path, most_header_bytes: int = MOST_HEADER_BYTES
) -> dict[str, Tensor]:
    """Read the header of an open file: its tensors, on the meta device, without data.

    The file must have exactly the bytes that its header describes, so that what follows reads no
    more than that.
    """
    try:
        header, end = _header(file, most_header_bytes)
        described = {
            name: _described(name, entry, end)
            for name, entry in header.items()
            if name != "__metadata__"
        }
        if sum(tensor.numel() * tensor.element_size() for tensor in described.values()) != end:
            raise ValueError("its header does not describe what it holds")
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: damaged: not a safetensors file: {error}") from error
    return described


def _header(file: BinaryIO, most_bytes: int) -> tuple[dict[str, Any], int]:
    """Return the header and how many bytes follow it."""
    start = file.read(8)
    if len(start) < 8:
        raise ValueError("it ends before its header")
    (length,) = struct.unpack("<Q", start)
    if length > most_bytes:
        raise ValueError(f"its header has {length:,} bytes, more than {most_bytes:,}")
    header = parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not a table of tensors")
    return header, os.fstat(file.fileno()).st_size - 8 - length


def _described(name: str, entry: dict[str, Any], end: int) -> Tensor:
    """Make a tensor without numbers; its bytes lie within the file, which bounds its shape."""
    dtype = _DTYPES_BY_NAME.get(entry["dtype"])
    if dtype is None:
        raise ValueError(f"tensor {name!r:.100} is of type {entry['dtype']!s:.20}, not of floats")
    shape, (start, stop) = entry["shape"], entry["data_offsets"]
    numbers = (*shape, start, stop)
    if len(shape) > _MOST_DIMENSIONS or not all(type(n) is int and 0 <= n < 2**63 for n in numbers):
        raise ValueError(f"tensor {name!r:.100} has a shape or place that cannot be")
    if not start <= stop <= end or stop - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"tensor {name!r:.100} of shape {shape} does not lie within the file")
    return torch.empty(shape, dtype=dtype, device="meta")


def load_tensors(file: BinaryIO, path: Path) -> dict[str, Tensor]:
    """Read all tensors of an open file, mapped into memory; `path` is for messages.

    The caller has looked at its header with `describe_tensors`.
    """
    # The library takes a path. This one leads to the open file, whatever has its name now.
    return read_tensors(Path(f"/dev/fd/{file.fileno()}"), path)


def read_tensors(file: Path, path: Path | None = None) -> dict[str, Tensor]:
    """Read all tensors of a file; messages name `path` if it is known by another name."""
    path = path or file
    try:
        return safetensors.torch.load_file(file)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: damaged: not a safetensors file: {error}") from error
