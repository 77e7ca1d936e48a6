"""Vectors of mean 0 and standard deviation 1, by the statistics of the training data."""

import hashlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.data.shards import Packed
from headwise.data.tokenizer import load_table
from headwise.errors import DataError
from headwise.files import Folder

_LEAST = 1e-6
"""A smaller standard deviation is that of a constant, such as a border that is always black."""


class Scaling:
    """The mean and standard deviation of each component: of a colour, or of a band."""

    def __init__(self, mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> None:
        self._mean, self._deviation = mean, deviation

    @classmethod
    def learn(cls, arrays: Iterable[NDArray[Any]]) -> Self | None:
        """Average over all axes but the last of all arrays; None if there are none."""
        count, total, squares = 0, np.zeros(1), np.zeros(1)
        for array in arrays:
            rows = array.reshape(-1, array.shape[-1]).astype(np.float64)
            count += len(rows)
            total = total + rows.sum(0)
            squares = squares + (rows * rows).sum(0)
        if not count:
            return None
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean * mean, 0.0))
        return cls(mean, np.where(deviation < _LEAST, 1.0, deviation))

    @classmethod
    def load(cls, folder: Path | Folder, stream: str, components: int, kind: str) -> Self:
        """Load what `table` stored of a stream of some kind."""
        table = load_table(folder, stream, kind)
        values = [table.get(key) for key in _KEYS] if isinstance(table, Mapping) else []
        if len(values) != len(_KEYS) or not all(_are_numbers(each, components) for each in values):
            path = Folder.of(folder).path / "tokenizer" / f"{stream}.json"
            raise DataError(
                f"{path}: not the means and deviations of {components:,} components, which "
                "config.toml asks for"
            )
        mean, deviation = map(np.array, values)
        if (deviation < _LEAST).any():
            path = Folder.of(folder).path / "tokenizer" / f"{stream}.json"
            raise DataError(f"{path}: a deviation is not above 0")
        return cls(mean, deviation)

    def table(self) -> dict[str, object]:
        """Return what is stored."""
        return dict(zip(_KEYS, (self._mean.tolist(), self._deviation.tolist()), strict=True))

    def scaled(self, array: NDArray[Any]) -> NDArray[np.float32]:
        """Return an array whose last axis has the components, scaled."""
        return ((array - self._mean) / self._deviation).astype(np.float32)

    def restored(self, array: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return what was scaled."""
        return array * self._deviation + self._mean


def padded_vectors(packed: Packed) -> tuple[Tensor, Tensor]:
    """Lay vectors out in rows [B, S, W], padded with zeros; return them, and the positions of each.

    The class token, which the model puts before them, is one of the positions.
    """
    values, lengths = packed
    if (lengths == lengths[0]).all():
        rows = values.reshape(len(lengths), -1, values.shape[1])
    else:
        rows = np.zeros((len(lengths), lengths.max(), values.shape[1]), dtype=values.dtype)
        rows[np.arange(lengths.max()) < lengths[:, None]] = values
    # What is stored is mapped into memory, and cannot be written to.
    return torch.from_numpy(np.require(rows, requirements=["C", "W"])), torch.from_numpy(
        lengths + 1
    )


def digest(array: NDArray[Any]) -> str:
    """Return a key that identifies an array."""
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()


_KEYS = ("mean", "deviation")


def _are_numbers(values: object, count: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and all(type(each) is float and math.isfinite(each) for each in values)
    )
