"""Panels that draw figures while one types: a parser's trees, and what their labels attend to."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, Route, expect

from headwise.workflows.serve import load_served
from tests.browser.conftest import ColorScheme
from tests.servers import Running, running
from tests.watching import wait_until, watched

SENTENCE = "the old dog near the tree sees the cat ."


@pytest.fixture(scope="module")
def server(trained_parser: Path) -> Iterator[Running]:
    with running(load_served([trained_parser])) as server:
        yield server


@pytest.fixture
def page(browser: Browser, server: Running) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.goto(f"{server.url}/tasks")
    with watched(page, server.url):
        yield page
    context.close()


def opacities(page: Page) -> list[float]:
    """The opacities of the marks behind the words, from left to right."""
    script = """boxes => boxes.sort((a, b) => a.x.baseVal.value - b.x.baseVal.value)
        .map(box => Number(box.getAttribute("fill-opacity")))"""
    found: list[float] = page.locator(".weight").evaluate_all(script)
    return found


def test_a_tree_is_drawn_while_one_types(page: Page, server: Running) -> None:
    _, answer, _ = server.ask("POST", "/v1/parse", {"q": SENTENCE, "attention": True})
    (expected,) = answer["parses"]
    page.get_by_label("Sentence").press_sequentially(SENTENCE, delay=2)
    expect(page.locator("[data-key]")).to_have_count(10)
    assert page.locator("[data-key]").all_text_contents() == SENTENCE.split()
    assert page.locator("figure code").text_content() == expected["text"]
    assert opacities(page) == [0] * 10
    last = len(expected["attention"]) - 1
    page.locator(f"[data-query='{last}']").hover()
    expect(page.locator("figcaption")).to_have_text(re.compile(r"^\S+ attends to “.+” \(.+%\)"))
    assert opacities(page) == pytest.approx([w**0.5 for w in expected["attention"][last]], abs=2e-3)
    page.get_by_label("Sentence").hover()
    expect(page.locator("figcaption")).to_contain_text("Point at a label")
    assert opacities(page) == [0] * 10
    page.get_by_label("Sentence").fill("")
    expect(page.locator("figure svg")).to_have_count(0)


def test_labels_are_chosen_from_the_keyboard(page: Page) -> None:
    page.get_by_label("Sentence").fill(SENTENCE)
    labels = page.locator("[role='option']")
    expect(page.locator("[data-query='0']")).to_have_attribute("tabindex", "0")
    assert page.locator("[role='option'][tabindex='0']").count() == 1
    page.get_by_role("button", name="Parse").focus()
    page.keyboard.press("Tab")
    if not page.evaluate("document.activeElement.dataset.query"):
        page.keyboard.press("Tab")  # A box that scrolls is a stop of its own.
    expect(page.locator("[data-query='0']")).to_be_focused()
    page.keyboard.press("ArrowRight")
    second = page.locator("[data-query='1']")
    expect(second).to_be_focused()
    expect(second).to_have_attribute("aria-selected", "true")
    said = second.get_attribute("aria-label")
    assert said is not None
    expect(page.locator("figcaption")).to_have_text(said)
    assert max(opacities(page)) > 0
    page.keyboard.press("End")
    expect(page.locator(f"[data-query='{labels.count() - 1}']")).to_be_focused()


def test_the_newest_text_wins(page: Page) -> None:
    held: list[Route] = []

    def answer(route: Route) -> None:
        request = route.request.post_data_json
        assert request is not None
        if request["q"] == "the dog":
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/parse", answer)
    page.get_by_label("Sentence").fill("the dog")
    while not held:
        page.wait_for_timeout(20)
    page.get_by_label("Sentence").fill("the cat sees")
    expect(page.locator("[data-key]")).to_have_count(3)
    held[0].continue_()
    page.wait_for_timeout(100)
    assert page.locator("[data-key]").all_text_contents() == ["the", "cat", "sees"]
    expect(page.locator(".output")).to_have_attribute("aria-busy", "false")


def test_nothing_but_shapes_and_text_is_taken_from_an_svg(
    browser: Browser, server: Running
) -> None:
    svg = """<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="alert(1)">
        <script>alert(2)</script><style>* { display: none }</style>
        <foreignObject><img xmlns="http://www.w3.org/1999/xhtml" src="x" onerror="alert(3)"/>
        </foreignObject><image href="http://example.org/x.png"/><a href="javascript:alert(4)">
        <text>link</text></a><text data-key="0" onclick="alert(5)" style="fill: red"
        fill="url(http://example.org/#x)" data-query="0">kept</text></svg>"""
    answers = [{"svg": svg, "text": "<b>text</b>", "attention": [[1]]}, {"svg": "<b>no</b>"}]
    problems: list[str] = []
    context = browser.new_context()
    page = context.new_page()

    def on_dialog(dialog: Dialog) -> None:
        problems.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", on_dialog)
    page.on("request", lambda request: problems.append(request.url))
    page.goto(f"{server.url}/tasks")
    page.route("**/v1/parse", lambda route: route.fulfill(json={"parses": answers}))
    page.get_by_label("Sentence").fill("x")
    expect(page.locator("figure svg")).to_have_count(2)
    assert page.locator("figure code").text_content() == "<b>text</b>"
    names = page.locator("figure svg *").evaluate_all("all => all.map(each => each.localName)")
    assert names == ["rect", "text"]
    kept = page.locator("figure svg text")
    kept.dispatch_event("click")
    script = "text => [...text.attributes].map(each => each.name).sort().join(' ')"
    expected = "aria-label aria-selected data-key data-query role tabindex"
    assert kept.evaluate(script) == expected
    assert [problem for problem in problems if not problem.startswith(server.url)] == []
    context.close()


def test_a_refusal_is_shown(page: Page) -> None:
    page.get_by_label("Sentence").fill("a " * 300)
    expect(page.locator("#problem")).to_contain_text("The server refuses this: the 300 words")
    page.get_by_label("Sentence").fill("a")
    expect(page.locator("#problem")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_the_drawing_and_not_the_page(page: Page, scheme: ColorScheme) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    page.emulate_media(color_scheme=scheme)
    page.get_by_label("Sentence").fill(f"{SENTENCE[:-2]} near the old tree in the house .")
    expect(page.locator("figure svg")).to_be_visible()
    wait_until(page, "() => document.documentElement.scrollWidth <= innerWidth")
    assert page.locator(".drawing").evaluate("box => box.scrollWidth > box.clientWidth")
    colours = page.locator("[data-key]").first.evaluate(
        "word => [getComputedStyle(word).fill, getComputedStyle(document.body).color]"
    )
    assert colours[0] == colours[1]
