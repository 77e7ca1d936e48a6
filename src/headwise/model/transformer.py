"""The paper's model: embeddings, encoder, decoder, and the output projection.

Paper: §3.1, §3.4.
"""

import torch
from torch import Tensor, nn

from headwise.config import ModelConfig, Vocab
from headwise.errors import ConfigError
from headwise.model.embeddings import embed, make_positions
from headwise.model.initialise import initialise
from headwise.model.layers import Stack
from headwise.model.masks import Allowed, real_keys
from headwise.model.state import State
from headwise.model.stepping import layer_steps
from headwise.model.trace import StackTrace, Trace


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
        self.source_positions = make_positions(config)
        is_learned = config.positions == "learned"
        self.target_positions = make_positions(config) if is_learned else self.source_positions
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
            self._embed_target(tgt_in),
            Allowed(causal=True),
            self.decoder.remember(memory, allowed),
            trace=None if trace is None else trace.decoder,
        )
        return hidden

    def cross_attention(self, src: Tensor, tgt_in: Tensor, layer: int) -> Tensor:
        """Return the attention over the source [B, H, T, S] of one decoder layer.

        Later layers are not computed, and the weights of earlier ones are not kept: a `Trace` of
        the same pair holds 3 * num_layers such tensors.
        """
        allowed = Allowed(keys=real_keys(src, self.vocab.pad))
        memory = self.encode(src, allowed)
        x = self._embed_target(tgt_in)
        trace = StackTrace()
        for number, each in enumerate(self.decoder.layers[: layer + 1]):
            is_last = number == layer
            remembered = each.remember(memory, allowed)  # type: ignore[operator]
            x = each(x, Allowed(causal=True), remembered, trace=trace if is_last else None)
        (weights,) = trace.cross_attention
        return weights

    def encode(self, src: Tensor, allowed: Allowed, trace: Trace | None = None) -> Tensor:
        """Return the encoder's output, the memory [B, S, D]."""
        positions = self.source_positions(0, src.shape[1])
        memory: Tensor = self.encoder(
            embed(src, self.source_embedding, positions, self.config),
            allowed,
            trace=None if trace is None else trace.encoder,
        )
        return memory

    @torch.no_grad()
    def start(self, src: Tensor) -> State:
        """Encode the source ids [B, S] and return the state from which decoding starts."""
        allowed = Allowed(keys=real_keys(src, self.vocab.pad))
        return State.of_memories(self.decoder.remember(self.encode(src, allowed), allowed))

    @torch.no_grad()
    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Feed one target id for each row [R]; return the next token's logits [R, V].

        The returned state takes over the caches: do not use the one passed in again. To continue
        one state in two ways, `select` each of its rows twice.
        """
        assert not self.training, "a step has no dropout: call eval() first"
        positions = state.next_positions(self.target_positions)  # [B, 1, D], or [1, D] for all
        ids = ids.view(-1, state.rows_per_source)
        x = embed(ids, self.target_embedding, positions, self.config)  # [B, W, D]
        layers = state.layers or layer_steps(self.decoder)
        x, state = state.step(x.flatten(0, 1), layers)  # [R, D]
        if self.decoder.final_norm is not None:
            x = self.decoder.final_norm(x)
        logits: Tensor = self.output(x)  # [R, V]
        return logits, state

    def _embed_target(self, tgt_in: Tensor) -> Tensor:
        positions = self.target_positions(0, tgt_in.shape[1])
        return embed(tgt_in, self.target_embedding, positions, self.config)
