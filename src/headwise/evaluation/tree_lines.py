"""Lines of bracketed trees, read like EVALB: a line is a sentence, whatever it holds.

Unlike `read_trees`, which reads treebanks, this removes nothing: an outer bracket without a label
stays, and a line may hold several trees, none, or a fault.
"""

from dataclasses import dataclass
from itertools import islice

from headwise.data.trees import MAX_DEPTH, PIECE, Tree, unescape


@dataclass(frozen=True, slots=True)
class TreeLine:
    """The trees of one line: one, none, or several if a parser found no root."""

    trees: tuple[Tree, ...]
    fault: str = ""
    """What is wrong with the brackets, if anything; `trees` then has the words before the fault."""


def read_tree_line(text: str) -> TreeLine:
    """Read the trees of a line; wrong brackets are the line's fault and raise nothing."""
    pieces = PIECE.findall(text)
    end = len(pieces)
    pieces += [""] * 3  # So that what follows a bracket can be looked up.
    trees: list[Tree] = []
    leaves: list[Tree] = []
    stack: list[tuple[int, str, list[Tree]]] = []  # Of each open bracket: what stands before it.
    place = 0
    fault = ""
    while place < end and not fault:
        piece = pieces[place]
        if piece == "(":
            label, word, after = pieces[place + 1 : place + 4]
            if after == ")" and label not in "()" and word not in "()":
                leaf = Tree(label, (), unescape(word))
                leaves.append(leaf)
                trees.append(leaf)
                place += 4
            elif len(stack) == MAX_DEPTH:
                fault = f"more than {MAX_DEPTH} brackets within one another"
            else:
                label = "" if label in "()" else label
                stack.append((place, label, trees))
                trees = []
                place += 2 if label else 1
        elif piece == ")" and stack:
            _, label, outside = stack.pop()
            outside.append(Tree(label, tuple(trees)))
            trees = outside
            place += 1
        elif stack and place == stack[-1][0] + 2 and piece != ")":
            fault = f"expected ')' after the word {piece[:30]!r}"
        else:
            expected = "'(' or ')'" if stack else "'('"
            fault = f"expected {expected}, found {piece[:30]!r}"
    if stack and not fault:
        place = stack[-1][0]
        fault = "the bracket that begins here is not closed"
    if not fault:
        return TreeLine(tuple(trees))
    column = next(islice(PIECE.finditer(text), place, None)).start() + 1
    return TreeLine(tuple(leaves), f"column {column:,}: {fault}")
