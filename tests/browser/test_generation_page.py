"""The panel of a language model: text that comes while one watches, with its probabilities."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from headwise.tasks.language_model.generator import Generator
from tests.browser.conftest import ColorScheme
from tests.generators import served_generator
from tests.integration.test_generation_api import make_double
from tests.servers import PausedSteps, Running, SlowSteps, running, wait_for
from tests.watching import wait_until, watched

FIXED_SEED = "Math.random = () => 0.25;"
"""The page draws a seed; with another, the model might end its text at once."""


@pytest.fixture(scope="module")
def generator() -> Generator:
    return make_double()


@pytest.fixture(scope="module")
def server(generator: Generator) -> Iterator[Running]:
    with running([served_generator(generator)]) as server:
        yield server


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    context.add_init_script(FIXED_SEED)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(window: Page, server: Running) -> Iterator[Page]:
    window.goto(f"{server.url}/tasks")
    with watched(window, server.url):
        yield window


def begin(page: Page, prompt: str) -> str:
    """Ask for a continuation; return the seed that the page chose, as it was sent."""
    page.get_by_label("Text").fill(prompt)
    with page.expect_request("**/v1/generate") as request:
        page.get_by_role("button", name="Continue").click()
    (seed,) = re.findall(r'"seed":(\d+)', request.value.post_data or "")
    return str(seed)


def test_the_text_is_the_generators_with_probabilities(page: Page, generator: Generator) -> None:
    seed = begin(page, "ban bara")
    expected = generator.generate("ban bara", seed=int(seed), max_tokens=200)
    button = page.get_by_role("button", name="Continue")
    expect(button).to_be_visible()
    box = page.get_by_role("listbox", name="The continuation")
    wait_until(page, "() => document.querySelector('.says').textContent.startsWith('Point')")
    assert "".join(box.locator("span").all_text_contents()) == expected.text
    first = box.locator("span").first
    first.hover()
    said = page.locator(".says")
    expect(said).to_have_text(re.compile(r"^“.+”: .*%\. Most probable: (“[^”]+” .*% ?,? ?){5}$"))
    expect(first).to_have_attribute("aria-selected", "true")
    page.get_by_label("Text").hover()
    expect(said).to_have_text(re.compile("^Point at"))


def test_tokens_are_chosen_from_the_keyboard(page: Page) -> None:
    begin(page, "ban")
    options = page.get_by_role("option")
    wait_until(page, "() => document.querySelector('.says').textContent.startsWith('Point')")
    options.first.focus()
    page.keyboard.press("ArrowRight")
    expect(options.nth(1)).to_be_focused()
    label = options.nth(1).get_attribute("aria-label")
    assert label is not None
    expect(page.locator(".says")).to_have_text(label)
    page.keyboard.press("End")
    expect(options.last).to_be_focused()
    assert page.locator("[role='option'][tabindex='0']").count() == 1


def test_text_is_shown_as_it_comes_and_can_be_stopped(
    page: Page, generator: Generator, server: Running
) -> None:
    service = server.uvicorn.service
    with SlowSteps(generator, 0.05):
        begin(page, "ban")
        stop = page.get_by_role("button", name="Stop")
        expect(page.get_by_role("option").nth(2)).to_be_attached()
        stop.click()
        expect(page.get_by_role("button", name="Continue")).to_be_visible()
        wait_for(lambda: not service._writers["lm"].num_searches)
    assert page.get_by_role("option").count() < 150
    expect(page.locator("#problem")).to_be_hidden()


def test_problems_are_shown(page: Page, generator: Generator, server: Running) -> None:
    with PausedSteps(generator):
        begin(page, "ban")
        loop = server.uvicorn._loop
        assert loop is not None
        wait_for(lambda: server.uvicorn.service.num_pending == 1)
        loop.call_soon_threadsafe(server.uvicorn.service.cancel_requests)
        expect(page.locator("#problem-text")).to_contain_text("stopping")
    page.get_by_label("Text").fill("x" * 10_001)
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#problem-text")).to_contain_text("10,001 characters are too many")

    def cut(route: Route) -> None:
        event = 'data: {"index":0,"text":"kon","tokens":[]}\n\n'
        route.fulfill(content_type="text/event-stream", body=event)

    page.route("**/v1/generate", cut)
    begin(page, "ban")
    expect(page.locator("#problem-text")).to_contain_text("stopped before the end of its answer")
    page.unroute("**/v1/generate")
    begin(page, "ban")
    expect(page.locator("#problem")).to_be_hidden()


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_the_panel_fits(
    browser: Browser, server: Running, width: int, color_scheme: ColorScheme
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=color_scheme
    )
    context.add_init_script(FIXED_SEED)
    page = context.new_page()
    page.goto(f"{server.url}/tasks")
    begin(page, "ban bara dun kon")
    wait_until(page, "() => document.querySelector('.says').textContent.startsWith('Point')")
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(overflow) <= 0
    context.close()
