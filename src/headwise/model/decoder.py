"""A decoder without an encoder: a language model.

Paper: §3.1, less the encoder and the attention over it (Liu et al., 2018; Radford et al., 2018).
"""

import torch
from torch import Tensor, nn

from headwise.config import ModelConfig, Vocab
from headwise.model.cache import KeyValueCache
from headwise.model.embeddings import Placed, embed, make_positions
from headwise.model.initialise import initialise
from headwise.model.layers import Stack
from headwise.model.masks import Allowed
from headwise.model.state import State
from headwise.model.step_projection import StepProjection
from headwise.model.stepping import layer_steps
from headwise.model.trace import Trace


class LanguageModel(nn.Module):
    """A causal stack of the paper's layers that predicts the next token.

    Its one vocabulary is the target's. `tying` "three-way" and "two-way" both share the embedding
    with the output; "untied" gives the output a matrix of its own. Ids that follow a position do
    not change its output, so that shorter sequences may be padded at their end with any id.

    GPT-2's layout is norm_order "pre", activation "gelu_tanh", norm_epsilon 1e-5, positions
    "learned" and scale_embeddings false.
    """

    def __init__(self, config: ModelConfig, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.vocab = config, vocab
        self._window = config.window or None
        self.embedding = nn.Embedding(vocab.target_size, config.d_model)
        self.output = nn.Linear(config.d_model, vocab.target_size, bias=False)
        self.positions = make_positions(config)
        self.decoder = Stack(config, attends_to_memory=False)
        initialise(self)
        if config.tying != "untied":
            self.output.weight = self.embedding.weight

    def forward(self, ids: Tensor, trace: Trace | None = None) -> Tensor:
        """Return the logits [B, T, V] of every next token. Training uses `hidden` instead."""
        logits: Tensor = self.output(self.hidden(ids, trace))  # [B, T, V]
        return logits

    def hidden(self, ids: Tensor, trace: Trace | None = None) -> Tensor:
        """Return the decoder's output [B, T, D] for ids [B, T]."""
        x, rotation = self._embed(ids)
        hidden: Tensor = self.decoder(
            x,
            Allowed(causal=True, window=self._window),
            rotation=rotation,
            trace=None if trace is None else trace.decoder,
        )
        return hidden

    @torch.no_grad()
    def start(self, prompts: Tensor, lengths: Tensor | None = None) -> State:
        """Read prompts [B, P] in one pass, each but for its last id, which the first step takes.

        Prompts of different lengths [B] are padded at their end, with any id. Each has at least one
        id: the one that a document starts with, if there is nothing else.

        With learned positions a state has room for `max_positions` tokens. To continue after that,
        start again with the last half of them as the prompt, which is read at positions 0, 1, ...
        """
        assert not self.training, "decoding has no dropout: call eval() first"
        layers = layer_steps(self.decoder)
        caches = [KeyValueCache() for _ in layers]
        num_prompts, length = prompts.shape[0], prompts.shape[1] - 1
        if length:
            embedded, rotation = self._embed(prompts[:, :-1])
            x = embedded.flatten(0, 1)  # [B*P, D]
            causal = Allowed(causal=True, window=self._window)
            for layer, cache in zip(layers, caches, strict=True):
                x = layer(x, length, causal, None, cache, rotation)
        state = State(
            num_sources=num_prompts,
            caches=caches,
            length=length,
            layers=layers,
            window=self._window,
        )
        if lengths is not None and bool((lengths < prompts.shape[1]).any()):
            state.lengths = lengths - 1
            columns = torch.arange(length, device=prompts.device)
            state.visible = (columns < state.lengths[:, None])[:, None]  # [B, 1, P]
        return state

    @torch.no_grad()
    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Feed one id for each row [R]; return the next token's logits [R, V].

        The returned state takes over the caches: do not use the one passed in again. To continue
        one state in two ways, `select` each of its rows twice.
        """
        assert not self.training, "a step has no dropout: call eval() first"
        # [B, 1, D], or [1, D] for all
        placed = Placed.of(state.next_positions(self.positions), self.config)
        ids = ids.view(-1, state.rows_per_source)
        x = embed(ids, self.embedding, placed.added, self.config)  # [B, W, D]
        layers = state.layers or layer_steps(self.decoder)
        x, state = state.step(x.flatten(0, 1), layers, placed.rotation)  # [R, D]
        if self.decoder.final_norm is not None:
            x = self.decoder.final_norm(x)
        state.output = state.output or StepProjection(self.output.weight)
        return state.output(x), state  # [R, V]

    def _embed(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the stack's input, and how its self-attention rotates queries and keys."""
        placed = Placed.of(self.positions(0, ids.shape[1]), self.config)
        return embed(ids, self.embedding, placed.added, self.config), placed.rotation
