"""Models given by tables of probabilities, for tests of decoding."""

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.config import Vocab

VOCAB = Vocab.shared(9)
EOS = VOCAB.eos

Probabilities = dict[tuple[int, ...], dict[int, float]]
"""The probabilities of next tokens after each prefix."""


@dataclass
class Prefixes:
    """The state of a table: the tokens of each row so far."""

    rows: list[tuple[int, ...]]

    def select(self, rows: Tensor, rows_per_source: int = 1) -> "Prefixes":
        assert rows.shape[0] % rows_per_source == 0
        return Prefixes([self.rows[row] for row in rows.tolist()])

    def reset(self, sources: Tensor) -> "Prefixes":
        return self

    def replace(self, sources: Tensor, other: "Prefixes") -> "Prefixes":
        rows, width = list(self.rows), len(other.rows) // sources.shape[0]
        for number, source in enumerate(sources.tolist()):
            theirs = other.rows[number * width : (number + 1) * width]
            rows[source * width : (source + 1) * width] = theirs
        return Prefixes(rows)


class Table:
    """A model given by the probabilities of next tokens after a prefix.

    Rows start with the number of their table, as -1 - number.
    """

    def __init__(self, size: int, tables: list[Probabilities]) -> None:
        self.size, self.tables = size, tables
        self.steps = 0

    def start(self, *numbers: int) -> Prefixes:
        return Prefixes([(-1 - n,) for n in numbers or range(len(self.tables))])

    def step(self, ids: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        self.steps += 1
        rows = [(*row, token) for row, token in zip(state.rows, ids.tolist(), strict=True)]
        logits = torch.full((len(rows), self.size), -math.inf, dtype=torch.float64)
        for number, row in enumerate(rows):
            table = self.tables[-1 - row[0]]
            for token, probability in table.get(row[2:], {EOS: 1.0}).items():
                # Any constant may be added to logits.
                logits[number, token] = math.log(probability) + 3.0
        return logits, Prefixes(rows)


def starts(limits: Tensor) -> Tensor:
    return torch.full_like(limits, VOCAB.start)


def random_table(limit: int, generator: torch.Generator) -> Probabilities:
    """Make up the probabilities of three words and the end after each of their sequences."""
    table = {}
    for length in range(limit + 1):
        for ids in itertools.product(range(4, 7), repeat=length):
            logits = 4 * torch.rand(4, generator=generator, dtype=torch.float64)
            table[ids] = dict(zip((EOS, 4, 5, 6), logits.softmax(0).tolist(), strict=True))
    return table
