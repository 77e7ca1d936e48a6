"""Heads like those of Figures 3 to 5: by made-up weights, and of a trained run."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from headwise import Translator
from headwise.errors import RequestError
from headwise.workflows.reproduce.figures import figures_page, find_figures, write_figures
from headwise.workflows.reproduce.heads import (
    FAR,
    PRONOUNS,
    Sentence,
    names_in,
    rank_heads,
    references,
    words_of,
)
from tests.conftest import Headwise

TOKENS = (" The", " dog", " of", " Ma", "ry", " said", " that", " she", " saw", " it", ".")


FAR_CASES = 9
"""Tokens that have a word at least `FAR` away: all but the fifth and the sixth."""


def pointing(size: int, places: dict[int, int]) -> Tensor:
    """Return weights [S, S] of a head that points from some tokens to others, else to the end."""
    weights = torch.zeros(size + 1, size + 1)
    for query in range(size + 1):
        weights[query, places.get(query, size)] = 1.0
    return weights


def sentence(*heads: Tensor) -> Sentence:
    return Sentence(text="".join(TOKENS).strip(), tokens=TOKENS, weights=(torch.stack(heads),))


def test_words_are_put_together_from_tokens() -> None:
    assert words_of(TOKENS)[3] == ("Mary", 3, 5)
    assert [word for word, _, _ in words_of(TOKENS)][-1] == "it."


def test_names_are_capitalised_inside_sentences_and_nowhere_small() -> None:
    sentences = (
        (" Mary", " said", " I", " know", " Rome", "."),
        (" The", " dog", " of", " Ma", "ry", "'s"),
        (" A", " Rose", " is", " a", " rose"),
    )
    assert names_in(sentences) == {"Mary", "Rome"}


def test_pronouns_refer_to_names_before_them() -> None:
    pronouns, names = PRONOUNS["en"], frozenset({"Mary"})
    assert references(TOKENS, pronouns, names) == [(7, [3, 4]), (9, [3, 4])]
    assert references((" He", " saw", " Mary"), pronouns, names) == [], "no name comes before"
    assert references((" Mary", " saw", " it"), pronouns, names) == [(2, [0])]
    assert references((" Rome", " saw", " it"), pronouns, names) == [], "no name"


def test_the_head_that_does_it_comes_first() -> None:
    size = len(TOKENS)
    far = pointing(size, {0: 8, 1: 9, 9: 0})
    refers = pointing(size, {7: 3, 9: 4})
    before = pointing(size, {n: n - 1 for n in range(1, size)})
    sentences = [sentence(far, refers, before)]
    (first, *_) = rank_heads("long distance", sentences)
    assert (first.head, first.cases) == (0, FAR_CASES)
    assert first.value == pytest.approx(3 / FAR_CASES)
    (first, *_) = rank_heads("reference", sentences, PRONOUNS["en"])
    assert (first.head, first.cases) == (1, 2)
    assert first.value == pytest.approx(1.0)
    (first, *others) = rank_heads("structure", sentences)
    assert (first.head, first.offset) == (2, -1)
    assert first.value == pytest.approx((size - 1) / size)
    assert {head.head for head in others} == {0, 1}, "each head once"
    assert FAR > 3


def test_heads_that_look_everywhere_or_at_themselves_do_none_of_it() -> None:
    size = len(TOKENS)
    everywhere = torch.full((size + 1, size + 1), 1 / (size + 1))
    everywhere[:, 0] += 0.01
    itself = pointing(size, {n: n for n in range(size)})
    once = pointing(size, {0: 8})
    (first, *others) = rank_heads("long distance", [sentence(everywhere, itself, once)])
    assert first.head == 2
    assert {head.head: head.value > 0 for head in others} == {0: True, 1: False}
    values = {each.head: each.value for each in rank_heads("structure", [sentence(itself, once)])}
    assert values[0] == 0.0


def test_the_best_sentence_is_named() -> None:
    size = len(TOKENS)
    far, end = pointing(size, {0: 8}), pointing(size, {})
    (first,) = rank_heads("long distance", [sentence(end), sentence(far), sentence(end)])
    assert (first.best_sentence, first.cases) == (1, 3 * FAR_CASES)


def test_a_trained_run_has_figures(trained_run: Path, tmp_path: Path) -> None:
    translator = Translator.load(trained_run)
    lines = ["bana dora kuti dora bana kuti dora", "", "kuti bana"]
    found = find_figures(translator, lines, language="en")
    assert (found.sentences, found.skipped) == (2, 1)
    by_name = {each.figure: each for each in found.figures}
    assert by_name["long distance"].record is not None
    assert by_name["reference"].record is None
    assert by_name["reference"].missing == "no sentence of the text has a case of it"
    written = write_figures(found, tmp_path / "out", kinds=["svg"])
    assert [path.name for path in written] == [
        "figures.html",
        "figures.json",
        "figure3.svg",
        "figure5.svg",
    ]
    assert all(path.stat().st_size > 300 for path in written)
    page = figures_page(found)
    assert "Not found: no sentence of the text has a case of it." in page
    stored = json.loads((tmp_path / "out" / "figures.json").read_text())
    assert [each["paper"] for each in stored["figures"]] == ["Figure 3", "Figure 4", "Figure 5"]
    other = find_figures(translator, lines, language="xx")
    assert "no list of pronouns for the language 'xx'" in other.figures[1].missing
    with pytest.raises(RequestError, match="none of the 1 sentences can be traced"):
        find_figures(translator, [""], language="en")


def test_the_command_writes_them(trained_run: Path, tmp_path: Path, headwise: Headwise) -> None:
    out = tmp_path / "figures"
    code, output, errors = headwise(
        "reproduce", "figures", str(trained_run), "--sentences", "5", "--out", str(out)
    )
    assert code == 0, errors
    assert "Figure 3: long distance" in output
    assert (out / "figures.html").exists()
    (tmp_path / "text").write_text("bana dora kuti\n")
    code, output, errors = headwise(
        "reproduce",
        "figures",
        str(trained_run),
        "--text",
        str(tmp_path / "text"),
        "--out",
        str(out),
    )
    assert code == 0, errors
    code, _, errors = headwise("reproduce", "figures", str(tmp_path / "nosuch"))
    assert (code, errors.count("\n")) == (2, 1)
