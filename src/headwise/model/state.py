"""Where incremental decoding stands, in many outputs at once."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.model.cache import KeyValueCache
from headwise.model.layers import Memory
from headwise.model.masks import Allowed
from headwise.model.stepping import LayerStep


@dataclass
class State:
    """Where decoding stands: what each layer remembers of the source and of its own output.

    Rows that decode the same source, as the hypotheses of a beam do, stand next to each other and
    share one memory and one cache. Each position of the cache was written by one of them; which
    ones lie in a hypothesis's past is `visible`. So a beam that changes its mind moves no keys.

    Sources may take the place of others while the rest goes on. Since all add to the caches in the
    same steps, they stand there flush right; what lies before its beginning is not visible to one.
    """

    memories: list[Memory]
    caches: list[KeyValueCache]
    length: int = 0
    """How many target positions the source that is furthest has decoded."""
    group: int = 1
    """How many rows share each source: W."""
    visible: Tensor | None = None  # [B, W, C]
    """Which positions of the cache each row may see; None: all."""
    late: Tensor | None = None  # [B]
    """By how many steps each source began after that one; None: all began with it."""
    layers: list[LayerStep] | None = None
    """The decoder's layers; None before the first step."""

    @classmethod
    def of(cls, memories: list[Memory]) -> "State":
        """Begin, with what each layer remembers of the sources."""
        return cls([_laid_out(memory) for memory in memories], [KeyValueCache() for _ in memories])

    def select(self, rows: Tensor, group: int = 1) -> "State":
        """Return the state of the given rows [B'], in that order: to reorder, repeat or drop.

        With `group` the rows come in groups of that many, those of a group from one source. The
        caches may go on in the state returned, so that this one is spent, as by a step.
        """
        sources = rows[::group] // self.group
        visible = self.visible
        if visible is not None or group > 1:
            visible = self._visible().flatten(0, 1)[rows].unflatten(0, (-1, group))
        # Only sources that leave or move need copies.
        if sources.shape[0] == self._num_sources and _in_place(sources):
            return replace(self, group=group, visible=visible)
        late, first = self.late, 0
        if late is not None:
            late = late[sources]
            if visible is not None and visible.shape[2]:
                # What lies before it only those could see who have left.
                first = int(visible.flatten(0, 1).any(0).int().argmax())
                visible = visible[..., first:]
        memories = _select_memories(self.memories, sources)
        caches = [cache.select(sources, first) for cache in self.caches]
        return State(memories, caches, self.length, group, visible, late, self.layers)._rebased()

    def rest(self, sources: Tensor) -> "State":
        """Return the state without the past of some sources, whose rows may do what they like."""
        late = self._late().index_fill(0, sources, self.length)
        visible = self._visible().index_fill(0, sources, False)
        return replace(self, late=late, visible=visible)._rebased()

    def replace(self, sources: Tensor, other: "State") -> "State":
        """Return the state with another's sources, which have no past, in the place of some.

        This one is spent. What stood in their place stays in the caches, where nobody sees it.
        """
        assert self.group == other.group, "rows of different groups cannot stand side by side"
        assert not other.caches[0].length, "only sources without a past can take others' places"
        memories = _replace_memories(self.memories, sources, other.memories)
        return replace(self, memories=memories).rest(sources)

    def with_room(self) -> "State":
        """Return the state with room in its caches for a step.

        A beam's past is a tree, most of whose branches nobody follows any more: where room is
        short, first those are left out.
        """
        if self.visible is None or self.caches[0].has_room(self.group):
            return self
        needed = self.visible.any(1)  # [B, C]
        most = max(1, int(needed.sum(1).max()))
        # Those that are needed come last, in their order.
        positions = needed.byte().argsort(dim=1, stable=True)[:, -most:]
        return replace(
            self,
            caches=[cache.gather(positions) for cache in self.caches],
            visible=self.visible.gather(2, positions[:, None].expand(-1, self.group, -1)),
        )

    def next_of(self, positions: nn.Module) -> Tensor:
        """Return the positional encodings of the next step: [1, D] for all, or [B, 1, D]."""
        if self.late is None:
            encodings: Tensor = positions(self.length, 1)
            return encodings
        table: Tensor = positions(0, self.length + 1)
        return table.index_select(0, self.length - self.late)[:, None]

    def see_own(self) -> Tensor | None:
        """Return what each row sees at the next step, when each adds one position of its own."""
        if self.visible is None:
            return None
        own = torch.eye(self.group, dtype=torch.bool, device=self.visible.device)
        return torch.cat((self.visible, own.expand(self.visible.shape[0], -1, -1)), 2)

    @property
    def _num_sources(self) -> int:
        return self.memories[0].keys.shape[0]

    def _rebased(self) -> "State":
        """Return the state with its length told anew, if whoever was furthest has left."""
        if self.late is None:
            return self
        least = int(self.late.min())
        return replace(self, length=self.length - least, late=self.late - least)

    def _visible(self) -> Tensor:
        """Return what each row may see, whether it is all or not."""
        if self.visible is not None:
            return self.visible
        shape = (self._num_sources, self.group, self.caches[0].length)
        return torch.ones(shape, dtype=torch.bool, device=self.memories[0].keys.device)

    def _late(self) -> Tensor:
        if self.late is not None:
            return self.late
        return torch.zeros(self._num_sources, dtype=torch.long, device=self.memories[0].keys.device)


def _in_place(rows: Tensor) -> bool:
    """Return whether rows stand where they stood."""
    return torch.equal(rows, torch.arange(rows.shape[0], device=rows.device))


def _laid_out(memory: Memory) -> Memory:
    """Lay a memory out the way every step's products read it: keys as columns."""
    keys = memory.keys.transpose(2, 3).contiguous().transpose(2, 3)
    return Memory(keys, memory.values.contiguous(), memory.allowed)


def _select_memories(memories: list[Memory], rows: Tensor) -> list[Memory]:
    allowed, width = Allowed(), memories[0].keys.shape[2]
    if (real := memories[0].allowed.keys) is not None:
        real = real.index_select(0, rows)
        # The longest may have left, and with it what the others were padded for.
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
    real = _real_within(ours[0], width).index_copy(0, rows, _real_within(theirs[0], width))
    needed = int(real.sum(1).max())
    if 2 * needed <= width:  # The longest have left: to make all shorter is worth a copy.
        width, real = needed, real[:, :needed]
    if before != width:
        ours = [_resized(memory, width) for memory in ours]
    allowed = Allowed(keys=real)  # One for all layers: what it works out is worked out once.
    replaced = []
    for memory, newer in zip(ours, theirs, strict=True):
        # What stood there beyond a newcomer's end stays: nobody sees it.
        shared = slice(min(width, newer.keys.shape[2]))
        keys, newer_keys = (each.keys[:, :, shared].transpose(2, 3) for each in (memory, newer))
        keys.index_copy_(0, rows, newer_keys)
        memory.values[:, :, shared].index_copy_(0, rows, newer.values[:, :, shared])
        replaced.append(Memory(memory.keys, memory.values, allowed))
    return replaced


def _resized(memory: Memory, width: int) -> Memory:
    """Return a memory with so many keys and values: cut, or with zeros at its end."""
    more = width - memory.keys.shape[2]
    keys = F.pad(memory.keys.transpose(2, 3), (0, more)).transpose(2, 3)
    return Memory(keys, F.pad(memory.values, (0, 0, 0, more)), memory.allowed)


def _real_within(memory: Memory, width: int) -> Tensor:
    """Return which of so many keys of each source are real tokens."""
    real = memory.allowed.keys
    if real is None:
        shape = (memory.keys.shape[0], memory.keys.shape[2])
        real = torch.ones(shape, dtype=torch.bool, device=memory.keys.device)
    return F.pad(real, (0, width - real.shape[1]))
