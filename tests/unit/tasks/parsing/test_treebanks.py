"""Every tree of real treebanks, in the folder that HEADWISE_DATA names."""

from pathlib import Path

import pytest

from headwise.data.trees import clean, read_tree, write_tree
from headwise.tasks.parsing.linearise import linearise, read_symbols
from headwise.tasks.parsing.words import split_words
from tests.trees import TREEBANKS, treebank, untagged

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", TREEBANKS)
def test_every_tree_is_read_back_from_its_symbols_and_from_its_text(
    name: str, tmp_path: Path
) -> None:
    count = 0
    for raw in treebank(name, tmp_path):
        count += 1
        assert read_tree(write_tree(raw)) == raw
        tree = clean(raw)
        assert tree is not None
        assert clean(tree) == tree
        assert "-NONE-" not in linearise(tree, "tags")
        words = tree.words()
        assert read_symbols(linearise(tree, "tags"), words) == tree
        assert read_symbols(linearise(tree, "placeholder"), words) == untagged(tree)
    assert count == TREEBANKS[name]


@pytest.mark.parametrize("name", ["craft.train.gold", "craft.dev.gold", "wsj"])
def test_the_words_of_a_treebank_stay_as_they_are(name: str, tmp_path: Path) -> None:
    sentences = [tree.words() for raw in treebank(name, tmp_path) if (tree := clean(raw))]
    same = sum(split_words(" ".join(words)) == words for words in sentences)
    assert same / len(sentences) > 0.995
