"""The web page in a real browser: translation, details, and error messages."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from headwise.serving.keys import Keys, add_key
from headwise.serving.models import ServedModel
from headwise.workflows.serve import load_served
from tests.browser.conftest import ColorScheme
from tests.servers import Running, in_languages, running, served
from tests.watching import wait_until, watched


@pytest.fixture(scope="module")
def server(trained_run: Path) -> Iterator[Running]:
    (first,) = load_served([trained_run])
    assert isinstance(first, ServedModel)
    model = ServedModel(
        name="first", translator=in_languages(first.translator, "en", "de"), card=first.card
    )
    with running([model, served(trained_run, name="second")]) as server:
        yield server


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture
def page(window: Page, server: Running) -> Iterator[Page]:
    """The page, with nothing but the server to talk to and nothing wrong in it."""
    window.set_viewport_size({"width": 1200, "height": 900})
    window.goto(f"{server.url}/")
    with watched(window, server.url):
        yield window
    window.unroute_all()
    window.emulate_media(color_scheme="light", forced_colors="none")


def test_translate_as_you_type(page: Page, server: Running) -> None:
    expected = server.translate("ban dora kuti", model="first")[0]["text"]
    expect(page.locator("#source-name")).to_have_text("English")
    expect(page.locator("#target-name")).to_have_text("German")
    page.locator("#source").press_sequentially("ban dora kuti", delay=5)
    expect(page.locator("#output")).to_have_text(expected)
    expect(page.locator("#status")).to_contain_text("seconds")
    expect(page.locator("#count")).to_contain_text("13 of 10,000 characters")
    page.locator("#clear").click()
    expect(page.locator("#output")).to_have_text("")
    expect(page.locator("#insight")).to_be_hidden()
    assert page.evaluate("document.activeElement.id") == "source"


def test_text_typed_before_the_models_are_loaded_is_translated(page: Page) -> None:
    asked: list[Route] = []
    page.route("**/v1/models", lambda route: asked.append(route))
    page.reload(wait_until="domcontentloaded")
    page.fill("#source", "ban dora")
    page.wait_for_timeout(400)  # Longer than the pause after which it translates.
    expect(page.locator("#output")).to_be_empty()
    asked[0].continue_()
    expect(page.locator("#output")).not_to_be_empty()


def test_the_newest_text_wins(page: Page) -> None:
    """An answer that comes late does not replace that of a later text."""

    def answer(route: Route) -> None:
        request = route.request.post_data_json
        assert request is not None
        if request["q"] == "ban":
            page.wait_for_timeout(600)
        route.continue_()

    page.route("**/v1/translate", answer)
    page.fill("#source", "ban")
    page.wait_for_timeout(350)
    page.fill("#source", "ban dora kuti kun")
    page.wait_for_timeout(900)
    expect(page.locator("#output")).to_have_attribute("aria-busy", "false")
    tokens = page.locator("#tokens .token").count()
    assert tokens >= 2
    assert page.input_value("#source") == "ban dora kuti kun"


def test_alternatives_and_confidence(page: Page, server: Running) -> None:
    (answer,) = server.translate("ban dora kuti", nbest=4, model="first")
    page.fill("#source", "ban dora kuti")
    expect(page.locator("#alternatives li")).to_have_count(4)
    texts = page.locator("#alternatives .text").all_inner_texts()
    assert texts == [candidate["text"] or "(nothing)" for candidate in answer["candidates"]]
    tokens = page.locator("#tokens .token")
    expect(tokens).to_have_count(len(answer["candidates"][0]["tokens"]))
    # From the keyboard: one stop, then arrows.
    page.locator("#tokens .token[tabindex='0']").focus()
    page.keyboard.press("End")
    last = tokens.last
    expect(last).to_be_focused()
    expect(page.locator("#token-says")).to_contain_text("%")
    expect(last).to_have_attribute("aria-label", re.compile("%$"))
    page.fill("#source", "Ban dora.\nKuti bun.")
    expect(page.locator("#alternatives .of")).to_have_count(2)


def test_attention_is_live_on_the_readers_own_sentence(page: Page) -> None:
    page.fill("#source", "ban dora kuti")
    expect(page.locator("#explorer .hw-words")).to_be_visible()
    heads = page.locator("#explorer .hw-heads input")
    assert heads.count() == 3, "two heads and their mean"
    heads.nth(2).check(force=True)
    page.locator("#explorer .hw-kinds input").nth(1).check(force=True)
    says = page.locator("#explorer .hw-says").inner_text()
    page.locator("#explorer .hw-rows input").nth(1).focus()
    page.keyboard.press("ArrowDown")
    wait_until(
        page, "before => document.querySelector('#explorer .hw-says').textContent !== before", says
    )
    page.fill("#source", "kun bara")
    expect(page.locator("#explorer")).to_contain_text("bara")
    kinds = page.locator("#explorer .hw-kinds input")
    assert kinds.nth(1).is_checked(), "what was chosen stays"


def test_the_card_and_the_choice_of_models(page: Page) -> None:
    card = page.locator("#card")
    expect(card).to_contain_text("Parameters")
    expect(card).to_contain_text("departures from the paper")
    page.locator("#departures-box summary").click()
    expect(page.locator("#departures")).to_contain_text("model.d_model = 32, where §3.1 has 512")
    page.select_option("#model", label="second")
    expect(page.locator("#source-name")).to_have_text("xx")
    page.fill("#source", "ban")
    expect(page.locator("#alternatives li").first).to_be_visible()


def test_a_model_without_languages_keeps_no_languages_of_another(page: Page) -> None:
    def answer(route: Route) -> None:
        answer = route.fetch().json()
        answer["models"][1].update(source="", target="")
        route.fulfill(json=answer)

    page.route("**/v1/models", answer)
    page.reload()
    expect(page.locator("#source")).to_have_attribute("lang", "en")
    expect(page.locator("#output")).to_have_attribute("lang", "de")
    page.select_option("#model", label="second")
    expect(page.locator("#target-name")).to_have_text("Translation")
    expect(page.locator("main [lang]")).to_have_count(0)


WRONG = [
    (429, {"Retry-After": "2"}, "Many people are using this server"),
    (503, {"Retry-After": "2"}, "The server is stopping"),
    (504, {}, "took too long"),
    (500, {}, "Something went wrong in the server"),
    (400, {}, "The server refuses this: <b>why</b>."),
    (413, {}, "That is too much at once"),
    (401, {}, "The server asks for an API key"),
]


def test_errors_are_shown_and_cleared(page: Page) -> None:
    for number, (status, headers, words) in enumerate(WRONG):
        problem = {"status": status, "headers": headers, "json": {"error": "<b>why</b>"}}
        page.unroute_all()
        page.route(
            "**/v1/translate",
            lambda route, _, problem=problem: route.fulfill(**problem),
            times=1,
        )
        page.fill("#source", "ban dora" + " kun" * number)
        expect(page.locator("#problem")).to_contain_text(words)
        if status >= 500 and not headers:
            page.locator("#again").click()
        elif not headers:
            page.fill("#source", "ban" + " kun" * number)
        # Else it comes again by itself.
        expect(page.locator("#problem")).to_be_hidden()
        expect(page.locator("#output")).not_to_be_empty()


def test_offline_and_too_long(page: Page) -> None:
    page.route("**/v1/translate", lambda route: route.abort())
    page.fill("#source", "ban dora")
    expect(page.locator("#problem")).to_contain_text("The server cannot be reached")
    page.unroute("**/v1/translate")
    page.locator("#again").click()
    expect(page.locator("#problem")).to_be_hidden()
    page.fill("#source", "ban " * 2501)
    expect(page.locator("#problem")).to_contain_text("at most 10,000 characters")
    expect(page.locator("#count")).to_have_class(re.compile("bad"))


def test_results_of_an_earlier_text_are_marked(page: Page) -> None:
    def see(*, old: bool) -> None:
        for panel in ("#output", "#insight", "#attention"):
            expect(page.locator(panel)).to_be_visible()
            expect(page.locator(panel)).to_have_attribute("aria-busy", str(old).lower())
            expect(page.locator(panel)).to_have_css("opacity", "0.5" if old else "1")
        expect(page.locator("#copy")).to_be_enabled(enabled=not old)

    page.fill("#source", "ban dora")
    expect(page.locator("#explorer .hw-words")).to_be_visible()
    see(old=False)
    for text, words in [
        ("ban " * 2501, "at most 10,000 characters"),
        ("ban \0 dora", "The server refuses this"),
        ("kuti", "The server cannot be reached"),
    ]:
        if text == "kuti":
            page.route("**/v1/translate", lambda route: route.abort())
        page.fill("#source", text)
        expect(page.locator("#problem")).to_contain_text(words)
        see(old=True)
        page.unroute_all()
        page.fill("#source", "ban dora kun")
        see(old=False)


def test_a_long_text_does_not_lengthen_the_page(page: Page) -> None:
    page.fill("#source", "Ban dora. Kuti bun.\n" * 60)
    expect(page.locator("#alternatives .of")).to_have_count(120)
    expect(page.locator("#explorer .hw-words")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollHeight") < 4000
    for name in ("German", "Alternatives"):
        box = page.get_by_role("group", name=name)
        box.focus()
        expect(box).to_be_focused()
        page.keyboard.press("End")
        wait_until(page, "document.activeElement.scrollTop > 0")
    page.locator("#tokens .token[tabindex='0']").focus()
    page.keyboard.press("End")
    expect(page.locator("#tokens .token").last).to_be_in_viewport()
    # What does not scroll is no stop on the way.
    page.fill("#source", "ban dora")
    expect(page.locator(".scrolls[tabindex]")).to_have_count(0)


@pytest.mark.parametrize("has_tls", [False, True])
def test_the_page_asks_for_a_key(
    browser: Browser, trained_run: Path, tmp_path: Path, has_tls: bool
) -> None:
    key = add_key(tmp_path / "keys", "teacher")
    context = browser.new_context(ignore_https_errors=True)
    keys = Keys(tmp_path / "keys")
    with running([served(trained_run)], keys=keys, has_tls=has_tls) as server:
        page = context.new_page()
        page.goto(f"{server.url}/")
        page.get_by_label("API key").fill("wrong")
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("alert")).to_have_text("This key is not known here.")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Continue").click()
        page.fill("#source", "ban dora")
        expect(page.locator("#alternatives li").first).to_be_visible()
        context.clear_cookies()
        page.fill("#source", "ban dora kuti")
        expect(page.locator("#problem")).to_contain_text("Give a key")
        context.close()


def test_a_page_of_another_site_can_link_here_but_not_translate(
    browser: Browser, server: Running
) -> None:
    context = browser.new_context()
    page = context.new_page()
    form = f'<form method="post" action="{server.url}/translate"><button>Go</button></form>'
    link = f'<a href="{server.url}/">Headwise</a>'
    page.route(
        "http://other.localhost/",
        lambda route: route.fulfill(body=form + link, content_type="text/html"),
    )
    page.goto("http://other.localhost/")
    with page.expect_response(f"{server.url}/translate") as answer:
        page.get_by_role("button", name="Go").click()
    assert answer.value.status == 403
    page.goto("http://other.localhost/")
    page.get_by_role("link", name="Headwise").click()
    expect(page.locator("#source")).to_be_visible()
    context.close()


def test_the_api_description_loads_nothing_from_other_hosts(page: Page, server: Running) -> None:
    page.goto(f"{server.url}/docs")
    translate = page.locator(".operation", has_text="/v1/translate")
    translate.get_by_label("Body: TranslateRequest").fill('{"q": "ban dora"}')
    translate.get_by_role("button", name="Try it").click()
    expect(translate.locator("pre")).to_contain_text('"model": "first"')
    libre = page.locator(".operation", has_text="as LibreTranslate does")
    libre.get_by_role("button", name="Try it").click()
    expect(libre.locator("pre")).to_contain_text('"translatedText": ')
    assert page.locator(".operation").count() >= 7
    expect(page.locator("#schemas")).to_contain_text("LibreRequest")


def test_the_columns_of_the_api_description_break_no_words(page: Page, server: Running) -> None:
    page.set_viewport_size({"width": 1920, "height": 900})
    page.goto(f"{server.url}/docs")
    expect(page.locator("#schemas")).to_contain_text("LibreRequest")
    for column in (1, 2, 3):
        cells = page.locator(f"#schemas tr > :nth-child({column})")
        assert len(set(cells.evaluate_all("cells => cells.map(c => c.offsetLeft)"))) == 1
    for width in (320, 400, 800):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        lines = page.locator("#schemas th code").evaluate_all(
            "names => names.map(name => name.getClientRects().length)"
        )
        assert set(lines) == {1}


# What is seen of an element where only the system's colours are left: a veil of one is not.
_DRAWN = """element => {
  const { backgroundColor, borderStyle, borderWidth } = getComputedStyle(element);
  return [backgroundColor.match(/\\d+/g).slice(0, 3), borderStyle, borderWidth].join(" ");
}"""


def test_forced_colours_keep_selection_and_confidence_visible(page: Page) -> None:
    page.emulate_media(forced_colors="active")
    page.fill("#source", "ban dora kuti")
    expect(page.locator("#explorer .hw-words")).to_be_visible()
    for group in ("kinds", "layers", "heads", "rows"):
        drawn = [
            [face.evaluate(_DRAWN) for face in page.locator(f".hw-{group} input{state} + *").all()]
            for state in (":checked", ":not(:checked)")
        ]
        assert drawn[0][0] not in drawn[1], group
    levels = {level.evaluate(_DRAWN) for level in page.locator(".scale li").all()}
    assert len(levels) == 4
    token = page.locator("#tokens .token").first
    assert token.evaluate(_DRAWN) in levels
    token.focus()
    assert token.evaluate(_DRAWN) not in levels


def test_nothing_overflows_the_window(page: Page) -> None:
    page.fill("#source", "ban dora kuti " + "x" * 200)
    expect(page.locator("#explorer .hw-words")).to_be_visible()
    colours: dict[ColorScheme, str] = {"light": "rgb(246, 248, 250)", "dark": "rgb(18, 22, 28)"}
    for scheme, colour in colours.items():
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == colour
        for width in (320, 390, 768, 1200, 2560):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_control_has_a_name_and_is_reachable_by_keyboard(page: Page) -> None:
    page.fill("#source", "ban dora kuti")
    expect(page.locator("#explorer .hw-words")).to_be_visible()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, textarea, a, [role]")]
          .filter(e => e.checkVisibility())
          .filter(e => !(e.labels && e.labels.length) && !e.textContent.trim()
            && !e.getAttribute("aria-label") && !e.getAttribute("aria-labelledby"))
          .filter(e => !["status", "alert", "presentation"].includes(e.getAttribute("role")))
          .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    levels = page.evaluate(
        "() => [...document.querySelectorAll('h1, h2, h3')].map(e => Number(e.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
