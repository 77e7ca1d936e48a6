"""Repair: a tree over exactly the words from any symbols."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.data.trees import MAX_DEPTH, Tree, write_tree
from headwise.errors import DataError
from headwise.tasks.parsing.linearise import linearise, read_symbols
from headwise.tasks.parsing.repair import repair
from tests.trees import TREES, WORDS, chain

SYMBOLS = st.sampled_from(
    ["(S", "(NP", "(VP", ")S", ")NP", ")VP", "NN", "VB", "XX", "(", ")", "", "<unk>"]
) | st.text(max_size=5)


@given(TREES)
def test_a_tree_needs_no_repair(tree: Tree) -> None:
    assert repair(linearise(tree, "tags"), tree.words()) == (tree, False)


@pytest.mark.parametrize(
    ("symbols", "words", "tree"),
    [
        ("(S (NP NN VB", "a b", "(S (NP (NN a) (VB b)))"),
        ("(S (NP NN )S", "a", "(S (NP (NN a)))"),
        ("(S (NP NN )VP VB )NP )S", "a b", "(S (NP (NN a) (VB b)))"),
        ("(S (NP (NP NN )NP NN", "a b", "(S (NP (NP (NN a)) (NN b)))"),
        ("(S (NP )NP (VP VB )VP )S", "a", "(S (VP (VB a)))"),
        ("(S NN VB NN )S", "a", "(S (NN a))"),
        ("(S VB )S", "a b c", "(S (VB a) (NN b) (NN c))"),
        ("(NP NN )NP (VP VB )VP", "a b", "(S (NP (NN a)) (VP (VB b)))"),
        ("NN VB", "a b", "(S (NN a) (VB b))"),
        ("VB", "a b", "(S (VB a) (NN b))"),
        ("", "a", "(NN a)"),
        ("", "a b", "(S (NN a) (NN b))"),
        (")S )S (NP (S )NP", "a", "(NN a)"),
        ("(S ( VB )S", "a", "(S (VB a))"),
        ("(S V(B )S", "a", "(S (NN a))"),
    ],
)
def test_as_much_as_possible_is_kept(symbols: str, words: str, tree: str) -> None:
    repaired, needed = repair(symbols.split(), words.split())
    assert write_tree(repaired) == tree
    assert needed


def test_the_tag_and_the_root_can_be_chosen() -> None:
    tree, _ = repair(["VB"], ["a", "b"], tag="FW", root="FRAG")
    assert write_tree(tree) == "(FRAG (VB a) (FW b))"


def test_a_sentence_without_words_is_refused() -> None:
    with pytest.raises(DataError, match="without words"):
        repair(["NN"], [])


@given(st.lists(SYMBOLS), st.lists(WORDS, min_size=1))
def test_any_symbols_give_a_tree_over_the_words(symbols: list[str], words: list[str]) -> None:
    tree, needed = repair(symbols, words)
    assert tree.words() == words
    again = linearise(tree, "tags")
    assert read_symbols(again, words) == tree
    assert needed == (again != symbols)


@pytest.mark.parametrize(
    "symbols",
    [
        ["(NP"] * 100_000 + ["NN"] + [")NP"] * 100_000,
        ["(NP"] * 100_000 + [")S"] * 100_000,
        ["NN", *linearise(chain(MAX_DEPTH), "tags")],
        [*linearise(chain(MAX_DEPTH), "tags")[:-1], "NN", "NN"],
        ["(S"] * MAX_DEPTH + ["NN", ")S", "NN", *[")S"] * MAX_DEPTH],
    ],
)
def test_the_depth_is_limited(symbols: list[str]) -> None:
    words = ["a", "b"]
    tree, needed = repair(symbols, words)
    assert needed
    assert tree.words() == words
    assert read_symbols(linearise(tree, "tags"), words) == tree


def test_the_deepest_tree_needs_no_repair() -> None:
    tree = chain(MAX_DEPTH)
    assert repair(linearise(tree, "tags"), ["deep"]) == (tree, False)
