"""Trees as text and as SVG."""

import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given

from headwise.data.trees import MAX_DEPTH, Tree, read_tree
from headwise.tasks.parsing.drawing import pretty, svg
from tests.trees import TREES, chain

TREE = read_tree("(S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .))")
TEXT = "{http://www.w3.org/2000/svg}text"


def texts(picture: str) -> list[tuple[float, float, str]]:
    """The texts of an SVG document and where they stand, from left to right."""
    elements = ET.fromstring(picture).iter(TEXT)
    return sorted((float(e.get("x", "")), float(e.get("y", "")), e.text or "") for e in elements)


def test_a_tree_on_the_terminal() -> None:
    assert pretty(TREE).split("\n") == [
        "S",
        "├─ NP",
        "│  ├─ DT the",
        "│  └─ NN dog",
        "├─ VP",
        "│  └─ VBZ barks",
        "└─ . .",
    ]
    assert pretty(Tree("VB", word="See")) == "VB See"


def test_control_characters_are_shown_as_escapes() -> None:
    tree = Tree("X\x1b", (Tree("NN\r", word="a\x1b[2Jb\u202e"),))
    assert pretty(tree) == "X\\x1b\n└─ NN\\r a\\x1b[2Jb\\u202e"
    assert [text for _, _, text in texts(svg(tree))] == ["X\\x1b", "NN\\r", "a\\x1b[2Jb\\u202e"]


def test_words_stand_along_the_bottom_and_labels_above_them() -> None:
    found = texts(svg(TREE))
    bottom = max(y for _, y, _ in found)
    assert [text for _, y, text in found if y == bottom] == ["the", "dog", "barks", "."]
    place = {text: (x, y) for x, y, text in found}
    assert place["S"][1] < place["NP"][1] == place["VP"][1] < place["DT"][1] == place["NN"][1]
    assert place["DT"][0] == place["the"][0] < place["NP"][0] < place["NN"][0] == place["dog"][0]


@given(TREES)
def test_any_tree_can_be_drawn(tree: Tree) -> None:
    nodes = pretty(tree).count("\n") + 1
    found = texts(svg(tree))
    assert len(found) == nodes + len(tree.words())
    assert nodes == sum(1 for _ in nodes_of(tree))
    root = ET.fromstring(svg(tree))
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    assert all(0 < x < width and 0 < y < height for x, y, _ in found)
    bottom = max(y for _, y, _ in found)
    middles = [x for x, y, _ in found if y == bottom]
    assert all(first < second for first, second in pairwise(middles))


def nodes_of(tree: Tree) -> list[Tree]:
    return [tree, *(node for child in tree.children for node in nodes_of(child))]


def test_a_label_wider_than_its_words_keeps_clear_of_its_neighbours() -> None:
    wide = "W" * 30
    tree = read_tree(f"(S ({wide} (NN i) (NN {'a' * 20})) ({wide} ({wide} (NN i))) (NN i))")
    found = [(x, y) for x, y, text in texts(svg(tree)) if text == wide]
    for x, y in found:
        assert all(abs(x - other) > 30 * 12 for other, row in found if row == y and other != x)
    assert min(x for x, _ in found) > 15 * 12


def test_a_long_word_is_shortened_and_whole_in_its_tooltip() -> None:
    word = "<&>" + "a" * 300
    root = ET.fromstring(svg(Tree("NN", word=word)))
    assert [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")] == [word]
    assert float(root.get("width", "")) < 500


@pytest.mark.parametrize("word", ["</text><script>", '" onload="x', "&amp;", "]]>"])
def test_texts_are_escaped(word: str) -> None:
    root = ET.fromstring(svg(Tree("S", (Tree("NN", word=word),))))
    assert {e.tag.rpartition("}")[2] for e in root.iter()} == {"svg", "path", "text"}
    assert root.get("onload") is None
    assert root.get("aria-label") == word


def test_the_deepest_tree_can_be_drawn() -> None:
    assert pretty(chain(MAX_DEPTH)).count("\n") == MAX_DEPTH - 1
    assert len(texts(svg(chain(MAX_DEPTH)))) == MAX_DEPTH + 1
