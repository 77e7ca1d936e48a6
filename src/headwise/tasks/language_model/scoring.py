"""How well a language model predicts a text, with context for every token.

The text is read through a window of the model's context, which moves on by half of it. Of each
window only the tokens that the one before did not have are counted: so every token but those of
the first window is predicted from at least half a context.
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.decoding.beam import nan_logits
from headwise.model import LanguageModel

_BATCH_TOKENS = 4096
_CHUNK = 1024
"""Positions whose logits are held at a time."""


@dataclass(kw_only=True)
class TextScore:
    """How well a text was predicted."""

    nll: float = 0.0
    """The negative log-likelihood of all tokens, in nats."""
    tokens: int = 0
    """How many were predicted, the ends of documents included."""
    words: int = 0
    """As white space parts them."""
    num_bytes: int = 0
    """Of the original text in UTF-8, line feeds included."""
    seconds: float = 0.0

    @property
    def perplexity(self) -> float:
        """Perplexity of a token."""
        return _exp(self.nll / self.tokens)

    @property
    def word_perplexity(self) -> float:
        """Perplexity of a word: does not depend on the vocabulary."""
        return _exp(self.nll / self.words) if self.words else math.inf

    @property
    def bits_per_byte(self) -> float:
        """Bits that each byte of the text needs, given the model."""
        return self.nll / math.log(2) / self.num_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {
            "perplexity": self.perplexity,
            "word_perplexity": self.word_perplexity,
            "bits_per_byte": self.bits_per_byte,
            "nll": self.nll,
            "tokens": self.tokens,
            "words": self.words,
            "bytes": self.num_bytes,
            "tokens_per_second": self.tokens / self.seconds if self.seconds else 0.0,
        }


def score_tokens(
    model: LanguageModel, parts: Iterable[list[int]], context: int, score: TextScore
) -> Iterator[int]:
    """Add the NLL of all tokens but the first to a score; yield how many it has, now and then.

    `parts` are the tokens in order, in parts of any length; they are not kept.
    """
    start = time.perf_counter()
    rows = max(1, _BATCH_TOKENS // context)
    for windows in _in_batches(_windows(parts, context), rows):
        with torch.inference_mode():
            score.nll += _nll(model, windows)
        score.tokens += sum(new for _, new in windows)
        score.seconds = time.perf_counter() - start
        yield score.tokens
    if math.isnan(score.nll):
        raise nan_logits()


def _windows(parts: Iterable[list[int]], context: int) -> Iterator[tuple[list[int], int]]:
    """Yield windows of at most context + 1 tokens, and how many of each are to be counted."""
    stride = context // 2
    held: list[int] = []
    counted = 1  # Tokens of those held that are counted already: the first of all is not.
    for part in parts:
        held += part
        start = 0
        while len(held) - start > context:
            window = held[start : start + context + 1]
            yield window, len(window) - counted
            start += stride
            counted = context + 1 - stride
        del held[:start]
    if len(held) > counted:
        yield held, len(held) - counted


def _in_batches(
    windows: Iterator[tuple[list[int], int]], rows: int
) -> Iterator[list[tuple[list[int], int]]]:
    batch = []
    for window in windows:
        batch.append(window)
        if len(batch) == rows:
            yield batch
            batch = []
    if batch:
        yield batch


def _nll(model: LanguageModel, windows: list[tuple[list[int], int]]) -> float:
    """Return the sum over the last tokens of each window, as many as are to be counted."""
    device = model.embedding.weight.device
    longest = max(len(ids) for ids, _ in windows)
    # Padding stands after a window, where it changes nothing before it.
    rows = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in windows], device=device)
    hidden = model.hidden(rows[:, :-1])  # [B, T, D]
    counted = torch.zeros_like(rows[:, 1:], dtype=torch.bool)
    for row, (ids, new) in enumerate(windows):
        counted[row, len(ids) - 1 - new : len(ids) - 1] = True
    total = 0.0
    parts = zip(hidden[counted].split(_CHUNK), rows[:, 1:][counted].split(_CHUNK), strict=True)
    for part, targets in parts:
        logits: Tensor = model.output(part)  # [N, V]
        right = logits.gather(1, targets[:, None])[:, 0]
        total += float((logits.logsumexp(1) - right).double().sum())
    return total


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
