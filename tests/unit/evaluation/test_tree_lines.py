"""Lines of trees, good and bad."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.data.trees import MAX_DEPTH, Tree, write_tree
from headwise.evaluation import TreeLine, read_tree_line, score_trees
from tests.trees import TREES, chain


@given(st.lists(TREES, max_size=3))
def test_what_is_written_is_read(trees: list[Tree]) -> None:
    assert read_tree_line(" ".join(map(write_tree, trees))) == TreeLine(tuple(trees))


def test_nothing_is_removed() -> None:
    line = "\t( (S-A (NP)(NN  a\u00a0b )(-NONE- *)))\r"
    leaves = Tree("NN", word="a\u00a0b"), Tree("-NONE-", word="*")
    tree = Tree("", (Tree("S-A", (Tree("NP"), *leaves)),))
    assert read_tree_line(line) == TreeLine((tree,))


@pytest.mark.parametrize(
    ("line", "words", "fault"),
    [
        ("(S (NN a)", ["a"], "column 1: the bracket that begins here is not closed"),
        ("(S (NP (NN a) (", ["a"], "column 15: the bracket that begins here is not closed"),
        ("(NN a))", ["a"], "column 7: expected '(', found ')'"),
        ("a b", [], "column 1: expected '(', found 'a'"),
        ("(S (NN a) b)", ["a"], "column 11: expected '(' or ')', found 'b'"),
        ("(NN a b)", [], "column 5: expected ')' after the word 'a'"),
        ("(NN a", [], "column 5: expected ')' after the word 'a'"),
        ("(NN a(NN b))", [], "column 5: expected ')' after the word 'a'"),
        (")" * 99, [], "column 1: expected '(', found ')'"),
        ("(NN a) \x1b" + "x" * 99, ["a"], rf"column 8: expected '(', found '\x1b{'x' * 29}'"),
    ],
)
def test_faults(line: str, words: list[str], fault: str) -> None:
    found = read_tree_line(line)
    assert ([tree.word for tree in found.trees], found.fault) == (words, fault)


def test_the_deepest_tree_is_scored() -> None:
    deepest = read_tree_line(write_tree(chain(MAX_DEPTH + 1)))
    assert score_trees([(deepest, deepest)]).overall.f1 == 100


def test_a_million_brackets_within_one_another_are_a_fault() -> None:
    found = read_tree_line("(S " * 1_000_000)
    assert found.fault == "column 601: more than 200 brackets within one another"
