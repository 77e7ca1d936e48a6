"""Which symbols may come next so that every output is a tree over exactly the words."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.config import Vocab
from headwise.tasks.parsing.grammar import Bounds, Kind, Symbols


@dataclass(frozen=True)
class PartialTrees:
    """The trees that rows have begun."""

    unread: Tensor  # [R]
    """Words that have no leaf yet."""
    depth: Tensor  # [R]
    """Open brackets."""
    opens: Tensor  # [R]
    """Brackets opened since the last leaf or close: if any, the innermost one is empty."""
    brackets_left: Tensor  # [R]
    """Brackets that can still be opened within the limit."""
    labels: Tensor  # [R, depth bound + 1]
    """The labels of the open brackets, outermost first; then anything."""

    def select(self, rows: Tensor) -> "PartialTrees":
        """Return the trees of the given rows, in that order."""
        return PartialTrees(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def replace(self, rows: Tensor, other: "PartialTrees") -> "PartialTrees":
        """Return the trees with others in the place of some rows."""
        return PartialTrees(
            *(
                getattr(self, name).index_copy(0, rows, getattr(other, name))
                for name in self.__dataclass_fields__
            )
        )


class TreeConstraint:
    """Follow the trees of many rows at once, and say which symbols may come next in each.

    - A bracket opens only over an unread word, and within the bounds and the limit.
    - It closes with its own label, once it has something in it; the outermost one only when all
      words are read.
    - A leaf takes the next word. It is inside a bracket, unless it is the only word.
    - The end comes when the outermost bracket has closed, or after the leaf of an only word.

    So a row that takes what is allowed never gets stuck. It can read its next word whenever there
    is one, and then close its brackets: a tree has a leaf for each word and two symbols for each
    bracket, so that bounding the number of brackets keeps it within the limit.
    """

    def __init__(self, symbols: Symbols, bounds: Bounds, device: torch.device) -> None:
        self._bounds = bounds
        kinds = torch.tensor(symbols.kinds, device=device)  # [V]
        self._is_open, self._is_close, self._is_leaf = (
            (kinds == kind).long() for kind in (Kind.OPEN, Kind.CLOSE, Kind.LEAF)
        )
        self._labels = torch.tensor(symbols.labels, device=device)  # [V]
        self._close_ids = torch.zeros_like(self._labels)  # By label.
        is_close = kinds == Kind.CLOSE
        self._close_ids[self._labels[is_close]] = is_close.nonzero().flatten()
        # All combinations of opens, leaves and the end; which close is allowed depends on labels.
        groups = torch.stack((kinds == Kind.OPEN, kinds == Kind.LEAF, torch.zeros_like(is_close)))
        groups[2, Vocab.eos] = True
        numbers = torch.arange(8, device=device)[:, None]
        has_group = (numbers >> torch.arange(3, device=device)) % 2 == 1  # [8, 3]
        self._combinations = (has_group[:, :, None] & groups).any(1)  # [8, V]

    def start(self, words: Tensor, limits: Tensor) -> PartialTrees:
        """Begin a tree over each number of words [B], of at most `limits` symbols [B].

        A limit is at least the `least_limit` of its words.
        """
        brackets = (limits - words) // 2
        assert bool((brackets >= (words > 1).long()).all()), "a limit is too small for its words"
        zeros = torch.zeros_like(words)
        return PartialTrees(
            unread=words,
            depth=zeros,
            opens=zeros,
            brackets_left=brackets,
            labels=zeros[:, None].expand(-1, self._bounds.depth + 1),
        )

    def read(self, ids: Tensor, trees: PartialTrees) -> PartialTrees:
        """Return the trees after one more symbol of each [R].

        Rows of no use to the search read symbols that are not allowed: hence the clamps.
        """
        opened, depth = self._is_open[ids], trees.depth
        return PartialTrees(
            unread=(trees.unread - self._is_leaf[ids]).clamp(min=0),
            depth=(depth + opened - self._is_close[ids]).clamp(0, self._bounds.depth),
            opens=(trees.opens + 1) * opened,
            brackets_left=trees.brackets_left - opened,
            # If nothing opened, this place is not in use.
            labels=trees.labels.scatter(1, depth[:, None], self._labels[ids][:, None]),
        )

    def allowed(self, trees: PartialTrees) -> Tensor:
        """Return which symbols may come next [R, V]."""
        is_inside, has_words = trees.depth > 0, trees.unread > 0
        may_open = (
            has_words
            & (trees.depth < self._bounds.depth)
            & (trees.opens < self._bounds.opens)
            & (trees.brackets_left > 0)
        )
        # Outside of any bracket nothing was read yet, or everything: an unread word is the first.
        may_read = has_words & (is_inside | (trees.unread == 1))
        may_end = ~is_inside & ~has_words
        may_close = is_inside & (trees.opens == 0) & ((trees.depth > 1) | ~has_words)
        allowed = self._combinations[may_open + 2 * may_read.long() + 4 * may_end.long()]
        innermost = trees.labels.gather(1, (trees.depth - 1).clamp(min=0)[:, None])
        return allowed.scatter_(1, self._close_ids[innermost], may_close[:, None])
