"""The page of `headwise attention` in a real browser, with text that would rather be markup."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headwise.inspect.attention import AttentionRecord, attention_record
from headwise.inspect.attention_page import render_attention
from headwise.tasks.translation.translator import Translator
from tests.browser.conftest import OpenPage
from tests.decoder_only import TextReader
from tests.watching import text_of

HOSTILE = "</script><img src=x onerror=alert(1)> <b>&amp; ${1} '\""


@pytest.fixture(scope="module")
def record(deep_run: Path) -> AttentionRecord:
    source = "ban kuti </script><img src=x onerror=alert(1)>"
    translator = Translator.load(deep_run)
    translator.longest_source = 60  # Markup is spelled letter by letter.
    return attention_record(translator, source, "<b>&amp; ban")


@pytest.fixture(scope="module")
def page_file(record: AttentionRecord, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("attention") / "page.html"
    path.write_text(render_attention(record, HOSTILE, {"kind": "encoder", "layer": 2, "head": 1}))
    return path


def test_hostile_text_stays_text(
    open_page: OpenPage, page_file: Path, record: AttentionRecord
) -> None:
    page = open_page(page_file)
    assert page.locator("img, b, main script").count() == 0
    assert HOSTILE in text_of(page.locator(".lead"))
    assert page.title() == f"Attention: {record.source}"
    pair = text_of(page.locator(".hw-pair"))
    assert record.source in pair
    assert record.target in pair
    words = page.locator(".hw-rows .hw-token").all_text_contents()
    assert [word.removeprefix("·") for word in words] == [
        token.strip() or "␣" for token in record.source_tokens
    ]


def test_encoder_and_decoder_may_have_different_numbers_of_layers(
    open_page: OpenPage, record: AttentionRecord, tmp_path: Path
) -> None:
    shallow = replace(record, decoder=record.decoder[:1], cross=record.cross[:1])
    path = tmp_path / "page.html"
    path.write_text(render_attention(shallow, "weights", {"kind": "encoder", "layer": 2}))
    page = open_page(path)
    layers = page.get_by_role("radio", name="Layer ")
    assert layers.count() == len(record.encoder) == 3
    page.get_by_role("radio", name="Decoder self-attention").check()
    assert layers.count() == 1
    assert layers.is_checked()
    page.get_by_role("radio", name="Encoder self-attention").check()
    assert layers.count() == 3
    page.get_by_role("radio", name="Layer 3").check()
    assert "layer 3" in text_of(page.locator(".hw-scroll caption"))


def test_the_page_starts_with_the_chosen_kind_layer_and_head(
    open_page: OpenPage, page_file: Path, record: AttentionRecord
) -> None:
    page = open_page(page_file, width=400)
    for name in ("Encoder self-attention", "Layer 3", "Head 2"):
        assert page.get_by_role("radio", name=name).is_checked()
    titles = page.locator(".hw-scroll tbody td").evaluate_all("cells => cells.map((c) => c.title)")
    assert [float(title) for title in titles] == [
        weight for row in record.encoder[2][1] for weight in row
    ]
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_pieces_of_a_word_are_shown_and_named_as_such(open_page: OpenPage, page_file: Path) -> None:
    record = {
        "source": "Dogs run.",
        "target": "Hunde rennen.",
        "source_tokens": [" Dog", "s", " run", ".", "‹end›"],
        "input_tokens": ["‹begin›", " Hund", "e"],
        "output_tokens": [" Hund", "e", "‹end›"],
        "encoder": [[[[0.1, 0.6, 0.1, 0.1, 0.1]] * 5]],
        "decoder": [[[[1, 0, 0], [0.02, 0.98, 0], [0.2, 0.5, 0.3]]]],
        "cross": [[[[0.06, 0.9, 0.02, 0.01, 0.01]] * 3]],
    }
    page = open_page(page_file)
    page.evaluate(
        f"HeadwiseExplorer.mount(document.getElementById('explorer'), {json.dumps(record)})"
    )
    says = page.get_by_role("status")
    page.get_by_role("radio", name="“e” of “Hunde”").check()
    page.mouse.move(0, 0)
    assert says.text_content() == (
        "When it writes “e” of “Hunde”, the head of layer 1 looks most at “s” of “Dogs” (0.90), "
        "then at “Dog” of “Dogs” (0.06)."
    )
    tokens = page.locator(".hw-columns .hw-token").all_text_contents()
    assert tokens == ["Dog", "·s", "run", ".", "‹end›"]
    page.get_by_role("radio", name="Decoder self-attention").check()
    page.get_by_role("radio", name="“Hund” of “Hunde”").check()
    page.mouse.move(0, 0)
    assert says.text_content() == (
        "When it writes “Hund” of “Hunde”, the head of layer 1 can look back at nothing but "
        "the beginning mark."
    )
    assert page.locator(".hw-number").all_text_contents() == ["1.00", "not yet", "not yet"]
    assert page.locator(".hw-habit").text_content() == (
        "Over the whole sentence, 64 % of its attention goes to the word just written."
    )


def test_a_model_without_an_encoder_has_one_kind_and_no_choice_of_it(
    open_page: OpenPage, tmp_path: Path
) -> None:
    record = attention_record(TextReader(), "an owl sat in an oak")
    path = tmp_path / "page.html"
    path.write_text(render_attention(record, "weights", {"kind": "cross", "layer": 1, "head": 2}))
    page = open_page(path, width=400)
    assert page.title() == "Attention: an owl sat in an oak"
    assert page.locator(".hw-pair").text_content() == "an owl sat in an oak"
    assert page.get_by_role("group", name="Kind of attention").count() == 0
    assert page.get_by_role("radio", name="Layer").count() == 2
    for name in ("Layer 2", "Head 3"):
        assert page.get_by_role("radio", name=name).is_checked()
    rows = page.locator(".hw-scroll tbody tr")
    assert rows.count() == 7
    titles = rows.nth(6).locator("td").evaluate_all("cells => cells.map((c) => Number(c.title))")
    assert titles == record.decoder[1][2][6]
    assert "looks back at the text so far" in text_of(page.locator(".hw-about").first)
    page.get_by_role("radio", name="the end of the text").press("Space")
    assert text_of(page.get_by_role("status")).startswith(
        "When it writes the end of the text, head 3 of layer 2 looks back most at"
    )
    assert text_of(page.locator(".hw-habit")).startswith("Over the whole text, ")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_several_texts_without_a_source_are_chosen_by_themselves(
    open_page: OpenPage, page_file: Path
) -> None:
    reader = TextReader()
    records = [attention_record(reader, text).to_dict() for text in ("an owl sat", "in an oak")]
    page = open_page(page_file)
    page.evaluate(
        f"HeadwiseExplorer.mount(document.getElementById('explorer'), {json.dumps(records)})"
    )
    assert not page.locator(".hw-pair").is_visible()
    menu = page.get_by_label("Text", exact=True)
    assert menu.locator("option").all_text_contents() == ["an owl sat", "in an oak"]
    menu.select_option(index=1)
    words = page.locator(".hw-rows .hw-token").all_text_contents()
    assert words == ["in", "an", "oak", "‹end›"]
