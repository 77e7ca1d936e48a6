"""Trees as symbols and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.data.trees import MAX_DEPTH, Tree, read_tree
from headwise.errors import DataError
from headwise.tasks.parsing.linearise import Leaves, linearise, read_symbols
from tests.trees import TREES, chain, untagged

TREE = read_tree("(S (NP (PRP I)) (VP (VBP agree)))")


@pytest.mark.parametrize(
    ("leaves", "symbols"),
    [("tags", "(S (NP PRP )NP (VP VBP )VP )S"), ("placeholder", "(S (NP XX )NP (VP XX )VP )S")],
)
def test_brackets_and_words_become_symbols(leaves: Leaves, symbols: str) -> None:
    assert linearise(TREE, leaves) == symbols.split()


def test_a_lone_tag_is_one_symbol() -> None:
    tree = Tree("VB", word="See")
    assert linearise(tree, "tags") == ["VB"]
    assert linearise(tree, "placeholder") == ["XX"]
    assert read_symbols(["VB"], ["See"]) == tree


@given(TREES)
def test_symbols_are_read_back(tree: Tree) -> None:
    assert read_symbols(linearise(tree, "tags"), tree.words()) == tree
    assert read_symbols(linearise(tree, "placeholder"), tree.words()) == untagged(tree)


@pytest.mark.parametrize(
    ("symbols", "reason"),
    [
        ("", "end before the tree does"),
        ("(S NN NN", "end before the tree does"),
        ("(S NN )S", "have 1 leaves, but there are 2 words"),
        ("(S NN NN NN )S", "symbol 4, 'NN': there are 2 words only"),
        ("(S NN NN )NP", r"symbol 4, '\)NP': expected '\)S'"),
        (")S", r"symbol 1, '\)S': no bracket is open"),
        ("(S NN NN )S )S", r"symbol 5, '\)S': the tree ends before it"),
        ("NN NN", "symbol 2, 'NN': the tree ends before it"),
        ("(S (NP )NP NN NN )S", r"symbol 3, '\)NP': the bracket is empty"),
        ("( NN NN )", "symbol 1: '' is no label"),
        ("(S N(N NN )S", r"symbol 2: 'N\(N' is no label"),
        ("(S " * MAX_DEPTH, "symbol 200, .* deeper than 200 brackets"),
    ],
)
def test_what_is_no_tree_over_the_words_is_refused(symbols: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        read_symbols(symbols.split(), ["a", "b"])


def test_symbols_may_be_as_deep_as_trees() -> None:
    tree = chain(MAX_DEPTH)
    assert read_symbols(linearise(tree, "tags"), ["deep"]) == tree


@given(st.lists(st.sampled_from(["(S", "(NP", ")S", ")NP", "NN", "VB"])), st.integers(0, 3))
def test_symbols_that_are_read_are_the_linearisation_of_their_tree(
    symbols: list[str], num_words: int
) -> None:
    words = [f"w{number}" for number in range(num_words)]
    try:
        tree = read_symbols(symbols, words)
    except DataError:
        return
    assert linearise(tree, "tags") == symbols
    assert tree.words() == words
