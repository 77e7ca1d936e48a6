"""Penn-style trees: what is read, written, cleaned and refused."""

import gzip
import lzma
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given

from headwise.data.text import LineReport
from headwise.data.trees import (
    MAX_DEPTH,
    MAX_WORDS,
    Constituent,
    Tree,
    clean,
    constituents,
    read_tree,
    read_trees,
    write_tree,
)
from headwise.errors import DataError
from tests.trees import TREES, chain

WSJ = """
( (S
    (NP-SBJ-1 (NNP Mr.) (NNP Vinken) )
    (VP (VBZ is)
      (NP-PRD (NN chairman) ))
    (. .) ))
( (S (NP-SBJ (-NONE- *) ) (VP (VB See)) ))
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def make(content: str | bytes) -> Path:
        path = tmp_path / "a.mrg"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


Write = Callable[[str | bytes], Path]


def lenient(path: Path) -> tuple[list[str], LineReport]:
    """Read what is well-formed, and check that nothing goes missing uncounted."""
    report = LineReport()
    trees = [write_tree(found.tree) for found in read_trees(path, lenient=True, report=report)]
    assert report.kept == len(trees)
    assert report.pairs == report.kept + report.dropped.total()
    return trees, report


def leaf(tag: str, word: str) -> Tree:
    return Tree(tag, word=word)


def test_a_tree_is_read() -> None:
    tree = read_tree("(S (NP (PRP I)) (VP (VBP agree)))")
    assert tree == Tree("S", (Tree("NP", (leaf("PRP", "I"),)), Tree("VP", (leaf("VBP", "agree"),))))
    assert tree.words() == ["I", "agree"]


def test_trees_over_several_lines_with_an_outer_bracket(write: Write) -> None:
    found = list(read_trees(write(WSJ)))
    assert [f.line for f in found] == [2, 7]
    assert write_tree(found[0].tree) == (
        "(S (NP-SBJ-1 (NNP Mr.) (NNP Vinken)) (VP (VBZ is) (NP-PRD (NN chairman))) (. .))"
    )
    assert write_tree(found[1].tree) == "(S (NP-SBJ (-NONE- *)) (VP (VB See)))"


@pytest.mark.parametrize(
    "layout",
    [
        "(S (NN a))\n(VB b)\n",
        "(S (NN a))(VB b)",
        "(\n(S\n(NN\na)))\n(VB\nb\n)",
        "\ufeff((S(NN a)))\r\n\r\n\t( ( VB b ) )\r\n",
        "( (S (NN a)) )\n\n\n  (VB b)",
    ],
)
def test_brackets_alone_decide_where_trees_begin(write: Write, layout: str) -> None:
    expected = ["(S (NN a))", "(VB b)"]
    assert [write_tree(found.tree) for found in read_trees(write(layout))] == expected
    assert lenient(write(layout))[0] == expected


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstd.compress)],
)
def test_compressed_files_read_as_plain_ones(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"trees{suffix}"
    path.write_bytes(pack(WSJ.encode()))
    assert len(list(read_trees(path))) == 2


def test_round_brackets_alone_are_escaped() -> None:
    text = "(NP (-LRB- -LRB-) (NN Spouse-LRB-s-RRB-) (SYM -LCB-) (CD 1\\/2) (-RRB- -RRB-))"
    tree = read_tree(text)
    assert tree.words() == ["(", "Spouse(s)", "-LCB-", "1\\/2", ")"]
    assert tree.children[0].label == "-LRB-"
    assert write_tree(tree) == text


@given(TREES)
def test_what_is_written_is_read_back(tree: Tree) -> None:
    assert read_tree(write_tree(tree)) == tree
    assert read_tree(f"( {write_tree(tree)})") == tree


def test_no_break_spaces_and_line_separators_are_part_of_words(write: Write) -> None:
    tree = Tree("S", (leaf("CD", "10\u00a0000"), leaf("SYM", "\u2028"), leaf("SYM", "\x85")))
    assert [found.tree for found in read_trees(write(write_tree(tree)))] == [tree]


@pytest.mark.parametrize("word", ["", "a b", "a\tb", "a\n"])
def test_a_word_with_white_space_is_not_written(word: str) -> None:
    with pytest.raises(DataError, match="is no word of a tree"):
        write_tree(leaf("NN", word))


@pytest.mark.parametrize("label", ["", "N P", "(NP", "NP)", "\n"])
def test_a_label_with_brackets_or_white_space_is_not_written(label: str) -> None:
    with pytest.raises(DataError, match="is no label"):
        write_tree(Tree(label, (leaf("NN", "a"),)))


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("(S (NN a)))", "1:11", r"expected '\(', found '\)'"),
        ("(S (NN a))\nword (NN a)", "2:1", r"expected '\(', found 'word'"),
        ("(S (NN a b))", "1:10", r"expected '\)', found 'b'"),
        ("(S (NN a) b)", "1:11", r"expected '\(' or '\)', found 'b'"),
        ("(S\n  (NN a (NN b)))", "2:9", r"expected '\)' to close the bracket of line 2, column 3"),
        ("(S ((NN b)))", "1:5", r"expected a label, found '\('"),
        ("(S ())", "1:5", r"expected a label, found '\)'"),
        ("()", "1:2", r"expected a label, found '\)'"),
        ("( ())", "1:4", r"expected a label, found '\)'"),
        ("(S (NP))", "1:7", r"expected a word or '\(', found '\)'"),
        ("( (S (NN a)) (S (NN b)))", "1:14", "a bracket without a label has one tree"),
        ("(S (NN a))\n\n (S\n (NN a)", "3:2", r"has no end: expected '\)'"),
        ("(S\n(NN a))\n (S (NN b)", "3:2", r"has no end: expected '\)'$"),
        ("(S (NN a)\n(S (NN b))\n(S (NN c))", "1:1", r"expected '\)' before line 2, where another"),
        ("( (S (NN a))\n( (S (NN b)))", "2:1", r"line 1, column 1, but a tree begins here"),
        ("(NN a\x00)", "1:6", "a NUL character"),
        ("(NN a \x1b[2J)", "1:7", r"expected '\)', found '\\x1b\[2J'"),
    ],
)
def test_the_place_of_a_fault_is_named(write: Write, text: str, place: str, reason: str) -> None:
    path = write(text)
    with pytest.raises(DataError, match=f"{path}:{place}: .*{reason}"):
        list(read_trees(path))


def test_text_that_is_not_utf8_is_refused(write: Write) -> None:
    path = write(b"(NN a)\n(NN \xff)")
    with pytest.raises(DataError, match=f"{path}:2: not UTF-8 text at byte 5 .* --lenient"):
        list(read_trees(path))
    assert lenient(path)[0] == ["(NN a)"]


@pytest.mark.parametrize("text", ["", " \n", "(NN a) (NN b)"])
def test_read_tree_wants_one_tree(text: str) -> None:
    with pytest.raises(DataError, match="expected one tree, but there are [02]"):
        read_tree(text)


@pytest.mark.parametrize(
    ("text", "kept", "dropped"),
    [
        ("(NN a)\n(NN b\n(NN c)\n", "ac", 1),
        ("(NN a)\n(S (NN b)\n(NN c)\n(NN d)", "acd", 1),
        ("(S (NN a)\n(S (NN b)\n(NN c)\n(NN d)", "cd", 2),
        ("(S (NN a)\n(NN b)\n(S (NN c c))\n(NN d)", "bd", 2),
        ("(NN a))\n(NN b)", "ab", 1),
        ("(NN a)))) word word\n  (NN b)", "ab", 1),
        ("(S (NP) (NN a)) (NN b)", "b", 1),
        ("(S (NN a a) (NP (NN a)))\n  (NN b)", "b", 1),
        ("(NN a)\n(S () (NN b)\n  (NN c))\n(NN d)\n", "ad", 1),
        ("( (S (NN a))\n( (S (NN b)))\n", "b", 1),
        ("( (S (NN a)\n( (S (NN b)))\n( (S (NN c)))\n", "bc", 1),
        ("(NN \0)\n(NN b)", "b", 1),
        ("(S ()\n(NN \0)\n(NN b)", "b", 2),
        ("(S\n  (NN a)\n  (NN \0)\n  (NN b))\n(NN c)", "c", 1),
        ("(S\n  (NN \0)\n  (NN \0)\n  (NN b)) (NN c)", "c", 1),
        ("(S (NN a)\n(NN b)\n(NN \0)\n(NN c)", "bc", 1),
        ("(S" * MAX_DEPTH * 2 + "\n(NN b)", "b", 1),
        ("(S (NN a)\n" + "(NN b)\n" * (MAX_WORDS - 1) + "(NN c)\n(NN d)", "b" * 9999 + "d", 2),
        ("no trees", "", 1),
        ("(NN", "", 1),
        ("", "", 0),
    ],
)
def test_lenient_reading_leaves_out_malformed_trees_and_counts_them(
    write: Write, text: str, kept: str, dropped: int
) -> None:
    trees, report = lenient(write(text))
    assert "".join(read_tree(tree).words()[0] for tree in trees) == kept
    assert report.dropped.total() == dropped


def test_lenient_reading_tells_the_places(write: Write) -> None:
    path = write("(NN a)\n  (S (NN b b))\n(S")
    _, report = lenient(path)
    assert report.lines("trees") == [
        f"left out 2 of 3 trees: not readable ({path}:2:12, {path}:3:1)"
    ]


@pytest.mark.parametrize("bracket", ["(", "(S ", "(S\n", "((S", ")"])
def test_a_million_brackets_are_an_error_that_names_the_place(write: Write, bracket: str) -> None:
    path = write(bracket * (1_000_000 // len(bracket)))
    with pytest.raises(DataError, match=rf"{path}:\d+:\d+: .*(expected|within one another)"):
        list(read_trees(path))
    assert lenient(path)[0] == []


def test_the_depth_is_limited() -> None:
    deepest = chain(MAX_DEPTH)
    text = write_tree(deepest)
    assert read_tree(text) == read_tree(f"({text})") == deepest
    for deeper in (f"(S {text})", f"((S {text}))"):
        with pytest.raises(DataError, match="more than 200 brackets within one another"):
            read_tree(deeper)


def test_the_deepest_tree_can_be_used() -> None:
    tree = chain(MAX_DEPTH)
    assert pickle.loads(pickle.dumps(tree)) == tree
    assert hash(tree) == hash(chain(MAX_DEPTH))
    assert repr(tree).count("NP") == MAX_DEPTH - 1
    assert clean(tree) == tree


def test_the_number_of_words_is_limited(write: Write) -> None:
    longest = f"(S{' (NN a)' * MAX_WORDS})"
    assert len(read_tree(longest).words()) == MAX_WORDS
    path = write(f"(S\n{longest}\n(NN a))")
    with pytest.raises(DataError, match=f"{path}:1:1: .* over 10,000 words: .* before line 2"):
        list(read_trees(path))


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("(S (NP-SBJ-1 (NN a)) (NP=2 (NN b)))", "(S (NP (NN a)) (NP (NN b)))"),
        ("(S-TPC-1=3 (ADVP|PRT (RB a)))", "(S (ADVP|PRT (RB a)))"),
        ("(S (NP-SBJ (-NONE- *-1)) (VP (VB See)))", "(S (VP (VB See)))"),
        ("(S (SBAR (-NONE- 0) (S (-NONE- *T*-1))) (VB See))", "(S (VB See))"),
        ("(-LRB- -LRB-)", "(-LRB- -LRB-)"),
        ("(NP (-LRB- -LRB-) (NN-X a-b=c) (PRP$ my))", "(NP (-LRB- -LRB-) (NN-X a-b=c) (PRP$ my))"),
        ("(-X-Y (NN a))", "(-X (NN a))"),
        ("(S (S (S (NN a))))", "(S (S (S (NN a))))"),
        ("(TOP (S (NN a)))", "(S (NN a))"),
        ("(ROOT (TOP (-NONE- *) (VB See)))", "(VB See)"),
        ("(S1 (S (NN a)) (. .))", "(S1 (S (NN a)) (. .))"),
        ("(S (TOP (NN a)))", "(S (TOP (NN a)))"),
        ("(TOP See)", "(TOP See)"),
    ],
)
def test_cleaning(raw: str, cleaned: str) -> None:
    tree = clean(read_tree(raw))
    assert tree is not None
    assert write_tree(tree) == cleaned
    assert clean(tree) == tree


@pytest.mark.parametrize("raw", ["(-NONE- *)", "(TOP (S (NP (-NONE- *)) (VP (-NONE- *))))"])
def test_nothing_is_left_of_traces(raw: str) -> None:
    assert clean(read_tree(raw)) is None


def test_constituents_are_spans_of_words() -> None:
    tree = read_tree("(S (NP (DT the) (NN dog)) (VP (VP (VBZ barks))) (. .))")
    assert list(constituents(tree)) == [
        Constituent("S", 0, 4, 0),
        Constituent("NP", 0, 2, 1),
        Constituent("VP", 2, 3, 1),
        Constituent("VP", 2, 3, 2),
    ]
    assert list(constituents(Tree("VB", word="See"))) == []


@given(TREES)
def test_a_constituent_spans_what_its_parts_do(tree: Tree) -> None:
    found = list(constituents(tree))
    assert len(found) == write_tree(tree).count("(") - len(tree.words())
    assert all(0 <= part.start < part.end <= len(tree.words()) for part in found)
