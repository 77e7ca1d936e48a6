"""Generation beyond the context of a model.

The model reads the tokens of a window, at positions 0, 1, ... A window grows with each token until
it is as long as the context. The next token begins a new window: the last half of the full one is
read again at positions 0, 1, ..., and the new token after it. So what comes next depends on the
tokens of the current window alone, and `window_start` says where that begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.config import Vocab
from headwise.model import LanguageModel, State


def window_start(length: int, context: int) -> int:
    """Return the first of `length` tokens that the model reads to predict the next."""
    stride = context - context // 2
    return max(0, -(-(length - context) // stride)) * stride


@dataclass
class ContextState:
    """The state of a model and the tokens of each row's window, for any number of tokens.

    Each row has a cache of its own, also those of one beam.
    """

    inner: State
    windows: Tensor  # [R, context] ids that were read, from the left
    lengths: list[int]
    """How many ids of its window each row has read."""
    rows_per_source: int = 1

    def select(self, rows: Tensor, rows_per_source: int = 1) -> "ContextState":
        """Return the state of the given rows [R'], in that order; do not use this one again."""
        return ContextState(
            inner=self.inner.select(rows),
            windows=self.windows[rows],
            lengths=[self.lengths[row] for row in rows.tolist()],
            rows_per_source=rows_per_source,
        )

    def reset(self, sources: Tensor) -> "ContextState":
        """Return the state when the rows of some sources are no longer used."""
        rows, lengths = self._rows(sources), [*self.lengths]
        for row in rows.tolist():
            lengths[row] = 0
        return replace(self, inner=self.inner.reset(rows), lengths=lengths)

    def replace(self, sources: Tensor, other: "ContextState") -> "ContextState":
        """Return the state with another's sources in the place of some."""
        rows, lengths = self._rows(sources), [*self.lengths]
        for row, length in zip(rows.tolist(), other.lengths, strict=True):
            lengths[row] = length
        return replace(
            self,
            inner=self.inner.replace(rows, other.inner),
            windows=self.windows.index_copy(0, rows, other.windows),
            lengths=lengths,
        )

    def _rows(self, sources: Tensor) -> Tensor:
        width = self.rows_per_source
        return (sources[:, None] * width + torch.arange(width, device=sources.device)).flatten()


class ContextModel:
    """A language model that decodes sequences of any length."""

    def __init__(self, model: LanguageModel, context: int) -> None:
        self.model, self.context = model, context

    @property
    def vocab(self) -> Vocab:
        """The model's."""
        return self.model.vocab

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[ContextState, Tensor]:
        """Read prompts, each but for its last id; return the state and these ids [B]."""
        device = self.model.embedding.weight.device
        read = [list(ids[window_start(len(ids), self.context) :]) for ids in prompts]
        windows = torch.zeros(len(read), self.context, dtype=torch.long, device=device)
        for row, ids in enumerate(read):
            windows[row, : len(ids)] = torch.tensor(ids, device=device)
        lengths = [len(ids) for ids in read]
        state = ContextState(
            inner=self._started(windows, lengths),
            windows=windows,
            lengths=[length - 1 for length in lengths],
        )
        last = torch.tensor([ids[-1] for ids in read], device=device)
        return state, last

    def step(self, ids: Tensor, state: ContextState) -> tuple[Tensor, ContextState]:
        """Feed one id for each row [R]; return the next token's logits [R, V]."""
        lengths = state.lengths
        if self.context in lengths:
            state = self._with_half_windows(state)
            lengths = state.lengths
        if min(lengths) == max(lengths):
            state.windows.select(1, lengths[0]).copy_(ids)
        else:
            columns = torch.tensor(lengths, device=ids.device)[:, None]
            state.windows.scatter_(1, columns, ids[:, None])
        logits, inner = self.model.step(ids, state.inner)
        return logits, replace(state, inner=inner, lengths=[length + 1 for length in lengths])

    def _with_half_windows(self, state: ContextState) -> ContextState:
        """Have the rows whose windows are full read the last half of these again."""
        half = self.context // 2
        full = [row for row, length in enumerate(state.lengths) if length == self.context]
        rows = torch.tensor(full, device=state.windows.device)
        state.windows[rows, :half] = state.windows[rows, self.context - half :]
        lengths = [half if length == self.context else length for length in state.lengths]
        # `start` leaves out the last id, which is not known yet: any stands for it.
        again = self._started(state.windows[rows, : half + 1], [half + 1] * len(full))
        inner = again if len(full) == len(lengths) else state.inner.replace(rows, again)
        return replace(state, inner=inner, lengths=lengths)

    def _started(self, windows: Tensor, lengths: list[int]) -> State:
        longest = max(lengths)
        each = None
        if min(lengths) < longest:
            each = torch.tensor(lengths, device=windows.device)
        return self.model.start(windows[:, :longest], each)
