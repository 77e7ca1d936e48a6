"""Bracket scores of single sentences."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.data.trees import Tree
from headwise.evaluation import (
    COLLINS,
    BracketParameters,
    SentenceScore,
    read_tree_line,
    score_sentence,
)
from tests.evalb import CASES, case_figures
from tests.trees import TREES

QUOTES = BracketParameters(
    deleted=frozenset(["``", "''"]), quote_labels=frozenset(["``", "''", "NN", "POS"])
)


def score(gold: str, test: str, parameters: BracketParameters = COLLINS) -> SentenceScore:
    return score_sentence(read_tree_line(gold).trees, read_tree_line(test).trees, parameters)


@pytest.mark.parametrize("case", CASES)
def test_the_figures_of_evalb(case: str) -> None:
    gold, test, figures = CASES[case]
    assert case_figures(score(gold, test)) == figures


@pytest.mark.parametrize(
    ("gold", "test", "reason"),
    [
        ("(S (NN a))", "", "no words in test"),
        ("(S (NN a))", "(S (NN a) (NN b))", "the number of words differs: 1 in gold, 2 in test"),
        ("(S (NN a) (X b))", "(S (NN a) (NN c))", "word 2 differs: 'b' in gold, 'c' in test"),
    ],
)
def test_why_a_sentence_is_not_scored(gold: str, test: str, reason: str) -> None:
    row = score(gold, test)
    assert row.reason == reason
    assert (row.recall, row.precision, row.tagging_accuracy) == (0, 0, 0)


def test_percentages() -> None:
    row = score("(S (NP (NN a)) (VP (VB b)))", "(S (NP (NN a)) (NN b))")
    assert (row.recall, row.precision, row.tagging_accuracy) == (200 / 3, 100, 50)


def test_without_labels() -> None:
    gold, test = "(S (X (NN a)) (Y (NN b)))", "(Z (X (X (NN a))) (NN b))"
    assert score(gold, test).matched == 1
    assert score(gold, test, replace(COLLINS, labelled=False)).matched == 2


def test_equal_labels_are_pairs_and_the_outer_bracket_is_matched_first() -> None:
    pairs = BracketParameters(equal_labels=frozenset([("A", "B"), ("B", "C")]))
    assert score("(A (NN a))", "(B (NN a))", pairs).matched == 1
    assert score("(A (NN a))", "(C (NN a))", pairs).matched == 0
    # As in EVALB, the outer B takes the first that equals it: C, or the A that the inner A needs.
    assert score("(B (A (NN a)))", "(C (B (NN a)))", pairs).matched == 2
    assert score("(B (A (NN a)))", "(A (C (NN a)))", pairs).matched == 1


def test_a_label_equal_to_a_deleted_one_is_deleted_but_not_a_tag() -> None:
    pairs = BracketParameters(
        deleted=frozenset(["TOP"]), equal_labels=frozenset([("TOP", "ROOT"), ("X", "TOP")])
    )
    row = score("(ROOT (X (S (TOP a) (ROOT b))))", "(S (ROOT b))", pairs)
    assert (row.gold, row.test, row.words, row.length) == (1, 1, 1, 2)


def test_equal_words() -> None:
    pairs = BracketParameters(equal_words=frozenset([("a", "b")]))
    assert score("(NN b)", "(NN a)", pairs).status == "ok"
    assert score("(NN b)", "(NN c)", pairs).status == "error"


@pytest.mark.parametrize(
    ("gold", "test", "figures"),
    [
        # Length, status, matched, gold, test, crossing, words, correct tags: as EVALB prints.
        ("(S (X (`` ') (NN a)))", "(S (NN ') (X (NN a)))", (2, 0, 1, 2, 2, 0, 2, 1)),
        ("(S (NN ') (X (NN a)))", "(S (X (`` ') (NN a)))", (2, 0, 1, 2, 2, 0, 2, 1)),
        ("(S (`` ') (X (NN a)) (POS '))", "(S (`` ') (X (NN a)) ('' '))", (3, 0, 2, 2, 2, 0, 2, 1)),
        ("(S (`` a) (X (NN b)))", "(S (NN a) (X (NN b)))", (2, 1, 0, 0, 0, 0, 0, 0)),
        # The first quote is put back twice, and the second not at all.
        (
            "(S (X (`` ')) (Y ('' ')) (Z (NN a)))",
            "(S (X (NN ')) (Y (NN ')) (Z (NN a)))",
            (3, 0, 2, 3, 4, 0, 3, 1),
        ),
    ],
)
def test_a_quote_that_only_one_side_deletes_is_put_back(
    gold: str, test: str, figures: tuple[int, ...]
) -> None:
    assert case_figures(score(gold, test, QUOTES)) == figures


def is_kept(leaf: Tree) -> bool:
    return leaf.label not in COLLINS.deleted


@given(TREES)
def test_a_tree_against_itself_is_all_right(tree: Tree) -> None:
    row = score_sentence([tree], [tree])
    if not any(map(is_kept, tree.leaves())):
        assert row.status == "skip"
        return
    assert row.status == "ok"
    assert row.is_complete
    assert row.crossing == 0
    assert row.correct_tags == row.words == sum(map(is_kept, tree.leaves()))
    assert row.recall == row.precision == (100 if row.gold else 0)


@st.composite
def bracketings(draw: st.DrawFn) -> tuple[list[Tree], list[Tree]]:
    """Two ways to put brackets over the same tagged words."""
    tags = draw(st.lists(st.sampled_from(["NN", "VB", ",", "-NONE-"]), min_size=1, max_size=8))
    leaves = [Tree(tag, word=f"w{number}") for number, tag in enumerate(tags)]

    def bracketed() -> list[Tree]:
        parts = list(leaves)
        for _ in range(draw(st.integers(0, 10))):
            start = draw(st.integers(0, len(parts) - 1))
            end = draw(st.integers(start + 1, len(parts)))
            label = draw(st.sampled_from(["S", "NP", "NP-SBJ", "ADVP", "PRT", "TOP"]))
            parts[start:end] = [Tree(label, tuple(parts[start:end]))]
        return parts

    return bracketed(), bracketed()


def spans(trees: list[Tree]) -> list[tuple[str, frozenset[str]]]:
    """Return each bracket's label and words, by another way than the code under test."""
    found = []
    for tree in trees:
        if tree.word is None:
            words = frozenset(leaf.word for leaf in tree.leaves() if leaf.word and is_kept(leaf))
            label = {"NP-SBJ": "NP", "PRT": "ADVP"}.get(tree.label, tree.label)
            if words and label != "TOP":
                found.append((label, words))
            found += spans(list(tree.children))
    return found


@given(bracketings())
def test_matching_and_crossing_by_their_definitions(pair: tuple[list[Tree], list[Tree]]) -> None:
    row = score_sentence(*pair)
    gold, test = map(spans, pair)
    if row.status == "skip":
        assert not any(is_kept(leaf) for tree in pair[1] for leaf in tree.leaves())
        return
    assert (row.gold, row.test) == (len(gold), len(test))
    assert row.matched == sum((Counter(gold) & Counter(test)).values())
    assert row.crossing == sum(
        any(one & other and one - other and other - one for _, one in gold) for _, other in test
    )


@given(bracketings())
def test_recall_of_one_side_is_precision_of_the_other(pair: tuple[list[Tree], list[Tree]]) -> None:
    one, other = score_sentence(*pair), score_sentence(pair[1], pair[0])
    assert (one.matched, one.recall, one.precision) == (
        other.matched,
        other.precision,
        other.recall,
    )
    assert (one.crossing == 0) == (other.crossing == 0)
    assert one.correct_tags == other.correct_tags
