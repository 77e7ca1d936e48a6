"""The keys and values that incremental decoding keeps, so that no step repeats another's work."""

import torch
from torch import Tensor

_LEAST_ROOM = 64
_LEAST_SPARE = 32
"""Positions that a copy has room for beyond its own, at least: eight steps of the paper's beam."""


class KeyValueCache:
    """Self-attention's keys and values of one layer, in buffers that grow by doubling.

    Appending writes one position into spare room: the whole is copied only when the room runs
    out, so that T steps copy O(T) positions, not O(T^2). Keys are kept as columns, the way the
    product with the queries reads them.
    """

    def __init__(self) -> None:
        self.length = 0
        self._buffers: tuple[Tensor, Tensor] | None = None
        """[B, H, K, room] and [B, H, room, Kv]; None before the first position."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new positions; return those of all positions so far."""
        start, end = self.length, self.length + keys.shape[2]
        columns = keys.transpose(2, 3)
        if not self.has_room(keys.shape[2]) or self._buffers is None:
            before = None if self._buffers is None else self._filled()
            self._buffers = _room(
                columns, values, columns.shape[0], max(end, 2 * start, _LEAST_ROOM)
            )
            if before is not None:
                self._filled()[0][:], self._filled()[1][:] = before
        self.length = end
        all_keys, all_values = self._filled()
        all_keys[..., start:] = columns
        all_values[:, :, start:] = values
        return all_keys.transpose(2, 3), all_values

    def has_room(self, positions: int) -> bool:
        """Return whether so many positions can be appended without copying the others."""
        return self._buffers is None or self.length + positions <= self._buffers[1].shape[2]

    def select(self, rows: Tensor, first: int = 0) -> "KeyValueCache":
        """Return a cache of its own that holds the given rows, from a first position on."""
        if self._buffers is None:
            return KeyValueCache()
        keys, values = self._filled()
        selected = self._new(rows.shape[0], self.length - first)
        # Only the filled part is gathered; the spare room stays uninitialised.
        new_keys, new_values = selected._filled()
        torch.index_select(keys[..., first:], 0, rows, out=new_keys)
        torch.index_select(values[:, :, first:], 0, rows, out=new_values)
        return selected

    def gather(self, positions: Tensor) -> "KeyValueCache":
        """Return a cache of its own that holds, of each row, the given positions [B, C]."""
        keys, values = self._filled()
        gathered = self._new(keys.shape[0], positions.shape[1])
        new_keys, new_values = gathered._filled()
        torch.gather(keys, 3, positions[:, None, None].expand(new_keys.shape), out=new_keys)
        index = positions[:, None, :, None].expand(new_values.shape)
        torch.gather(values, 2, index, out=new_values)
        return gathered

    def _filled(self) -> tuple[Tensor, Tensor]:
        """Return the keys, as columns, and the values of all positions so far."""
        assert self._buffers is not None, "nothing was appended yet"
        keys, values = self._buffers
        return keys[..., : self.length], values[:, :, : self.length]

    def _new(self, rows: int, length: int) -> "KeyValueCache":
        """Return another one with so many positions, yet to be written, and spare room."""
        cache = KeyValueCache()
        # Not twice as much: a beam's copy leaves out what nobody sees only when its room is short.
        room = length + max(_LEAST_SPARE, length // 4)
        cache._buffers, cache.length = _room(*self._filled(), rows, room), length
        return cache


def _room(keys: Tensor, values: Tensor, rows: int, positions: int) -> tuple[Tensor, Tensor]:
    """Make buffers like given ones, keys as columns, but for so many rows and positions."""
    return (
        keys.new_empty((rows, *keys.shape[1:3], positions)),
        values.new_empty((rows, values.shape[1], positions, values.shape[3])),
    )
