"""The keys and values that decoding keeps, so that no step computes those of earlier positions."""

import torch
from torch import Tensor

_LEAST_ROOM = 64
_LEAST_SPARE = 32
"""Positions that a copy has room for beyond its own, at least: eight steps of the paper's beam."""


class KeyValueCache:
    """Self-attention's keys and values of one layer, in buffers that grow by doubling.

    Appending writes into spare room: everything is copied only when the room runs out, so that T
    steps copy O(T) positions, not O(T^2). Keys are stored transposed, as the product with the
    queries reads them.
    """

    def __init__(self) -> None:
        self.length = 0
        self._buffers: tuple[Tensor, Tensor] | None = None
        """[B, H, K, room] and [B, H, room, Kv]; None before the first position."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new positions; return those of all positions so far."""
        added, columns = keys.shape[2], keys.transpose(2, 3)
        start, end = self.length, self.length + added
        if not self.has_room(added) or self._buffers is None:
            before = None if self._buffers is None else self._filled()
            self._buffers = _room(
                columns, values, columns.shape[0], max(end, 2 * start, _LEAST_ROOM)
            )
            if before is not None:
                self._filled()[0][:], self._filled()[1][:] = before
        self.length = end
        # `narrow` and not slices, which take several times as long to look at their indices.
        all_keys, all_values = self._buffers
        all_keys.narrow(3, start, added).copy_(columns)
        all_values.narrow(2, start, added).copy_(values)
        return all_keys.narrow(3, 0, end).transpose(2, 3), all_values.narrow(2, 0, end)

    def has_room(self, positions: int) -> bool:
        """Return whether that many positions can be appended without copying."""
        return self._buffers is None or self.length + positions <= self._buffers[1].shape[2]

    def select(self, rows: Tensor, first: int = 0) -> "KeyValueCache":
        """Return a new cache with the given rows, from position `first` on."""
        if self._buffers is None:
            return KeyValueCache()
        keys, values = self._filled()
        selected = self._new(rows.shape[0], self.length - first)
        # Only the filled part is copied; the spare room stays uninitialised.
        new_keys, new_values = selected._filled()
        torch.index_select(keys[..., first:], 0, rows, out=new_keys)
        torch.index_select(values[:, :, first:], 0, rows, out=new_values)
        return selected

    def gather(self, positions: Tensor) -> "KeyValueCache":
        """Return a new cache with the given positions [B, C] of each row."""
        keys, values = self._filled()
        gathered = self._new(keys.shape[0], positions.shape[1])
        new_keys, new_values = gathered._filled()
        torch.gather(keys, 3, positions[:, None, None].expand(new_keys.shape), out=new_keys)
        index = positions[:, None, :, None].expand(new_values.shape)
        torch.gather(values, 2, index, out=new_values)
        return gathered

    def replace(self, rows: Tensor, other: "KeyValueCache", num_rows: int) -> None:
        """Overwrite some of the `num_rows` rows with another cache's, aligned at the last position.

        The cache gets as long as the other if that is longer; the positions added before the first
        are zeros.
        """
        if other._buffers is None:
            return
        theirs = other._filled()
        if self._buffers is None or self.length < other.length:
            before = None if self._buffers is None else self._filled()
            added = other.length - self.length
            longer = other._new(num_rows, other.length)
            self._buffers, self.length = longer._buffers, longer.length
            keys, values = self._filled()
            # Not left uninitialised: masked attention multiplies what is there by 0, and 0 * NaN
            # is NaN.
            keys[..., :added], values[:, :, :added] = 0, 0
            if before is not None:
                keys[..., added:], values[:, :, added:] = before
        keys, values = self._filled()
        first = self.length - other.length
        keys[..., first:].index_copy_(0, rows, theirs[0])
        values[:, :, first:].index_copy_(0, rows, theirs[1])

    def _filled(self) -> tuple[Tensor, Tensor]:
        """Return the keys, transposed, and the values of all positions so far."""
        assert self._buffers is not None, "nothing was appended yet"
        keys, values = self._buffers
        return keys[..., : self.length], values[:, :, : self.length]

    def _new(self, rows: int, length: int) -> "KeyValueCache":
        """Return another cache with `length` uninitialised positions, and spare room."""
        cache = KeyValueCache()
        # Not twice as much: a beam's dead branches are removed only when the room runs out.
        room = length + max(_LEAST_SPARE, length // 4)
        cache._buffers, cache.length = _room(*self._filled(), rows, room), length
        return cache


def _room(keys: Tensor, values: Tensor, rows: int, positions: int) -> tuple[Tensor, Tensor]:
    """Make buffers like the given ones (keys transposed) for other numbers of rows, positions."""
    return (
        keys.new_empty((rows, *keys.shape[1:3], positions)),
        values.new_empty((rows, values.shape[1], positions, values.shape[3])),
    )
