"""The state of incremental decoding, for many outputs at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.model.cache import KeyValueCache
from headwise.model.layers import Memory
from headwise.model.masks import Allowed
from headwise.model.step_projection import StepProjection
from headwise.model.stepping import LayerStep


@dataclass
class State:
    """The keys and values that the next step attends to.

    A source is what one or several outputs continue: an encoded sentence, or a prompt. Rows that
    decode the same source, as the hypotheses of a beam do, are adjacent and share one memory and
    one cache. Each column of the cache was written by one of these rows, or by the prompt;
    `visible` says which columns belong to the past of a row. So reordering a beam copies no keys.

    Sources can be replaced while others go on. Every step adds a column to all of them, so a source
    that came later has columns that it does not see.
    """

    num_sources: int
    caches: list[KeyValueCache]
    """One for each layer."""
    memories: list[Memory] | None = None
    """One for each layer; None for a decoder without an encoder."""
    encoded: Tensor | None = None  # [B, S, D]
    """The encoder's output, if steps add it to their input (`aligned_input`)."""
    length: int = 0
    """How many target positions the source with the most has."""
    lengths: Tensor | None = None  # [B]
    """How many each source has; None: all have `length`."""
    rows_per_source: int = 1
    """How many rows share each source: W."""
    visible: Tensor | None = None  # [B, W, C]
    """Which columns of the cache each row attends to; None: all."""
    window: int | None = None
    """How many positions a row attends to, its own among them; None: all."""
    layers: list[LayerStep] | None = None
    """The decoder's layers; None before the first step."""
    output: StepProjection | None = None
    """The output projection; None before the first step."""

    @classmethod
    def of_memories(
        cls, memories: list[Memory], encoded: Tensor | None = None, window: int | None = None
    ) -> "State":
        """Start with the encoded sources, as each layer sees them."""
        return cls(
            num_sources=memories[0].keys.shape[0],
            caches=[KeyValueCache() for _ in memories],
            memories=[_with_keys_transposed(memory) for memory in memories],
            encoded=encoded,
            window=window,
        )

    def select(self, rows: Tensor, rows_per_source: int = 1) -> "State":
        """Return the state of the given rows [R'], in that order: to reorder, repeat or drop.

        Each `rows_per_source` adjacent rows must be from one source; they share it from now on.
        The new state may take over the caches: do not use this one again.
        """
        sources = rows[::rows_per_source] // self.rows_per_source
        visible = self.visible
        if visible is not None or rows_per_source > 1:
            visible = self._visible(rows.device).flatten(0, 1)[rows]
            visible = visible.unflatten(0, (-1, rows_per_source))
        # Caches and memories are copied only if sources leave or move.
        if sources.shape[0] == self.num_sources and _is_in_order(sources):
            return replace(self, rows_per_source=rows_per_source, visible=visible)
        lengths, first = self.lengths, 0
        if lengths is not None:
            lengths = lengths[sources]
            if visible is not None and visible.shape[2]:
                # Leave out the first columns if only sources that have left could see them.
                first = int(visible.flatten(0, 1).any(0).int().argmax())
                visible = visible[..., first:]
        memories, encoded = self.memories, self.encoded
        if memories is not None:
            memories = _select_memories(memories, sources)
            if encoded is not None:
                encoded = encoded[:, : memories[0].keys.shape[2]].index_select(0, sources)
        return State(
            num_sources=sources.shape[0],
            caches=[cache.select(sources, first) for cache in self.caches],
            memories=memories,
            encoded=encoded,
            length=self.length,
            lengths=lengths,
            rows_per_source=rows_per_source,
            visible=visible,
            window=self.window,
            layers=self.layers,
            output=self.output,
        )._with_current_length()

    def reset(self, sources: Tensor) -> "State":
        """Return the state with the past of some sources hidden; what their rows do is ignored."""
        lengths = self._lengths(sources.device).index_fill(0, sources, 0)
        visible = self._visible(sources.device).index_fill(0, sources, False)
        return replace(self, lengths=lengths, visible=visible)._with_current_length()

    def replace(self, sources: Tensor, other: "State") -> "State":
        """Return the state with another's sources in the place of some.

        The new state takes over the caches: do not use this one or the other again.
        """
        assert self.rows_per_source == other.rows_per_source, "states of different beams"
        memories, encoded, device = self.memories, self.encoded, sources.device
        if memories is not None:
            assert other.memories is not None, "states of different models"
            memories = _replace_memories(memories, sources, other.memories)
            if encoded is not None:
                assert other.encoded is not None, "states of different models"
                width = memories[0].keys.shape[2]
                encoded = _with_length(encoded, width)
                encoded = encoded.index_copy(0, sources, _with_length(other.encoded, width))
        columns = max(state.caches[0].length for state in (self, other))
        ours, theirs = (
            F.pad(seen, (columns - seen.shape[2], 0))
            for seen in (self._visible(device), other._visible(device))
        )
        for cache, newer in zip(self.caches, other.caches, strict=True):
            cache.replace(sources, newer, self.num_sources)
        return replace(
            self,
            memories=memories,
            encoded=encoded,
            lengths=self._lengths(device).index_copy(0, sources, other._lengths(device)),
            visible=ours.index_copy(0, sources, theirs),
        )._with_current_length()

    def with_room(self) -> "State":
        """Return the state with room in its caches for a step.

        The past of a beam is a tree with many dead branches: if the room runs out, these are
        removed first. So is what no window has in it any more, as soon as that is half of all.
        """
        if self.visible is None:
            return self
        most = math.inf if self.window is None else 2 * self.window * self.rows_per_source
        if self.caches[0].has_room(self.rows_per_source) and self.visible.shape[2] <= most:
            return self
        needed = self.visible.any(1)  # [B, C]
        most = max(1, int(needed.sum(1).max()))
        # The needed columns of each source come last, in their order.
        columns = needed.byte().argsort(dim=1, stable=True)[:, -most:]
        return replace(
            self,
            caches=[cache.gather(columns) for cache in self.caches],
            visible=self.visible.gather(2, columns[:, None].expand(-1, self.rows_per_source, -1)),
        )

    def next_positions(self, positions: nn.Module) -> Tensor:
        """Return the positional encodings of the next step: [1, D] for all, or [B, 1, D]."""
        if self.lengths is None:
            encodings: Tensor = positions(self.length, 1)
            return encodings
        table: Tensor = positions(0, self.length + 1)
        return table.index_select(0, self.lengths)[:, None]

    def step(
        self,
        x: Tensor,
        layers: list[LayerStep],
        rotation: Tensor | None = None,
        memory_rotation: Tensor | None = None,
    ) -> tuple[Tensor, "State"]:
        """Take embedded rows [R, D] through the layers; return their output and the next state."""
        columns = self.length if self.visible is None else self.visible.shape[2]
        assert self.caches[0].length == columns, "this State was stepped already"
        state = self._within_window(x.device).with_room()
        visible, width = state.visible, state.rows_per_source
        if visible is not None:
            own = torch.eye(width, dtype=torch.bool, device=visible.device)
            visible = torch.cat((visible, own.expand(state.num_sources, -1, -1)), 2)
        seen = Allowed(pairs=visible)
        memories: Sequence[Memory | None] = state.memories or (None,) * len(layers)
        for layer, memory, cache in zip(layers, memories, state.caches, strict=True):
            x = layer(x, width, seen, memory, cache, rotation, memory_rotation)
        lengths = None if state.lengths is None else state.lengths + 1
        return x, replace(
            state, length=state.length + 1, lengths=lengths, visible=visible, layers=layers
        )

    def _within_window(self, device: torch.device) -> "State":
        """Return the state in which a row sees the last positions of its past, if it has a window.

        Columns are in the order of their positions.
        """
        if self.window is None or (self.visible is None and self.length < self.window):
            return self
        visible = self._visible(device)
        from_end = visible.flip(2).cumsum(2).flip(2)
        return replace(self, visible=visible & (from_end < self.window))

    def _with_current_length(self) -> "State":
        """Return the state with `length` of the longest source that is left."""
        if self.lengths is None:
            return self
        return replace(self, length=int(self.lengths.max()))

    def _visible(self, device: torch.device) -> Tensor:
        """Return `visible` as a tensor, whether it is None or not."""
        if self.visible is not None:
            return self.visible
        shape = (self.num_sources, self.rows_per_source, self.caches[0].length)
        return torch.ones(shape, dtype=torch.bool, device=device)

    def _lengths(self, device: torch.device) -> Tensor:
        """Return `lengths` as a tensor, whether it is None or not."""
        if self.lengths is not None:
            return self.lengths
        return torch.full((self.num_sources,), self.length, device=device)


def _is_in_order(rows: Tensor) -> bool:
    """Return whether rows are 0, 1, 2, ..."""
    return torch.equal(rows, torch.arange(rows.shape[0], device=rows.device))


def _with_keys_transposed(memory: Memory) -> Memory:
    """Store keys transposed, as the product of every step reads them."""
    keys = memory.keys.transpose(2, 3).contiguous().transpose(2, 3)
    return Memory(keys, memory.values.contiguous(), memory.allowed)


def _select_memories(memories: list[Memory], rows: Tensor) -> list[Memory]:
    allowed, width = Allowed(), memories[0].keys.shape[2]
    if (real := memories[0].allowed.keys) is not None:
        real = real.index_select(0, rows)
        # The longest may have left, and with it the padding of the others.
        width = int(real.sum(1).max())
        allowed = Allowed(keys=real[:, :width])
    return [
        Memory(
            memory.keys[:, :, :width].transpose(2, 3).index_select(0, rows).transpose(2, 3),
            memory.values[:, :, :width].index_select(0, rows),
            allowed,
        )
        for memory in memories
    ]


def _replace_memories(ours: list[Memory], rows: Tensor, theirs: list[Memory]) -> list[Memory]:
    """Return memories with others in the place of some rows; the first ones are written to."""
    before = ours[0].keys.shape[2]
    width = max(before, theirs[0].keys.shape[2])
    real = _real_keys(ours[0], width).index_copy(0, rows, _real_keys(theirs[0], width))
    needed = int(real.sum(1).max())
    if 2 * needed <= width:  # The longest have left: shorter memories are worth a copy.
        width, real = needed, real[:, :needed]
    if before != width:
        ours = [_resized(memory, width) for memory in ours]
    allowed = Allowed(keys=real)  # One for all layers, which share the bias it computes.
    replaced = []
    for memory, newer in zip(ours, theirs, strict=True):
        # Old keys beyond the end of a new source stay: they are masked.
        shared = slice(min(width, newer.keys.shape[2]))
        keys, newer_keys = (each.keys[:, :, shared].transpose(2, 3) for each in (memory, newer))
        keys.index_copy_(0, rows, newer_keys)
        memory.values[:, :, shared].index_copy_(0, rows, newer.values[:, :, shared])
        replaced.append(Memory(memory.keys, memory.values, allowed))
    return replaced


def _resized(memory: Memory, width: int) -> Memory:
    """Return a memory of `width` keys and values: cut, or with zeros at its end."""
    more = width - memory.keys.shape[2]
    keys = F.pad(memory.keys.transpose(2, 3), (0, more)).transpose(2, 3)
    return Memory(keys, F.pad(memory.values, (0, 0, 0, more)), memory.allowed)


def _with_length(encoded: Tensor, length: int) -> Tensor:
    """Return an encoder's output of `length` positions: cut, or with zeros at its end."""
    return F.pad(encoded, (0, 0, 0, length - encoded.shape[1]))


def _real_keys(memory: Memory, width: int) -> Tensor:
    """Return which of `width` keys of each source are real tokens."""
    real = memory.allowed.keys
    if real is None:
        shape = (memory.keys.shape[0], memory.keys.shape[2])
        real = torch.ones(shape, dtype=torch.bool, device=memory.keys.device)
    return F.pad(real, (0, width - real.shape[1]))
