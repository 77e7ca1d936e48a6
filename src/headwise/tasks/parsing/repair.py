"""A tree over exactly the words that were given, from whatever symbols a decoder wrote."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headwise.data.trees import MAX_DEPTH, Tree, is_label
from headwise.errors import DataError
from headwise.tasks.parsing.linearise import read_symbols


def repair(
    symbols: Sequence[str], words: Sequence[str], *, tag: str = "NN", root: str = "S"
) -> tuple[Tree, bool]:
    """Return a tree over the words, and whether the symbols had to be repaired for it.

    A close bracket ends the nearest open one with its label, and those within that; without one it
    is dropped. Dropped are also empty brackets, leaves beyond the last word, and brackets beyond
    `MAX_DEPTH` (their children stay). Words without a leaf get `tag` and are attached to the root.
    Several roots are joined under `root`.
    """
    if not words:
        raise DataError("a sentence without words has no tree")
    try:
        return read_symbols(symbols, words), False
    except DataError:
        return _repaired(symbols, words, tag, root), True


def _repaired(symbols: Sequence[str], words: Sequence[str], tag: str, root: str) -> Tree:
    build = _Build()
    remaining = iter(words)
    for symbol in symbols:
        if symbol.startswith("("):
            if is_label(symbol[1:]):
                build.open(symbol[1:])
        elif symbol.startswith(")"):
            build.close(symbol[1:])
        elif (word := next(remaining, None)) is not None:
            build.add(Tree(symbol if is_label(symbol) else tag, word=word))
    roots = build.finish()
    missing = [Tree(tag, word=word) for word in remaining]
    if len(roots) == 1 and roots[0].children:
        return Tree(roots[0].label, (*roots[0].children, *missing))
    roots += missing
    return roots[0] if len(roots) == 1 else Tree(root, tuple(roots))


@dataclass(slots=True)
class _Open:
    label: str
    children: list[Tree]


_MOST_OPEN = MAX_DEPTH - 2
"""A word's tag, and a root that joins several, need a level each."""


class _Build:
    """Trees in the making: what is open, and how often each label is among it."""

    def __init__(self) -> None:
        self._stack = [_Open("", [])]
        self._labels: Counter[str] = Counter()

    def open(self, label: str) -> None:
        # Beyond the limit a bracket only waits for its close: its children are its parent's.
        is_too_deep = len(self._stack) > _MOST_OPEN
        self._stack.append(_Open(label, self._stack[-1].children if is_too_deep else []))
        self._labels[label] += 1

    def add(self, tree: Tree) -> None:
        self._stack[-1].children.append(tree)

    def close(self, label: str) -> None:
        """End the nearest open bracket with a label; do nothing if there is none."""
        if self._labels[label]:  # Without this count, each close could search the whole stack.
            while self._close_last() != label:
                pass

    def finish(self) -> list[Tree]:
        """End all open brackets and return the roots."""
        while len(self._stack) > 1:
            self._close_last()
        return self._stack[0].children

    def _close_last(self) -> str:
        last = self._stack.pop()
        self._labels[last.label] -= 1
        if last.children and len(self._stack) <= _MOST_OPEN:
            self._stack[-1].children.append(Tree(last.label, tuple(last.children)))
        return last.label
