"""Trees for NLTK, which the tests do without: a list with a label is all that NLTK's tree is."""

import sys
from types import SimpleNamespace

import pytest

from headwise.data.trees import read_tree
from headwise.errors import HeadwiseError
from headwise.tasks.parsing.nltk_trees import to_nltk


class NltkTree(list[object]):
    def __init__(self, label: str, children: list[object]) -> None:
        super().__init__(children)
        self.label = label


def test_a_tree_becomes_nltks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk", SimpleNamespace(Tree=NltkTree))
    tree = to_nltk(read_tree("(NP (NN dog) (NP (-LRB- -LRB-)))"))
    assert tree.label == "NP"
    assert tree[0].label == "NN"
    assert tree == [["dog"], [["-LRB-"]]]


def test_without_nltk_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk", None)
    with pytest.raises(HeadwiseError, match="pip install nltk"):
        to_nltk(read_tree("(NN dog)"))
