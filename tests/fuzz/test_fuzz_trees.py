"""Files of constituency trees, and the text and symbols that become trees."""

import gzip
from pathlib import Path

import pytest
from hypothesis import strategies as st

from headwise.data.text import LineReport
from headwise.data.trees import MAX_DEPTH, Tree, clean, read_tree, read_trees, write_tree
from headwise.tasks.parsing.drawing import pretty, svg
from headwise.tasks.parsing.linearise import linearise, read_symbols
from headwise.tasks.parsing.repair import repair
from headwise.tasks.parsing.words import split_words
from tests.fuzz.conftest import Fuzz
from tests.fuzz.contract import result_or_refusal
from tests.fuzz.mutations import mutated

LINES = b"""\xef\xbb\xbf(S (NP (PRP I)) (VP (VBP agree)) (. .))\r
(S (NP-SBJ-1 (-NONE- *)) (VP (VB See) (PRN (-LRB- -LRB-) (FW \xc3\xa9t\xc3\xa9) (-RRB- -RRB-))))
(VB See)
"""
WSJ = b"""
( (S
    (NP-SBJ (DT The) (NN dog) )
    (VP (VBZ barks) )
    (. .) ))
( (S (NP-SBJ (-NONE- *)) (VP (VB See) ) ))
"""
DEEP = b"(S " * MAX_DEPTH + b"(NN a)" + b")" * MAX_DEPTH


def use_tree(tree: Tree) -> None:
    """Do with a tree what training and parsing do."""
    assert read_tree(write_tree(tree)) == tree
    cleaned = clean(tree)
    if cleaned is not None:
        assert read_symbols(linearise(cleaned, "tags"), cleaned.words()) == cleaned
        pretty(cleaned)
        svg(cleaned)


@pytest.mark.parametrize("suffix", [".mrg", ".gz"])
def test_tree_files(fuzz: Fuzz, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"trees{suffix}"

    def read(content: bytes) -> None:
        path.write_bytes(content if suffix == ".mrg" else gzip.compress(content, mtime=0))
        trees = result_or_refusal(lambda: list(read_trees(path)))
        report = LineReport()
        found = result_or_refusal(lambda: list(read_trees(path, lenient=True, report=report)))
        assert found is not None
        assert report.kept == len(found)
        assert report.pairs == report.kept + report.dropped.total()
        assert trees is None or trees == found
        for number, tree in enumerate(found):
            assert number == 0 or found[number - 1].line <= tree.line
            use_tree(tree.tree)

    fuzz(mutated(LINES) | mutated(WSJ) | mutated(DEEP) | mutated(LINES + WSJ), read)


def test_symbols(fuzz: Fuzz) -> None:
    symbols = st.sampled_from(["(S", "(NP", ")S", ")NP", "NN", "VB", "(", ")", ""]) | st.text()
    sentences = st.lists(st.text(), min_size=1, max_size=20)

    def read(given: tuple[list[str], list[str]]) -> None:
        tree, _ = repair(*given)
        assert tree.words() == given[1]
        assert read_symbols(linearise(tree, "tags"), given[1]) == tree

    fuzz(st.tuples(st.lists(symbols), sentences), read)


def test_text(fuzz: Fuzz) -> None:
    text = (
        "“Dr. O'Neil,” he said, \"isn't at www.x.org (or a@b.c)... it's $1,000—10% off!\" U.S.'s 🙂"
    )

    def split(content: bytes) -> None:
        for word in split_words(content.decode("utf-8", "replace")):
            assert read_tree(write_tree(Tree("NN", word=word.replace("\0", "0"))))

    fuzz(mutated(text.encode()), split)
