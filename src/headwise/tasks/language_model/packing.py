"""Documents, one after the other, cut into blocks for training."""

import numpy as np
from numpy.typing import NDArray

from headwise.config import Vocab
from headwise.data import ShardWriter
from headwise.tasks.language_model.text_tokenizer import STREAM

_HELD_TOKENS = 1 << 16


class BlockWriter:
    """Write a stream of tokens as blocks of context + 1, each beginning with the last's last.

    A block without its last token is what the model reads, and without its first what it predicts:
    so that each token but the first eos is predicted once. The last block may be shorter.
    """

    def __init__(self, shards: ShardWriter, context: int) -> None:
        self._shards, self._context = shards, context
        self._parts: list[NDArray[np.int64]] = [_ids(Vocab.eos)]
        self._held = 1
        self._is_after_eos = True
        self.num_bytes = self.words = self.tokens = 0
        """Of the text so far; tokens are those that are predicted."""

    def add(self, ids: NDArray[np.int64], *, join: int | None) -> None:
        """Add a piece of a document: joined to what was added last by an id, or after its end."""
        if join is not None:
            self._append(_ids(join))
        elif not self._is_after_eos:
            self._append(_ids(Vocab.eos))
        self._append(ids)
        self._is_after_eos = False
        if self._held > max(_HELD_TOKENS, 2 * self._context):
            self._write()

    def finish(self) -> None:
        """End the last document and write what is left."""
        if not self._is_after_eos:
            self._append(_ids(Vocab.eos))
        self._write()
        (rest,) = self._parts
        if len(rest) > 1:
            self._shards.add({STREAM: (rest, np.array([len(rest)]))})

    def _append(self, ids: NDArray[np.int64]) -> None:
        self._parts.append(ids)
        self._held += len(ids)
        self.tokens += len(ids)

    def _write(self) -> None:
        """Write all blocks that are full."""
        ids, context = np.concatenate(self._parts), self._context
        count = (len(ids) - 1) // context
        if count:
            blocks = np.lib.stride_tricks.sliding_window_view(ids, context + 1)[::context][:count]
            lengths = np.full(count, context + 1)
            self._shards.add({STREAM: (blocks.reshape(-1), lengths)})
        self._parts = [ids[count * context :]]
        self._held = len(self._parts[0])


def _ids(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)
