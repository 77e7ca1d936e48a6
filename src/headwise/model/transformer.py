"""The whole model: embeddings, encoder, decoder, and the output projection.

Paper: §3.1, §3.4.
"""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from headwise.config import ModelConfig, Vocab
from headwise.errors import ConfigError
from headwise.model.cache import KeyValueCache
from headwise.model.dropout import dropout
from headwise.model.initialise import initialise
from headwise.model.layers import Memory, Stack, StackTrace
from headwise.model.masks import Allowed, real_keys
from headwise.model.positions import LearnedPositions, SinusoidalPositions


@dataclass(frozen=True)
class Trace:
    """Every attention weight of one pass; hand an empty one to `Transformer.hidden`."""

    encoder: StackTrace = field(default_factory=StackTrace)
    decoder: StackTrace = field(default_factory=StackTrace)


@dataclass
class State:
    """Where decoding stands: what each layer remembers of the source and of its own output.

    Rows that decode the same source, as the hypotheses of a beam do, stand next to each other and
    share one memory and one cache. Each position of the cache was written by one of them; which
    ones lie in a hypothesis's past is `visible`. So a beam that changes its mind moves no keys.
    """

    memories: list[Memory]
    caches: list[KeyValueCache]
    length: int = 0
    """How many target positions have been decoded."""
    group: int = 1
    """How many rows share each source: W."""
    visible: Tensor | None = None  # [B, W, C]
    """Which positions of the cache each row may see; None: all."""

    def select(self, rows: Tensor, group: int = 1) -> "State":
        """Return the state of the given rows [B'], in that order: to reorder, repeat or drop.

        With `group` the rows come in groups of that many, those of a group from one source. The
        caches may go on in the state returned, so that this one is spent, as by a step.
        """
        sources = rows[::group] // self.group
        memories, caches = self.memories, self.caches
        # Only sources that leave or move need copies.
        if sources.shape[0] != memories[0].keys.shape[0] or not _in_place(sources):
            memories = _select_memories(memories, sources)
            caches = [cache.select(sources) for cache in caches]
        visible = None
        if self.visible is not None:
            visible = self.visible.flatten(0, 1)[rows].unflatten(0, (-1, group))
        elif group > 1:
            shape = (sources.shape[0], group, self.caches[0].length)
            visible = torch.ones(shape, dtype=torch.bool, device=rows.device)
        return State(memories, caches, self.length, group, visible)

    def see_own(self) -> Tensor | None:
        """Return what each row sees at the next step, when each adds one position of its own."""
        if self.visible is None:
            return None
        own = torch.eye(self.group, dtype=torch.bool, device=self.visible.device)
        return torch.cat((self.visible, own.expand(self.visible.shape[0], -1, -1)), 2)


def _in_place(rows: Tensor) -> bool:
    """Return whether rows stand where they stood."""
    return torch.equal(rows, torch.arange(rows.shape[0], device=rows.device))


class Transformer(nn.Module):
    """The encoder-decoder Transformer.

    Paper: §3.1, Figure 1.
    """

    def __init__(self, config: ModelConfig, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.vocab = config, vocab
        d_model = config.d_model
        if config.tying == "three-way" and vocab.source_size != vocab.target_size:
            raise ConfigError(
                f"model.tying = 'three-way' needs one vocabulary, but the source has "
                f"{vocab.source_size} entries and the target {vocab.target_size}: "
                "learn a joint vocabulary or choose 'two-way'"
            )
        self.source_embedding = nn.Embedding(vocab.source_size, d_model)
        self.target_embedding = nn.Embedding(vocab.target_size, d_model)
        self.output = nn.Linear(d_model, vocab.target_size, bias=False)
        if config.positions == "learned":
            self.source_positions: nn.Module = LearnedPositions(d_model, config.max_positions)
            self.target_positions: nn.Module = LearnedPositions(d_model, config.max_positions)
        else:
            self.source_positions = self.target_positions = SinusoidalPositions(d_model)
        self.encoder = Stack(config, attends_to_memory=False)
        self.decoder = Stack(config, attends_to_memory=True)
        initialise(self)
        if config.tying != "untied":
            self.output.weight = self.target_embedding.weight
        if config.tying == "three-way":
            self.source_embedding.weight = self.target_embedding.weight

    def forward(self, src: Tensor, tgt_in: Tensor, trace: Trace | None = None) -> Tensor:
        """Return the logits [B, T, V] of every next token. Training uses `hidden` instead."""
        logits: Tensor = self.output(self.hidden(src, tgt_in, trace))  # [B, T, V]
        return logits

    def hidden(self, src: Tensor, tgt_in: Tensor, trace: Trace | None = None) -> Tensor:
        """Return the decoder's output [B, T, D] for source ids [B, S] and target ids [B, T].

        Targets are padded at their end only (`check_batch`), so causality already keeps every
        real position from seeing padding, and the decoder needs no mask of its own for it.
        """
        allowed = Allowed(keys=real_keys(src, self.vocab.pad))
        memory = self.encode(src, allowed, trace)
        hidden: Tensor = self.decoder(
            self._embed(tgt_in, self.target_embedding, self.target_positions),
            Allowed(causal=True),
            self.decoder.remember(memory, allowed),
            trace=None if trace is None else trace.decoder,
        )
        return hidden

    def encode(self, src: Tensor, allowed: Allowed, trace: Trace | None = None) -> Tensor:
        """Return the encoder's output, the memory [B, S, D]."""
        memory: Tensor = self.encoder(
            self._embed(src, self.source_embedding, self.source_positions),
            allowed,
            trace=None if trace is None else trace.encoder,
        )
        return memory

    @torch.no_grad()
    def start(self, src: Tensor) -> State:
        """Encode the source ids [B, S] and return the state from which decoding starts."""
        allowed = Allowed(keys=real_keys(src, self.vocab.pad))
        memories = self.decoder.remember(self.encode(src, allowed), allowed)
        memories = [_laid_out(memory.keys, memory.values, allowed) for memory in memories]
        return State(memories, [KeyValueCache() for _ in self.decoder.layers])

    @torch.no_grad()
    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Feed one target id for each row [R]; return the next token's logits [R, V].

        The state passed in is spent: its caches go on in the one returned. To go two ways from
        one state, `select` each of its rows twice.
        """
        columns = state.length if state.visible is None else state.visible.shape[2]
        assert state.caches[0].length == columns, "this State was stepped already"
        x = self._embed(
            ids[:, None], self.target_embedding, self.target_positions, start=state.length
        )  # [R, 1, D]
        visible = state.see_own()
        x = self.decoder(
            x.view(-1, state.group, x.shape[2]),  # [B, W, D]
            Allowed(pairs=visible),
            state.memories,
            caches=state.caches,
        )
        logits: Tensor = self.output(x.flatten(0, 1))  # [R, V]
        return logits, replace(state, length=state.length + 1, visible=visible)

    def _embed(
        self, ids: Tensor, embedding: nn.Embedding, positions: nn.Module, start: int = 0
    ) -> Tensor:
        """Embed, scale by sqrt(d_model), add positions, drop.

        Paper: §3.4 and §3.5; dropout of the sum: §5.4.
        """
        scale = math.sqrt(self.config.d_model)
        summed = torch.add(positions(start, ids.shape[1]), embedding(ids), alpha=scale)  # [B, T, D]
        return dropout(summed, self.config.dropout if self.training else 0.0)


def _laid_out(keys: Tensor, values: Tensor, allowed: Allowed) -> Memory:
    """Lay a memory out the way every step's products read it: keys as columns."""
    return Memory(keys.transpose(2, 3).contiguous().transpose(2, 3), values.contiguous(), allowed)


def _select_memories(memories: list[Memory], rows: Tensor) -> list[Memory]:
    keys = memories[0].allowed.keys
    allowed = Allowed() if keys is None else Allowed(keys=keys.index_select(0, rows))
    return [
        Memory(
            memory.keys.transpose(2, 3).index_select(0, rows).transpose(2, 3),
            memory.values.index_select(0, rows),
            allowed,
        )
        for memory in memories
    ]
