"""POST /v1/parse: trees, drawings and attention, and what is refused."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from headwise.data.trees import MAX_DEPTH, read_tree
from headwise.model import Trace
from headwise.tasks.parsing.attention import word_attention
from headwise.tasks.parsing.parser import Parser
from headwise.tasks.parsing.serving import ParsedSentence, _node
from headwise.workflows.serve import load_served
from tests.servers import Running, running
from tests.trees import chain

SENTENCE = "the old dog near the tree sees the cat ."


@pytest.fixture(scope="module")
def server(trained_parser: Path) -> Iterator[Running]:
    with running(load_served([trained_parser])) as server:
        yield server


def parse(server: Running, q: object, **fields: object) -> list[dict[str, Any]]:
    status, answer, _ = server.ask("POST", "/v1/parse", {"q": q, **fields})
    assert status == 200, answer
    parses: list[dict[str, Any]] = answer["parses"]
    return parses


def spans(node: dict[str, Any]) -> tuple[int, int]:
    """The span of a node as its children and words have it."""
    if node["word"] is not None:
        assert node["children"] == []
        return node["start"], node["start"] + 1
    parts = [spans(child) for child in node["children"]]
    assert all(left[1] == right[0] for left, right in pairwise(parts))
    return parts[0][0], parts[-1][1]


def test_trees_are_those_of_the_parser(server: Running, trained_parser: Path) -> None:
    texts = [SENTENCE, "", "(a) dog's 🙂"]
    expected = Parser.load(trained_parser).parse(texts, beam=2)
    found = parse(server, texts, beam=2)
    assert [each["text"] for each in found] == [each.brackets for each in expected]
    assert [each["words"] for each in found] == [list(each.words) for each in expected]
    assert found[0]["log_prob"] == pytest.approx(expected[0].log_prob, abs=1e-4)
    assert [each["svg"] for each in found] == [None] * 3
    assert found[1]["tree"] is None
    for each in (found[0], found[2]):
        assert spans(each["tree"]) == (0, len(each["words"]))
        assert (each["tree"]["start"], each["tree"]["end"]) == (0, len(each["words"]))
    (one,) = parse(server, "it 's (", tokenized=True)
    assert one["words"] == ["it", "'s", "("]


def test_a_drawing_and_a_row_of_attention_for_each_label(server: Running) -> None:
    (found,) = parse(server, SENTENCE, svg=True, attention=True)
    drawing = ElementTree.fromstring(found["svg"])
    tree = read_tree(found["text"])
    labels = {
        each.get("data-query"): each.text for each in drawing.iter() if each.get("data-query")
    }
    words = {each.get("data-key"): each.text for each in drawing.iter() if each.get("data-key")}
    opens = found["text"].replace("(", " ( ").split()
    in_order = [opens[place + 1] for place, piece in enumerate(opens) if piece == "("]
    assert [labels[str(number)] for number in range(len(labels))] == in_order
    assert [words[str(number)] for number in range(len(words))] == tree.words()
    assert [len(row) for row in found["attention"]] == [len(tree.words())] * len(in_order)


def test_attention_is_the_mean_of_the_last_layers_heads(trained_parser: Path) -> None:
    parser = Parser.load(trained_parser)
    (found,) = parser.parse("the oldest dogs sees the cat .")
    rows = word_attention(parser, found)
    traced = parser.trace("the oldest dogs sees the cat .", found.brackets, most_tokens=64)
    assert isinstance(traced.trace, Trace)
    weights = traced.trace.decoder.cross_attention[-1][0].mean(0)
    ends = parser.tokenizer.encode_words(found.words).ends
    assert ends[-1] > len(found.words)  # A word has several subwords.
    writes = [n for n, name in enumerate(traced.target_tokens) if not name.startswith(")")]
    expected = [
        [float(weights[n, last + 1 : end + 1].sum()) for last, end in pairwise([-1, *ends[:-1]])]
        for n in writes
    ]
    torch.testing.assert_close(torch.tensor(rows), torch.tensor(expected))


def test_the_deepest_tree_is_sent() -> None:
    deep = ParsedSentence(
        text="",
        words=[],
        tree=_node(chain(MAX_DEPTH), 0),
        log_prob=0,
        is_repaired=False,
        attention=None,
        num_parts=1,
    )
    assert deep.model_dump_json().count('"NP"') == MAX_DEPTH - 1


@pytest.mark.parametrize(
    ("fields", "status", "error"),
    [
        ({"q": "a " * 513}, 400, "the 513 words are more than the 512"),
        ({"q": ["a " * 150, "b " * 50], "beam": 21}, 400, "more than the 195"),
        ({"q": "a " * 201, "svg": True}, 400, "more than the 200"),
        ({"q": "a", "beam": 0}, 400, "beam"),
        ({"q": "a", "beam": 65}, 400, "beam"),
        ({"q": 3}, 400, "q"),
        ({"q": "a", "colour": "red"}, 400, "colour"),
        ({"q": "a\0"}, 400, "NUL"),
        ({"q": "a", "model": "other"}, 404, "no model of that name"),
    ],
)
def test_what_is_refused(
    server: Running, fields: dict[str, object], status: int, error: str
) -> None:
    found, answer, _ = server.ask("POST", "/v1/parse", fields)
    assert (found, error in answer["error"]) == (status, True), answer
