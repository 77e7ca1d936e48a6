"""The recurrent encoder-decoders that the paper measures itself against.

Paper: §1 and §2; Bahdanau et al. (2015), Sutskever et al. (2014).
"""

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from headwise.config import RecurrentConfig, Vocab
from headwise.model.dropout import dropout
from headwise.model.embeddings import check_tying
from headwise.model.linear import Linear, few_rows_linear
from headwise.model.trace import Trace

States = tuple[Tensor, ...]
"""Of a layer, each [R, D]: the hidden state and, of an LSTM, the cell."""


@dataclass(frozen=True)
class RecurrentState:
    """The state of incremental decoding: each row's own, and the sources that rows share."""

    layers: list[States]
    """Of the decoder."""
    source: "_Source | None"
    """What the decoder attends to; None without attention."""
    rows_per_source: int = 1

    def select(self, rows: Tensor, rows_per_source: int = 1) -> "RecurrentState":
        """Return the state of the given rows [R'], in that order: to reorder, repeat or drop."""
        sources = rows[::rows_per_source] // self.rows_per_source
        return RecurrentState(
            layers=[tuple(each.index_select(0, rows) for each in states) for states in self.layers],
            source=None if self.source is None else self.source.select(sources),
            rows_per_source=rows_per_source,
        )

    def reset(self, sources: Tensor) -> "RecurrentState":
        """Return the state when some sources are no longer used; what their rows do is ignored."""
        return self

    def replace(self, sources: Tensor, other: "RecurrentState") -> "RecurrentState":
        """Return the state with another's sources, and their rows, in the place of some."""
        assert self.rows_per_source == other.rows_per_source, "states of different beams"
        within = torch.arange(self.rows_per_source, device=sources.device)
        rows = (sources[:, None] * self.rows_per_source + within).flatten()
        layers = [
            tuple(ours.index_copy(0, rows, theirs) for ours, theirs in zip(*pair, strict=True))
            for pair in zip(self.layers, other.layers, strict=True)
        ]
        source = self.source
        if source is not None:
            assert other.source is not None, "states of different models"
            source = source.replace(sources, other.source)
        return replace(self, layers=layers, source=source)


@dataclass(frozen=True)
class _Source:
    """What additive attention reads."""

    memory: Tensor  # [B, S, D]
    keys: Tensor  # [B, S, D]
    is_padding: Tensor  # [B, S]

    def select(self, rows: Tensor) -> "_Source":
        return _Source(*(each.index_select(0, rows) for each in self._parts()))

    def replace(self, rows: Tensor, other: "_Source") -> "_Source":
        length = max(self.memory.shape[1], other.memory.shape[1])
        pairs = zip(self.padded_to(length)._parts(), other.padded_to(length)._parts(), strict=True)
        return _Source(*(ours.index_copy(0, rows, theirs) for ours, theirs in pairs))

    def padded_to(self, length: int) -> "_Source":
        """Return the same with more padding."""
        more = length - self.memory.shape[1]
        memory, keys = (F.pad(each, (0, 0, 0, more)) for each in (self.memory, self.keys))
        return _Source(memory, keys, F.pad(self.is_padding, (0, more), value=True))

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.memory, self.keys, self.is_padding


class AdditiveAttention(nn.Module):
    """softmax(v^T tanh(W query + U key)) over the source, and the sum that it weighs.

    Paper: §3.2.1 compares it with the dot product; Bahdanau et al. (2015), §3.1.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query = Linear(d_model, d_model)
        self.key = Linear(d_model, d_model, bias=False)
        self.score = Linear(d_model, 1, bias=False)

    def remember(self, memory: Tensor, is_padding: Tensor) -> _Source:
        """Compute once what every step needs of the encoder's output [B, S, D]."""
        return _Source(memory, self.key(memory), is_padding)

    def forward(self, queries: Tensor, source: _Source) -> tuple[Tensor, Tensor]:
        """Return for queries [B, W, D] the context [B, W, D] and the weights [B, W, S]."""
        keys = source.keys[:, None]  # [B, 1, S, D]
        scores = self.score(torch.tanh(self.query(queries)[:, :, None] + keys))[..., 0]  # [B, W, S]
        weights = scores.masked_fill(source.is_padding[:, None], -torch.inf).softmax(-1)
        return weights @ source.memory, weights


class Recurrent(nn.Module):
    """An encoder-decoder of LSTM or GRU layers, with additive attention or without attention.

    With attention, the encoder reads in both directions, and before each step the first layer of
    the decoder attends to its output with the state it has, and reads what it finds together with
    the last token. Without, the encoder reads the source from its end, and the decoder has only the
    encoder's last state. In both, each layer of the decoder starts with the last state of that
    layer of the encoder.
    """

    def __init__(self, config: RecurrentConfig, vocab: Vocab) -> None:
        super().__init__()
        self.config, self.vocab = config, vocab
        check_tying(config.tying, vocab)
        d_model, attends = config.d_model, config.attention == "additive"
        kind = nn.LSTM if config.cell == "lstm" else nn.GRU
        self.source_embedding = nn.Embedding(vocab.source_size, d_model)
        self.target_embedding = nn.Embedding(vocab.target_size, d_model)
        self.output = nn.Linear(d_model, vocab.target_size, bias=False)
        self.attention = AdditiveAttention(d_model) if attends else None
        self.join = Linear(2 * d_model, d_model) if attends else None
        self.encoder = nn.ModuleList(
            kind(
                d_model,
                d_model // 2 if attends else d_model,
                batch_first=True,
                bidirectional=attends,
            )
            for _ in range(config.num_layers)
        )
        self.decoder = nn.ModuleList(
            kind(2 * d_model if attends and number == 0 else d_model, d_model, batch_first=True)
            for number in range(config.num_layers)
        )
        _initialise(self)
        if config.tying != "untied":
            self.output.weight = self.target_embedding.weight
        if config.tying == "three-way":
            self.source_embedding.weight = self.target_embedding.weight

    def forward(self, src: Tensor, tgt_in: Tensor, *, trace: Trace | None = None) -> Tensor:
        """Return the logits [B, T, V] of every next token. Training uses `hidden` instead."""
        logits: Tensor = self.output(self.hidden(src, tgt_in, trace=trace))
        return logits

    def hidden(self, src: Tensor, tgt_in: Tensor, *, trace: Trace | None = None) -> Tensor:
        """Return what the logits are computed from [B, T, D], for source and target ids."""
        state = self._encode(src)
        x = self._embed(tgt_in, self.target_embedding)  # [B, T, D]
        context = None
        first, *others = self.decoder
        if self.attention is None:
            x, _ = first(x, _as_torch(state.layers[0]))
        else:
            x, context = self._attending(x, state, trace)
        for layer, states in zip(others, state.layers[1:], strict=True):
            x, _ = layer(self._drop(x), _as_torch(states))
        return self._joined(x, context)

    def cross_attention(self, src: Tensor, tgt_in: Tensor, layer: int) -> Tensor:
        """Return the attention over the source [B, 1, T, S]; there is one, whatever the layer."""
        trace = Trace()
        self.hidden(src, tgt_in, trace=trace)
        (weights,) = trace.decoder.cross_attention
        return weights

    @torch.no_grad()
    def start(self, src: Tensor) -> RecurrentState:
        """Encode the source ids [B, S] and return the state from which decoding starts."""
        assert not self.training, "decoding has no dropout: call eval() first"
        return self._encode(src)

    @torch.no_grad()
    def step(self, ids: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Feed one target id for each row [R]; return the next token's logits [R, V]."""
        assert not self.training, "a step has no dropout: call eval() first"
        x, context, layers = self._embed(ids, self.target_embedding), None, []  # [R, D]
        for number, (layer, states) in enumerate(zip(self.decoder, state.layers, strict=True)):
            if number == 0 and self.attention is not None:
                assert state.source is not None, "a state of a model without attention"
                queries = states[0].unflatten(0, (-1, state.rows_per_source))
                context = self.attention(queries, state.source)[0].flatten(0, 1)  # [R, D]
                x = torch.cat((x, context), 1)
            x, states = _one_step(layer, x, states)
            layers.append(states)
        x = self._joined(x, context)
        return few_rows_linear(x, self.output.weight, None), replace(state, layers=layers)

    def _encode(self, src: Tensor) -> RecurrentState:
        is_padding = src == self.vocab.pad
        lengths = (~is_padding).sum(1)
        if self.attention is None:
            src = _reversed(src, lengths)
        x = self._embed(src, self.source_embedding)  # [B, S, D]
        # Packed, so that the backward direction starts at each row's own end.
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        layers: list[States] = []
        for number, layer in enumerate(self.encoder):
            if number:
                packed = packed._replace(data=self._drop(packed.data))
            packed, last = layer(packed)
            states = last if isinstance(last, tuple) else (last,)  # Each [directions, B, D/...]
            layers.append(tuple(each.transpose(0, 1).flatten(1) for each in states))
        source = None
        if self.attention is not None:
            memory, _ = pad_packed_sequence(packed, batch_first=True, total_length=src.shape[1])
            source = self.attention.remember(memory, is_padding)
        return RecurrentState(layers, source)

    def _attending(
        self, x: Tensor, state: RecurrentState, trace: Trace | None
    ) -> tuple[Tensor, Tensor]:
        """Return the first layer's outputs and the contexts [B, T, D] that it reads on its way."""
        assert self.attention is not None
        assert state.source is not None
        states, outputs, contexts, weights = state.layers[0], [], [], []
        for embedded in x.unbind(1):
            context, seen = self.attention(states[0][:, None], state.source)  # [B, 1, D], [B, 1, S]
            inputs = torch.cat((embedded, context[:, 0]), 1)
            output, states = _one_step(self.decoder[0], inputs, states)
            outputs.append(output)
            contexts.append(context[:, 0])
            weights.append(seen)
        if trace is not None:
            trace.decoder.cross_attention.append(torch.stack(weights, 2))  # [B, 1, T, S]
        return torch.stack(outputs, 1), torch.stack(contexts, 1)

    def _joined(self, x: Tensor, context: Tensor | None) -> Tensor:
        if self.join is not None:
            assert context is not None
            x = torch.tanh(self.join(torch.cat((x, context), -1)))
        return self._drop(x)

    def _embed(self, ids: Tensor, embedding: nn.Embedding) -> Tensor:
        """Embed ids, scaled to variance 1 as the Transformer's are (§3.4)."""
        return self._drop(embedding(ids) * math.sqrt(self.config.d_model))

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.config.dropout if self.training else 0.0)


def _one_step(layer: nn.Module, x: Tensor, states: States) -> tuple[Tensor, States]:
    """Take rows [R, D] through one step of a layer."""
    weights = (layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0)
    if isinstance(layer, nn.LSTM):
        hidden, cell = torch.lstm_cell(x, states, *weights)  # type: ignore[arg-type]
        return hidden, (hidden, cell)
    hidden = torch.gru_cell(x, states[0], *weights)  # type: ignore[arg-type]
    return hidden, (hidden,)


def _as_torch(states: States) -> Tensor | tuple[Tensor, ...]:
    """Return states as torch's layers take them."""
    rows = tuple(each[None].contiguous() for each in states)  # [1, B, D]
    return rows if len(rows) > 1 else rows[0]


def _reversed(src: Tensor, lengths: Tensor) -> Tensor:
    """Return each row from its last real token to its first; padding stays at the end."""
    places = lengths[:, None] - 1 - torch.arange(src.shape[1], device=src.device)
    return torch.where(places >= 0, src.gather(1, places.clamp(min=0)), src)


def _initialise(model: Recurrent) -> None:
    """Draw the first weights: embeddings as the Transformer's, matrices after Glorot.

    An LSTM's forget gates start open, with a bias of 1 (Jozefowicz et al., 2015).
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
        elif isinstance(module, Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LSTM | nn.GRU):
            for name, weight in module.named_parameters():
                if name.startswith("bias"):
                    nn.init.zeros_(weight)
                    if isinstance(module, nn.LSTM) and name.startswith("bias_ih"):
                        nn.init.ones_(weight.chunk(4)[1])
                else:
                    for part in weight.chunk(4 if isinstance(module, nn.LSTM) else 3):
                        nn.init.xavier_uniform_(part)
    nn.init.normal_(model.output.weight, std=model.output.in_features**-0.5)
