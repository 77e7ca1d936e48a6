"""Text as ids for a masked language model: a language model's tokenizer with a mask."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headwise.config import Vocab
from headwise.data import Subwords
from headwise.errors import DataError
from headwise.files import Folder
from headwise.tasks.language_model.text_tokenizer import LINE_BREAK, TextTokenizer

MASK = "<mask>"
"""The subword that stands for a masked token; nothing in a text is encoded as it."""

SHOWN_MASK = "[MASK]"
"""How people write it."""

_WORD_START = "\u2581"


class MaskTokenizer:
    """Encode text with masks, and tell where words begin."""

    def __init__(self, text: TextTokenizer) -> None:
        self.text = text
        self.mask = text.subwords.id_of(MASK)
        if self.mask == Vocab.unk:
            raise DataError("this tokenizer has no mask: it was not made for this task")
        tokens = text.subwords.tokens(list(range(len(text))))
        self._starts = np.array(
            [token.startswith(_WORD_START) or token == LINE_BREAK for token in tokens]
        )

    @classmethod
    def load(cls, folder: Path | Folder) -> "MaskTokenizer":
        """Load the tokenizer of prepared data or of a run."""
        return cls(TextTokenizer.load(folder))

    @property
    def subwords(self) -> Subwords:
        """The subwords, the mask among them."""
        return self.text.subwords

    @property
    def vocab(self) -> Vocab:
        """The vocabulary of a model."""
        return replace(Vocab.shared(len(self.text)), mask=self.mask)

    def word_begins(self, ids: Sequence[int] | NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return at which ids a word begins; a line break is a word of its own."""
        begins: NDArray[np.bool_] = self._starts[np.asarray(ids, dtype=np.int64)]
        return begins

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text in which SHOWN_MASK stands for masked tokens, without eos.

        The space before a mask belongs to what it stands for.
        """
        ids: list[int] = []
        for number, part in enumerate(text.split(SHOWN_MASK)):
            if number:
                ids.append(self.mask)
            part = part.rstrip() if SHOWN_MASK in text else part
            if part.strip():
                ids += self.text.encode(part.lstrip())
        return ids
