"""Linearised trees by other means than the parser's: written recursively, and read with a stack."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwise.tasks.parsing.grammar import FIRST_ID, Bounds, Symbols

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Grammar:
    """Labels and leaves, and how far brackets may nest."""

    labels: tuple[str, ...]
    leaves: tuple[str, ...]
    bounds: Bounds

    @property
    def names(self) -> list[str]:
        """The symbols; opens and closes are not in the same order."""
        closes = [f"){label}" for label in reversed(self.labels)]
        return [*closes, *self.leaves, *(f"({label}" for label in self.labels)]

    @property
    def symbols(self) -> Symbols:
        return Symbols.of(self.names)

    def id(self, name: str) -> int:
        return FIRST_ID + self.names.index(name)

    def trees(self, words: int, limit: int) -> Iterator[Ids]:
        """Yield every tree over some words with at most `limit` symbols."""
        if words == 1 and limit >= 1:
            yield from self._leaves()
        yield from self._brackets(words, 1, 1, limit)

    def _leaves(self) -> Iterator[Ids]:
        yield from ((self.id(leaf),) for leaf in self.leaves)

    def _brackets(self, words: int, depth: int, opens: int, limit: int) -> Iterator[Ids]:
        """Yield every bracket over some words, at a depth and as the n-th to open in a row."""
        if depth > self.bounds.depth or opens > self.bounds.opens:
            return
        for label in self.labels:
            for inside in self._contents(words, depth, opens, limit - 2):
                yield (self.id(f"({label}"), *inside, self.id(f"){label}"))

    def _contents(self, words: int, depth: int, opens: int, limit: int) -> Iterator[Ids]:
        """Yield everything that a bracket at a depth can have in it."""
        if limit < words:
            return
        for count in range(1, words + 1):
            firsts = list(self._brackets(count, depth + 1, opens + 1, limit - (words - count)))
            if count == 1:
                firsts += self._leaves()
            for first in firsts:
                if count == words:
                    yield first
                    continue
                for rest in self._contents(words - count, depth, 0, limit - len(first)):
                    yield first + rest


def leaves_of_tree(names: Sequence[str]) -> int | None:
    """Return how many leaves a tree of such symbols has; None if it is none."""
    stack: list[str] = []
    is_empty: list[bool] = []
    leaves = roots = 0
    for name in names:
        if name.startswith(")"):
            if not stack or stack.pop() != name[1:] or is_empty.pop():
                return None
        elif not stack and roots:
            return None
        else:
            roots += not stack
            if is_empty:
                is_empty[-1] = False
            if name.startswith("("):
                stack.append(name[1:])
                is_empty.append(True)
            else:
                leaves += 1
    return leaves if roots == 1 and not stack else None
