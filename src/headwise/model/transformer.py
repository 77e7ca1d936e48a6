"""The paper's model: embeddings, encoder, decoder, and the output projection.

Paper: §3.1, §3.4.
"""

import torch
from torch import Tensor, nn

from headwise.config import ModelConfig, Vocab
from headwise.model.embeddings import Placed, check_tying, embed, make_positions, read_at
from headwise.model.initialise import initialise
from headwise.model.inputs import make_source_embedding, positions_of, source_keys
from headwise.model.layers import Stack
from headwise.model.masks import Allowed
from headwise.model.state import State
from headwise.model.step_projection import StepProjection
from headwise.model.stepping import layer_steps
from headwise.model.trace import StackTrace, Trace


class Transformer(nn.Module):
    """The encoder-decoder Transformer.

    Paper: §3.1, Figure 1.
    Departs from the paper with `aligned_input`: the encoder's output at one source position is
    added to each input of the decoder. Then, and only then, every method that reads target ids
    also takes `aligned`, the source position for each of them. With rotary positions, attention
    over the source is then rotated too: keys by their positions, and queries by `aligned`.
    And where the vocabulary says so, the source is vectors [B, S-1, W], such as patches of an
    image: the class token is put before them (`VectorEmbedding`), and `lengths` [B] count the
    positions of each source; the others are padding. Without `lengths`, there is none.
    """

    def __init__(self, config: ModelConfig, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.vocab = config, vocab
        self._window = config.window or None
        d_model = config.d_model
        check_tying(config.tying, vocab)
        self.source_embedding = make_source_embedding(vocab, config)
        self.target_embedding = nn.Embedding(vocab.target_size, d_model)
        self.output = nn.Linear(d_model, vocab.target_size, bias=False)
        self.source_positions = make_positions(config)
        is_learned = config.positions == "learned"
        self.target_positions = make_positions(config) if is_learned else self.source_positions
        self.encoder = Stack(config, attends_to_memory=False)
        self.decoder = Stack(config, attends_to_memory=True)
        initialise(self)
        if config.tying != "untied":
            self.output.weight = self.target_embedding.weight
        if config.tying == "three-way":
            assert isinstance(self.source_embedding, nn.Embedding)
            self.source_embedding.weight = self.target_embedding.weight

    def forward(
        self,
        src: Tensor,
        tgt_in: Tensor,
        aligned: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        trace: Trace | None = None,
    ) -> Tensor:
        """Return the logits [B, T, V] of every next token. Training uses `hidden` instead."""
        hidden = self.hidden(src, tgt_in, aligned, lengths=lengths, trace=trace)  # [B, T, D]
        logits: Tensor = self.output(hidden)  # [B, T, V]
        return logits

    def hidden(
        self,
        src: Tensor,  # [B, S], or [B, S-1, W]
        tgt_in: Tensor,  # [B, T]
        aligned: Tensor | None = None,  # [B, T]
        *,
        lengths: Tensor | None = None,  # [B]
        trace: Trace | None = None,
    ) -> Tensor:  # [B, T, D]
        """Return the decoder's output for a source and target ids.

        Targets are padded at their end only (`check_batch`), so causality already keeps every
        real position from seeing padding, and the decoder needs no mask of its own for it.
        """
        allowed = Allowed(keys=source_keys(src, lengths, self.vocab))
        memory = self.encode(src, allowed, trace)
        x, rotation = self._embed_target(tgt_in, memory, aligned)
        hidden: Tensor = self.decoder(
            x,
            Allowed(causal=True, window=self._window),
            self.decoder.remember(memory, allowed, self._key_rotation(memory)),
            rotation,
            self._query_rotation(memory, aligned),
            trace=None if trace is None else trace.decoder,
        )
        return hidden

    def cross_attention(
        self,
        src: Tensor,
        tgt_in: Tensor,
        layer: int,
        aligned: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Return the attention over the source [B, H, T, S] of one decoder layer.

        Later layers are not computed, and the weights of earlier ones are not kept: a `Trace` of
        the same pair holds those of every layer, of encoder and decoder.
        """
        allowed = Allowed(keys=source_keys(src, lengths, self.vocab))
        memory = self.encode(src, allowed)
        x, rotation = self._embed_target(tgt_in, memory, aligned)
        trace, causal = StackTrace(), Allowed(causal=True, window=self._window)
        for_keys, for_queries = self._key_rotation(memory), self._query_rotation(memory, aligned)
        for number, each in enumerate(self.decoder.layers[: layer + 1]):
            is_last = number == layer
            remembered = each.remember(memory, allowed, for_keys)  # type: ignore[operator]
            x = each(x, causal, remembered, rotation, for_queries, trace=trace if is_last else None)
        (weights,) = trace.cross_attention
        return weights

    def encode(self, src: Tensor, allowed: Allowed, trace: Trace | None = None) -> Tensor:
        """Return the encoder's output, the memory [B, S, D]; `allowed` says what is padding."""
        if self._window is not None:
            allowed = Allowed(keys=allowed.keys, window=self._window)
        placed = Placed.of(self.source_positions(0, positions_of(src)), self.config)
        memory: Tensor = self.encoder(
            embed(src, self.source_embedding, placed.added, self.config),
            allowed,
            rotation=placed.rotation,
            trace=None if trace is None else trace.encoder,
        )
        return memory

    @torch.no_grad()
    def start(self, src: Tensor, lengths: Tensor | None = None) -> State:
        """Encode sources and return the state from which decoding starts."""
        allowed = Allowed(keys=source_keys(src, lengths, self.vocab))
        memory = self.encode(src, allowed)
        return State.of_memories(
            self.decoder.remember(memory, allowed, self._key_rotation(memory)),
            encoded=memory if self.config.aligned_input else None,
            window=self._window,
        )

    @torch.no_grad()
    def step(
        self, ids: Tensor, state: State, aligned: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Feed one target id for each row [R]; return the next token's logits [R, V].

        The returned state takes over the caches: do not use the one passed in again. To continue
        one state in two ways, `select` each of its rows twice.
        """
        assert not self.training, "a step has no dropout: call eval() first"
        # [B, 1, D], or [1, D] for all
        placed = Placed.of(state.next_positions(self.target_positions), self.config)
        ids = ids.view(-1, state.rows_per_source)
        aligned = None if aligned is None else aligned.view_as(ids)
        read = self._read(state.encoded, aligned)
        x = embed(ids, self.target_embedding, placed.added, self.config, read)  # [B, W, D]
        layers = state.layers or layer_steps(self.decoder)
        x, state = state.step(
            x.flatten(0, 1),  # [R, D]
            layers,
            placed.rotation,
            self._query_rotation(state.encoded, aligned),
        )
        if self.decoder.final_norm is not None:
            x = self.decoder.final_norm(x)
        state.output = state.output or StepProjection(self.output.weight)
        return state.output(x), state  # [R, V]

    def _embed_target(
        self, tgt_in: Tensor, memory: Tensor, aligned: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the decoder's input, and how its self-attention rotates queries and keys."""
        placed = Placed.of(self.target_positions(0, tgt_in.shape[1]), self.config)
        read = self._read(memory, aligned)
        x = embed(tgt_in, self.target_embedding, placed.added, self.config, read)
        return x, placed.rotation

    def _read(self, memory: Tensor | None, aligned: Tensor | None) -> Tensor | None:
        """Return what `aligned_input` adds to the decoder's input; None without it."""
        if not self.config.aligned_input:
            assert aligned is None, "source positions for a model without aligned_input"
            return None
        assert memory is not None, "a state of a model without aligned_input"
        assert aligned is not None, "a model with aligned_input needs source positions"
        return read_at(memory, aligned)

    def _key_rotation(self, memory: Tensor) -> Tensor | None:
        """Return how keys of the source are rotated; None where they are not."""
        if not self.config.aligned_input:
            return None
        return Placed.of(self.source_positions(0, memory.shape[1]), self.config).rotation

    def _query_rotation(self, memory: Tensor | None, aligned: Tensor | None) -> Tensor | None:
        """Return how the queries of the source are rotated, [B, T, 2*K]; None where not."""
        if memory is None or aligned is None:
            return None
        by_position = self._key_rotation(memory)
        return None if by_position is None else by_position[aligned]
