"""A parser that reads its words one after the other.

The number of leaves so far says which word is next. With `model.aligned_input` the decoder is told
where that word is in the source, in training (`aligned_positions`) and in decoding (`ParserModel`).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.config import Vocab
from headwise.model import State, Transformer
from headwise.tasks.parsing.constraint import PartialTrees, TreeConstraint
from headwise.tasks.parsing.grammar import Bounds, Kind, Symbols


def aligned_positions(tgt_in: Tensor, ends: Tensor, symbols: Symbols) -> Tensor:
    """Return the source position of the next unread word after each target input [B, T].

    `ends` [B, N+1] has the position of each word's last subword, then that of eos, which stands for
    no word; rows of fewer words go on with any position.
    """
    is_leaf = torch.tensor([kind == Kind.LEAF for kind in symbols.kinds], device=tgt_in.device)
    read = is_leaf[tgt_in].cumsum(1)  # [B, T]
    return ends.gather(1, read.clamp(max=ends.shape[1] - 1))


@dataclass(frozen=True)
class ParseState:
    """The state of a model, the trees that its rows have begun, and where their words are."""

    inner: State
    trees: PartialTrees
    words: Tensor  # [B]
    ends: Tensor  # [B, N+1] as in `aligned_positions`
    rows_per_source: int = 1

    def select(self, rows: Tensor, rows_per_source: int = 1) -> "ParseState":
        """Return the state of the given rows [R'], in that order; do not use this one again."""
        sources = rows[::rows_per_source] // self.rows_per_source
        return ParseState(
            inner=self.inner.select(rows, rows_per_source),
            trees=self.trees.select(rows),
            words=self.words[sources],
            ends=self.ends[sources],
            rows_per_source=rows_per_source,
        )

    def reset(self, sources: Tensor) -> "ParseState":
        """Return the state when some sources are no longer used."""
        return replace(self, inner=self.inner.reset(sources))

    def replace(self, sources: Tensor, other: "ParseState") -> "ParseState":
        """Return the state with another's sources in the place of some."""
        width = self.rows_per_source
        rows = sources[:, None] * width + torch.arange(width, device=sources.device)
        longest = max(self.ends.shape[1], other.ends.shape[1])
        ours, theirs = (_widened(state.ends, longest) for state in (self, other))
        return replace(
            self,
            inner=self.inner.replace(sources, other.inner),
            trees=self.trees.replace(rows.flatten(), other.trees),
            words=self.words.index_copy(0, sources, other.words),
            ends=ours.index_copy(0, sources, theirs),
        )


def _widened(ends: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(ends, (0, width - ends.shape[1]))


class ParserModel:
    """A Transformer that writes trees: what `decoding` searches with."""

    def __init__(self, model: Transformer, symbols: Symbols, bounds: Bounds) -> None:
        assert len(symbols) == model.vocab.target_size, "the vocabulary of another model"
        self.model = model
        self._constraint = TreeConstraint(symbols, bounds, model.output.weight.device)

    @property
    def vocab(self) -> Vocab:
        """The model's."""
        return self.model.vocab

    def start(self, src: Tensor, ends: Tensor, words: Tensor, limits: Tensor) -> ParseState:
        """Encode sources [B, S] with the positions of their words, `ends` [B, N+1].

        `words` [B] are their numbers, and `limits` [B] the most symbols of each tree, as the search
        has them: at least the `least_limit` of its words.
        """
        return ParseState(
            inner=self.model.start(src),
            trees=self._constraint.start(words, limits),
            words=words,
            ends=ends,
        )

    def step(self, ids: Tensor, state: ParseState) -> tuple[Tensor, ParseState]:
        """Feed one symbol for each row [R]; return the next one's logits [R, V]."""
        trees = self._constraint.read(ids, state.trees)
        aligned = None
        if self.model.config.aligned_input:
            read = state.words[:, None] - trees.unread.view(-1, state.rows_per_source)  # [B, W]
            aligned = state.ends.gather(1, read).flatten()  # [R]
        logits, inner = self.model.step(ids, state.inner, aligned)
        return logits, replace(state, inner=inner, trees=trees)

    def allowed(self, state: ParseState) -> Tensor:
        """Return which symbols may come next [R, V] for a tree over exactly the words."""
        return self._constraint.allowed(state.trees)
