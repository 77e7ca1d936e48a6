"""The tree constraint: what it allows is every tree over exactly the words, and nothing else."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.config import Vocab
from headwise.errors import DataError
from headwise.tasks.parsing.constraint import PartialTrees, TreeConstraint
from headwise.tasks.parsing.grammar import FIRST_ID, Bounds, Kind, Symbols, check, least_limit
from tests.linear_trees import Grammar, Ids, leaves_of_tree

CPU = torch.device("cpu")


def grammar(labels: int, leaves: int, depth: int, opens: int) -> Grammar:
    return Grammar(
        ("NP", "VP", "S", "PP")[:labels],
        ("XX", "NN", "VB")[:leaves],
        Bounds(depth=depth, opens=opens),
    )


def everything_allowed(rules: Grammar, words: int, limit: int) -> set[Ids]:
    """Follow all that is allowed, in all rows at once, to the end of every output."""
    constraint = TreeConstraint(rules.symbols, rules.bounds, CPU)
    trees = constraint.start(torch.tensor([words]), torch.tensor([limit]))
    prefixes: list[Ids] = [(Vocab.bos,)]
    found: set[Ids] = set()
    while prefixes:
        trees = constraint.read(torch.tensor([ids[-1] for ids in prefixes]), trees)
        allowed = constraint.allowed(trees)
        assert allowed.shape == (len(prefixes), len(rules.symbols))
        assert allowed.any(1).all(), "no row gets stuck"
        ended = allowed[:, Vocab.eos].tolist()
        found |= {ids[1:] for ids, is_ended in zip(prefixes, ended, strict=True) if is_ended}
        assert not allowed[ended, FIRST_ID:].any(), "nothing follows a whole tree"
        assert not allowed[:, [Vocab.pad, Vocab.unk, Vocab.bos]].any()
        rows, ids = allowed[:, FIRST_ID:].nonzero().unbind(1)
        prefixes = [
            (*prefixes[row], FIRST_ID + place)
            for row, place in zip(rows.tolist(), ids.tolist(), strict=True)
        ]
        trees = trees.select(rows)
    return found


@pytest.mark.parametrize(
    ("labels", "leaves", "depth", "opens"),
    [(2, 1, 3, 2), (1, 1, 4, 4), (2, 2, 2, 2), (3, 1, 3, 1), (1, 1, 1, 1), (2, 1, 2, 3)],
)
@pytest.mark.parametrize("words", [1, 2, 3, 4])
def test_exactly_the_trees_within_the_bounds_are_allowed(
    labels: int, leaves: int, depth: int, opens: int, words: int
) -> None:
    rules = grammar(labels, leaves, depth, opens)
    for limit in range(least_limit(words), words + 8):
        expected = set(rules.trees(words, limit))
        assert everything_allowed(rules, words, limit) == expected
        assert expected
    assert not set(rules.trees(words, least_limit(words) - 1)), "no tree is smaller"


@pytest.mark.parametrize("words", [1, 2, 3])
def test_a_limit_that_is_too_small_is_caught(words: int) -> None:
    rules = grammar(1, 1, 2, 2)
    constraint = TreeConstraint(rules.symbols, rules.bounds, CPU)
    with pytest.raises(AssertionError, match="a limit is too small for its words"):
        constraint.start(torch.tensor([5, words]), torch.tensor([9, least_limit(words) - 1]))


def test_no_words_have_no_tree() -> None:
    assert everything_allowed(grammar(1, 1, 2, 2), 0, 9) == {()}


@given(
    labels=st.integers(1, 4),
    leaves=st.integers(1, 3),
    depth=st.integers(1, 6),
    opens=st.integers(1, 4),
    sentences=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 40)), min_size=1, max_size=9),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_whatever_is_chosen_becomes_a_tree_over_the_words(
    labels: int,
    leaves: int,
    depth: int,
    opens: int,
    sentences: list[tuple[int, int]],
    seed: int,
) -> None:
    rules, generator = grammar(labels, leaves, depth, opens), random.Random(seed)
    words = [count for count, _ in sentences]
    limits = [least_limit(count) + more for count, more in sentences]
    constraint = TreeConstraint(rules.symbols, rules.bounds, CPU)
    trees = constraint.start(torch.tensor(words), torch.tensor(limits))
    outputs: list[list[int]] = [[] for _ in words]
    ids = [Vocab.bos] * len(words)
    for _ in range(max(limits) + 1):
        trees = constraint.read(torch.tensor(ids), trees)
        for row, mask in enumerate(constraint.allowed(trees).tolist()):
            if ids[row] == Vocab.eos:  # Its rows read on, as those of a finished sentence do.
                continue
            allowed = [token for token, is_allowed in enumerate(mask) if is_allowed]
            ids[row] = generator.choice(allowed)
            outputs[row].append(ids[row])
    for output, count, limit in zip(outputs, words, limits, strict=True):
        assert output.pop() == Vocab.eos
        assert len(output) <= limit
        assert leaves_of_tree([rules.names[token - FIRST_ID] for token in output]) == count


def test_rows_that_read_what_is_not_allowed_disturb_no_other() -> None:
    rules, generator = grammar(2, 1, 2, 2), random.Random(1)
    constraint = TreeConstraint(rules.symbols, rules.bounds, CPU)
    size = len(rules.symbols)
    alone = constraint.start(torch.tensor([3]), torch.tensor([9]))
    trees = constraint.start(torch.tensor([2, 3, 1]), torch.tensor([9, 9, 9]))
    for name in ("(NP", "XX", "(VP", "XX", ")VP", "XX", ")NP"):
        before, after = generator.randrange(size), generator.randrange(size)
        trees = constraint.read(torch.tensor([before, rules.id(name), after]), trees)
        alone = constraint.read(torch.tensor([rules.id(name)]), alone)
        assert torch.equal(constraint.allowed(trees)[1], constraint.allowed(alone)[0])


@pytest.mark.parametrize("name", ["(NP", ")VP", "XX"])
def test_a_row_can_read_the_same_symbol_for_ever(name: str) -> None:
    """As the rows of a finished sentence do until another takes their place."""
    rules = grammar(2, 1, 2, 2)
    constraint = TreeConstraint(rules.symbols, rules.bounds, CPU)
    trees = constraint.start(torch.tensor([2]), torch.tensor([9]))
    for _ in range(9):
        trees = constraint.read(torch.tensor([rules.id(name)]), trees)
        assert constraint.allowed(trees).shape == (1, len(rules.symbols))
        assert 0 <= int(trees.unread) <= 2, "what the source position is looked up by"


def test_rows_are_selected_and_replaced_as_wholes() -> None:
    rules = grammar(3, 1, 3, 3)
    constraint = TreeConstraint(rules.symbols, rules.bounds, CPU)

    def begun(*texts: str) -> PartialTrees:
        """Read the same number of symbols in each row."""
        count = len(texts)
        trees = constraint.start(torch.tensor([4] * count), torch.tensor([20] * count))
        for names in zip(*map(str.split, texts), strict=True):
            trees = constraint.read(torch.tensor([rules.id(name) for name in names]), trees)
        return trees

    def closes(trees: PartialTrees) -> list[list[str]]:
        allowed = constraint.allowed(trees)[:, FIRST_ID:].tolist()
        return [
            [name for name, is_allowed in zip(rules.names, row, strict=True) if is_allowed][:1]
            for row in allowed
        ]

    texts = ("(NP (VP XX", "(NP (S XX", "(VP (NP XX")
    trees = begun(*texts)
    assert closes(trees) == [[")VP"], [")S"], [")NP"]]
    assert closes(trees.select(torch.tensor([2, 0, 0]))) == [[")NP"], [")VP"], [")VP"]]
    replaced = trees.replace(torch.tensor([2, 0]), begun("(NP (S XX", "(S (NP XX"))
    assert closes(replaced) == [[")NP"], [")S"], [")S"]]


def test_symbols_are_told_apart_by_their_brackets() -> None:
    symbols = Symbols.of(["(NP", "NN", ")VP", "XX", "(VP", ")NP"])
    special = [Kind.SPECIAL] * 4
    kinds = [Kind.OPEN, Kind.LEAF, Kind.CLOSE, Kind.LEAF, Kind.OPEN, Kind.CLOSE]
    assert list(symbols.kinds) == special + kinds
    assert list(symbols.labels[4:]) == [0, 0, 1, 0, 1, 0]
    assert len(symbols) == 10
    check(symbols)


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["NN", "VB"], "no tree has a bracket around its words, so that only single words"),
        (["(NP", ")NP"], "no symbol for a word"),
        ([], "no symbol for a word"),
        (["(NP", ")NP", "(VP", "NN"], r"has '\(VP' without '\)VP'"),
        (["(NP", ")NP", ")VP", "NN"], r"has '\)VP' without '\(VP'"),
        (["(NP", ")NP", "NN", "NN"], "the symbol 'NN' is in the vocabulary of trees twice"),
    ],
)
def test_a_vocabulary_without_trees_for_all_sentences_is_named(
    names: list[str], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        check(Symbols.of(names))


@pytest.mark.parametrize(
    ("depth", "opens", "complaint"),
    [(0, 1, "depth = 0"), (3, -1, "opens = -1"), (1001, 1, "depth = 1001 .* from 1 to 1,000")],
)
def test_bounds_are_checked(depth: int, opens: int, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        Bounds(depth=depth, opens=opens)
