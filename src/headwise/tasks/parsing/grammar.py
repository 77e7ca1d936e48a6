"""What the symbols of linearised trees do, and which trees a parser may build.

A tree such as (S (NP (PRP I)) (VP (VBP agree))) is written as the symbols (S (NP PRP )NP (VP VBP
)VP )S: one that opens a bracket, one that closes it, and a leaf for each word. A word alone is a
tree too: a single leaf.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from headwise.config import Vocab
from headwise.errors import DataError

FIRST_ID = max(Vocab.pad, Vocab.unk, Vocab.bos, Vocab.eos) + 1
"""The id of the first symbol."""

_LARGEST_BOUND = 1000
"""Deeper than any real tree; a larger bound would only take memory."""


class Kind(IntEnum):
    """What an id does to a tree."""

    SPECIAL = 0
    """Nothing: pad, unk, bos or eos."""
    OPEN = 1
    CLOSE = 2
    LEAF = 3


@dataclass(frozen=True)
class Symbols:
    """The target vocabulary of a parser."""

    names: tuple[str, ...]
    """The symbols of the ids from FIRST_ID on."""
    kinds: tuple[Kind, ...]
    """What each id does, special ids included."""
    labels: tuple[int, ...]
    """The number of each id's label if it opens or closes a bracket, else 0."""

    @classmethod
    def of(cls, names: Sequence[str]) -> "Symbols":
        """Take "(NP" as what opens a bracket, ")NP" as what closes it, all others as leaves."""
        numbers: dict[str, int] = {}
        kinds, labels = [Kind.SPECIAL] * FIRST_ID, [0] * FIRST_ID
        for name in names:
            kind = {"(": Kind.OPEN, ")": Kind.CLOSE}.get(name[:1], Kind.LEAF)
            kinds.append(kind)
            is_leaf = kind is Kind.LEAF
            labels.append(0 if is_leaf else numbers.setdefault(name[1:], len(numbers)))
        return cls(tuple(names), tuple(kinds), tuple(labels))

    def __len__(self) -> int:
        """Return how many ids there are, special ones included."""
        return len(self.kinds)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How far brackets may nest."""

    depth: int
    """Most brackets that are open at once."""
    opens: int
    """Most brackets that open in a row, without a leaf between them: it bounds unary chains."""

    def __post_init__(self) -> None:
        for name, value in (("depth", self.depth), ("opens", self.opens)):
            if not 1 <= value <= _LARGEST_BOUND:
                raise DataError(
                    f"the bound {name} = {value} of trees must be from 1 to {_LARGEST_BOUND:,}"
                )


def check(symbols: Symbols) -> None:
    """Raise DataError unless any number of words can be given a tree."""
    if len(set(symbols.names)) < len(symbols.names):
        twice = next(name for name in symbols.names if symbols.names.count(name) > 1)
        raise DataError(f"the symbol {twice!r} is in the vocabulary of trees twice")
    if Kind.LEAF not in symbols.kinds:
        raise DataError("the vocabulary of trees has no symbol for a word: are the trees empty?")
    if Kind.OPEN not in symbols.kinds:
        raise DataError(
            "no tree has a bracket around its words, so that only single words could be parsed: "
            "train with trees of whole sentences"
        )
    for opening, closing in (("(", ")"), (")", "(")):
        for name in symbols.names:
            if name.startswith(opening) and closing + name[1:] not in symbols.names:
                raise DataError(
                    f"the vocabulary of trees has {name!r} without {closing + name[1:]!r}"
                )


def least_limit(words: int) -> int:
    """Return how many symbols the smallest tree over some words has.

    It is a leaf for each word and, unless there is only one, a bracket around them.
    """
    return words if words < 2 else words + 2
