"""Trees for NLTK, where it is installed."""

from typing import TYPE_CHECKING

from headwise.data.trees import Tree, escape
from headwise.errors import HeadwiseError

if TYPE_CHECKING:
    import nltk


def to_nltk(tree: Tree) -> "nltk.Tree":
    """Return the tree as an `nltk.Tree`. Brackets in words are escaped, as in NLTK's corpora."""
    try:
        import nltk
    except ModuleNotFoundError as error:
        raise HeadwiseError("NLTK is not installed: pip install nltk") from error
    if tree.word is not None:
        return nltk.Tree(tree.label, [escape(tree.word)])
    return nltk.Tree(tree.label, [to_nltk(child) for child in tree.children])
