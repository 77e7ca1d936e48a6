"""Trees as sequences of symbols, for a decoder to write.

(S (NP (PRP I)) (VP (VBP agree))) becomes: (S (NP PRP )NP (VP VBP )VP )S

Paper: §6.3, which follows Vinyals et al. (2015), "Grammar as a Foreign Language".
"""

from collections.abc import Sequence
from typing import Literal

from headwise.data.trees import MAX_DEPTH, Tree, is_label
from headwise.errors import DataError

PLACEHOLDER = "XX"
"""What stands for every word where tags are not written."""

Leaves = Literal["tags", "placeholder"]


def linearise(tree: Tree, leaves: Leaves) -> list[str]:
    """Return a symbol for each bracket that opens or closes, and one for each word."""
    symbols: list[str] = []
    _add_symbols(tree, leaves, symbols)
    return symbols


def _add_symbols(tree: Tree, leaves: Leaves, symbols: list[str]) -> None:
    if tree.word is not None:
        symbols.append(tree.label if leaves == "tags" else PLACEHOLDER)
        return
    symbols.append(f"({tree.label}")
    for child in tree.children:
        _add_symbols(child, leaves, symbols)
    symbols.append(f"){tree.label}")


def read_symbols(symbols: Sequence[str], words: Sequence[str]) -> Tree:
    """Return the tree of a linearisation; what is not exactly one over the words is a DataError."""
    labels: list[str] = []
    children: list[list[Tree]] = [[]]
    next_word = 0
    for number, symbol in enumerate(symbols, start=1):
        if len(children) == 1 and children[0]:
            raise DataError(f"symbol {number}, {symbol!r}: the tree ends before it")
        if symbol.startswith("("):
            if len(labels) + 1 == MAX_DEPTH:
                raise DataError(f"symbol {number}, {symbol!r}: deeper than {MAX_DEPTH} brackets")
            labels.append(_label(symbol[1:], number))
            children.append([])
        elif symbol.startswith(")"):
            if not labels or symbol[1:] != labels[-1]:
                expected = f"expected '){labels[-1]}'" if labels else "no bracket is open"
                raise DataError(f"symbol {number}, {symbol!r}: {expected}")
            parts = children.pop()
            if not parts:
                raise DataError(f"symbol {number}, {symbol!r}: the bracket is empty")
            children[-1].append(Tree(labels.pop(), tuple(parts)))
        else:
            if next_word == len(words):
                raise DataError(f"symbol {number}, {symbol!r}: there are {len(words)} words only")
            children[-1].append(Tree(_label(symbol, number), word=words[next_word]))
            next_word += 1
    if labels or not children[0]:
        raise DataError("the symbols end before the tree does")
    if next_word < len(words):
        raise DataError(f"the symbols have {next_word} leaves, but there are {len(words)} words")
    return children[0][0]


def _label(text: str, number: int) -> str:
    if not is_label(text):
        raise DataError(f"symbol {number}: {text!r} is no label")
    return text
