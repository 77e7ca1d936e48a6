"""Constituency trees for tests: generated ones, and those of the treebanks in HEADWISE_DATA."""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st

from headwise.data.trees import Tree, read_trees, unescape

LABELS = st.sampled_from(["S", "NP", "VP", "ADVP|PRT", "WHNP", "X"])
TAGS = st.sampled_from(["NN", "VB", "PRP$", "-LRB-", "-RRB-", ",", ".", "``", "''", "#", "XX"])

_NO_WORD = " \t\n\v\f\r\0"
WORDS = (
    st.sampled_from(["(", ")", "(a)", ":-)", "-LRB", "RRB-", "\\/", "🙂", "\u00a0", "[", "dog"])
    | st.text(st.characters(exclude_characters=_NO_WORD, exclude_categories=["Cs"]), min_size=1)
).map(unescape)
"""Words that a tree file can hold: what is written as -LRB- is read as a bracket."""

TREES: st.SearchStrategy[Tree] = st.recursive(
    st.builds(lambda tag, word: Tree(tag, word=word), TAGS, WORDS),
    lambda parts: st.builds(Tree, LABELS, st.lists(parts, min_size=1, max_size=4).map(tuple)),
    max_leaves=12,
)


def untagged(tree: Tree) -> Tree:
    """Give every word the placeholder for a tag."""
    if tree.word is not None:
        return Tree("XX", word=tree.word)
    return Tree(tree.label, tuple(map(untagged, tree.children)))


def chain(depth: int, word: str = "deep") -> Tree:
    """A tree of brackets within one another."""
    tree = Tree("NN", word=word)
    for _ in range(depth - 1):
        tree = Tree("NP", (tree,))
    return tree


TREEBANKS = {
    "craft.train.gold": 25090,
    "craft.dev.gold": 2612,
    "gum.train.silver": 10224,
    "gum.dev.silver": 1575,
    "wsj": 3914,
}
"""How many trees the treebanks have."""


def treebank(name: str, folder: Path) -> Iterator[Tree]:
    """Yield the trees of a treebank as they are; `folder` is for temporary files."""
    data = os.environ.get("HEADWISE_DATA")
    if not data:
        pytest.skip("HEADWISE_DATA names no folder with treebank/")
    paths = [Path(data) / "treebank" / f"{name}.txt.gz"]
    if name == "wsj":
        with zipfile.ZipFile(Path(data) / "treebank" / "nltk_wsj_sample.zip") as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(".mrg"))
            paths = [Path(archive.extract(name, folder)) for name in names]
    for path in paths:
        for found in read_trees(path):
            yield found.tree
