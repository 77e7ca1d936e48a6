"""Texts as the model reads them: the class token, subwords, eos."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.config import ClassificationDataConfig, Vocab
from headwise.data import Subwords
from headwise.data.batches import Field, padded
from headwise.data.shards import Packed
from headwise.data.subwords import sample_texts
from headwise.data.text import plain
from headwise.data.tokenizer import load_stream, save_streams
from headwise.errors import RequestError
from headwise.files import Folder
from headwise.tasks.encoders import Encoded
from headwise.training.task import Progress

STREAM = "text"

_CLASS_TOKEN = "‹class›"  # noqa: S105 - what is shown for the first position
_HALF_PAIR = re.compile("[\ud800-\udfff]")


class TextEncoder:
    """Cut texts into subwords."""

    def __init__(self, subwords: Subwords, longest: int) -> None:
        self.subwords, self._longest = subwords, longest

    @property
    def stored(self) -> int:
        """Return how many subwords there are."""
        return len(self.subwords)

    def vocab(self, target_size: int) -> Vocab:
        """Return the vocabulary of a model with so many outputs."""
        return Vocab(source_size=len(self.subwords), target_size=target_size)

    def save(
        self,
        directory: Path,
        tables: Mapping[str, object],
        subwords: Mapping[str, Subwords] | None = None,
    ) -> None:
        """Write the folder `tokenizer`, other streams beside the texts' subwords."""
        save_streams(directory, {STREAM: self.subwords, **(subwords or {})}, tables)

    def given(self, example: Any) -> str:
        """Check a text."""
        if not isinstance(example, str):
            raise RequestError(f"{type(example).__name__} is not a text: give a string")
        if "\0" in example:
            raise RequestError("a text with a NUL character cannot be classified")
        if _HALF_PAIR.search(example):
            raise RequestError("a text with half of a surrogate pair is not Unicode text")
        return plain(example)

    def encode(self, content: str) -> Encoded:
        """Return the ids of a text, at most `data.longest` of them."""
        # No subword has so many characters that the cut could change the first ones.
        most = 64 * self._longest
        ids = self.subwords.encode(content[:most])
        kept = ids[: self._longest - 2]
        is_cut = len(kept) < len(ids) or len(content) > most
        return Encoded(np.array([Vocab.bos, *kept, Vocab.eos]), is_cut)

    def padded(self, packed: Packed) -> tuple[Tensor, Tensor]:
        """Pad ids; return them and how many there are of each text."""
        return padded(packed, pad=Vocab.pad), torch.from_numpy(packed[1])

    def tokens(self, encoded: Encoded) -> tuple[str, ...]:
        """Return the subwords."""
        return (_CLASS_TOKEN, *self.subwords.tokens(encoded.values[1:-1].tolist()))

    def text(self, encoded: Encoded) -> str:
        """Return the text that ids stand for."""
        special = (Vocab.bos, Vocab.eos)
        return self.subwords.decode(
            [each for each in encoded.values.tolist() if each not in special]
        )

    def picture(self, encoded: Encoded) -> None:
        """Draw nothing: a text is shown as text."""


class TextKind:
    """`data.input = "text"`."""

    stream, unit = STREAM, "texts"
    field = Field(STREAM, vocab="source")
    settings: tuple[str, ...] = ("longest",)
    starts_from: Mapping[str, tuple[str, ...]] = {"masked-language-model": ("head.",)}

    def read(self, content: str, data: ClassificationDataConfig, place: str) -> str:
        """Return a text on one line."""
        return plain(content)

    def most(self, data: ClassificationDataConfig) -> str:
        """Say how much of a text is read."""
        return f"{data.longest:,} tokens (data.longest)"

    def fault(self, content: str) -> str:
        """Say why a text cannot be used."""
        if not content:
            return "an empty text"
        return "a NUL character" if "\0" in content else ""

    def identity(self, content: str) -> str:
        """Return a key that identifies a text."""
        return content

    def learn(
        self,
        contents: Iterator[str],
        data: ClassificationDataConfig,
        seed: int,
        of: Subwords | None,
        on_progress: Progress,
    ) -> TextEncoder | None:
        """Learn subwords from texts, unless they are given."""
        # Where they are, the texts are still read once: to count and find faults.
        size = data.sample_examples if of is None else 1
        sample = sample_texts(((text,) for text in contents), size, seed, unit="examples")
        if not sample:
            return None
        if of is None:
            on_progress("learning subwords", 0, None)
            of = Subwords.learn((text for (text,) in sample), data, may_be_fewer=True)
        return TextEncoder(of, data.longest)

    def augmented(
        self, packed: Packed, data: ClassificationDataConfig, key: tuple[int, int]
    ) -> Packed:
        """Leave texts as they are."""
        return packed

    def check_installed(self) -> None:
        """Need nothing."""

    def load(self, folder: Path | Folder, data: ClassificationDataConfig) -> TextEncoder:
        """Load the subwords of prepared data or of a run."""
        return TextEncoder(load_stream(folder, STREAM), data.longest)


TEXT = TextKind()
