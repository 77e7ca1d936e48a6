"""The keys and values that incremental decoding keeps, so that no step repeats another's work."""

import torch
from torch import Tensor

_FIRST_CAPACITY = 16


class KeyValueCache:
    """Self-attention's keys and values of one layer, in buffers that grow by doubling.

    Appending writes one position into spare room: the whole is copied only when the room runs
    out, so that T steps copy O(T) positions, not O(T^2). Keys are kept as columns, the way the
    product with the queries reads them.
    """

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None  # [B, H, K, capacity]
        self._values: Tensor | None = None  # [B, H, capacity, Kv]

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new positions; return those of all positions so far."""
        start, end = self.length, self.length + keys.shape[2]
        if self._keys is None or self._values is None or end > self._values.shape[2]:
            self._keys, self._values = self._with_room(keys, values, end)
        self._keys[..., start:end] = keys.transpose(2, 3)
        self._values[:, :, start:end] = values
        self.length = end
        return self._keys[..., :end].transpose(2, 3), self._values[:, :, :end]

    def select(self, rows: Tensor) -> "KeyValueCache":
        """Return a cache of its own that holds the given rows, in the given order."""
        selected = KeyValueCache()
        selected.length = self.length
        if self._keys is not None and self._values is not None:
            # Only the filled part is gathered; the spare room stays uninitialised.
            size, end = rows.shape[0], self.length
            selected._keys = self._keys.new_empty((size, *self._keys.shape[1:]))
            selected._values = self._values.new_empty((size, *self._values.shape[1:]))
            torch.index_select(self._keys[..., :end], 0, rows, out=selected._keys[..., :end])
            torch.index_select(self._values[:, :, :end], 0, rows, out=selected._values[:, :, :end])
        return selected

    def _with_room(self, keys: Tensor, values: Tensor, end: int) -> tuple[Tensor, Tensor]:
        """Return larger buffers that hold what these held, for operands like those given."""
        batch, heads, new, d_k = keys.shape
        capacity = max(_FIRST_CAPACITY * new, 2 * self.length, end)
        more_keys = keys.new_empty((batch, heads, d_k, capacity))
        more_values = values.new_empty((batch, heads, capacity, values.shape[3]))
        if self._keys is not None and self._values is not None:
            more_keys[..., : self.length] = self._keys[..., : self.length]
            more_values[:, :, : self.length] = self._values[:, :, : self.length]
        return more_keys, more_values
