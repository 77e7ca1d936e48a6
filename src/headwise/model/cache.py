"""The keys and values that incremental decoding keeps, so that no step repeats another's work."""

import torch
from torch import Tensor

_FIRST_CAPACITY = 16


class KeyValueCache:
    """Self-attention's keys and values of one layer, in buffers that grow by doubling.

    Appending writes one position into spare room: the whole is copied only when the room runs
    out, so that T steps copy O(T) positions, not O(T^2).
    """

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None  # [B, H, capacity, K]
        self._values: Tensor | None = None  # [B, H, capacity, Kv]

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new positions; return those of all positions so far."""
        end = self.length + keys.shape[2]
        self._keys = self._with_room(self._keys, keys, end)
        self._values = self._with_room(self._values, values, end)
        self._keys[:, :, self.length : end] = keys
        self._values[:, :, self.length : end] = values
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def select(self, rows: Tensor) -> "KeyValueCache":
        """Return a cache of its own that holds the given rows, in the given order."""
        selected = KeyValueCache()
        selected.length = self.length
        if self._keys is not None and self._values is not None:
            selected._keys = self._selected(self._keys, rows)
            selected._values = self._selected(self._values, rows)
        return selected

    def _with_room(self, buffer: Tensor | None, new: Tensor, end: int) -> Tensor:
        if buffer is not None and end <= buffer.shape[2]:
            return buffer
        capacity = max(_FIRST_CAPACITY, 2 * self.length, end)
        grown = new.new_empty((*new.shape[:2], capacity, new.shape[3]))
        if buffer is not None:
            grown[:, :, : self.length] = buffer[:, :, : self.length]
        return grown

    def _selected(self, buffer: Tensor, rows: Tensor) -> Tensor:
        # Only the filled part is gathered; the spare room stays uninitialised.
        chosen = buffer.new_empty((rows.shape[0], *buffer.shape[1:]))
        torch.index_select(buffer[:, :, : self.length], 0, rows, out=chosen[:, :, : self.length])
        return chosen
