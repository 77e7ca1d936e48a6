"""Images and sounds on the page, and their attention in reports, in a real browser."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Browser, Page, expect

from headwise.data.images import png
from headwise.inspect.attention_file import write_attention
from headwise.serving.task_api import TaskModel
from headwise.tasks.classification.classifier import Classifier
from headwise.workflows.serve import load_served
from tests.browser.conftest import OpenPage
from tests.servers import Running, running
from tests.watching import watched


@pytest.fixture(scope="module")
def server(trained_image_classifier: Path, trained_sound_classifier: Path) -> Iterator[Running]:
    image, sound = load_served([trained_image_classifier, trained_sound_classifier])
    assert isinstance(sound, TaskModel)
    with running([image, replace(sound, name="sounds")]) as server:
        yield server


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture
def page(window: Page, server: Running) -> Iterator[Page]:
    window.set_viewport_size({"width": 1000, "height": 900})
    window.goto(f"{server.url}/")
    with watched(window, server.url):
        yield window


def draw(page: Page, *, is_lying: bool) -> None:
    """Draw a line over the canvas with the mouse."""
    box = page.locator("canvas.draw").bounding_box()
    assert box is not None
    ends = [(0.05, 0.5), (0.95, 0.5)] if is_lying else [(0.5, 0.05), (0.5, 0.95)]
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in ends]
    page.mouse.move(*places[0])
    page.mouse.down()
    page.mouse.move(*places[1], steps=5)
    page.mouse.up()


@pytest.mark.parametrize("is_lying", [True, False])
def test_what_is_drawn_with_the_mouse_is_classified(page: Page, is_lying: bool) -> None:
    draw(page, is_lying=is_lying)
    panel = page.locator("section.card").first
    expect(panel.locator(".best .label")).to_have_text("lying" if is_lying else "standing")
    expect(panel.locator(".bars li")).to_have_count(2)
    expect(panel.locator(".picture img")).to_be_visible()
    expect(panel.locator(".parts i")).to_have_count(9)
    page.get_by_role("button", name="Clear the drawing").click()
    assert not has_ink(page)
    expect(panel.locator(".answer")).to_have_count(0)


def has_ink(page: Page) -> bool:
    return bool(
        page.evaluate(
            "() => { const c = document.querySelector('canvas.draw');"
            "return c.getContext('2d').getImageData(0, 0, c.width, c.height)"
            ".data.filter((v, n) => n % 4 < 3).some((v) => v > 0); }"
        )
    )


def test_only_the_main_button_draws(page: Page) -> None:
    box = page.locator("canvas.draw").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down(button="right")
    page.mouse.move(box["x"] + 90, box["y"] + 90)
    page.mouse.up(button="right")
    assert not has_ink(page)


def test_a_photo_of_too_many_pixels_is_scaled_down(page: Page, tmp_path: Path) -> None:
    pixels = np.zeros((4_000, 5_000, 1), np.uint8)
    pixels[1_600:2_000] = 250
    (tmp_path / "large.png").write_bytes(png(pixels))
    page.locator("input[type=file]").first.set_input_files(tmp_path / "large.png")
    panel = page.locator("section.card").first
    expect(panel.locator(".best .label")).to_have_text("lying", timeout=30_000)
    expect(page.locator("#problem")).to_be_hidden()


DROP = """([names, bytes, selector]) => {
  const dataTransfer = new DataTransfer();
  for (const name of names) dataTransfer.items.add(new File([new Uint8Array(bytes)], name));
  const event = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
  document.querySelector(selector).dispatchEvent(event);
  return event.defaultPrevented;
}"""


def test_of_several_dropped_files_the_first_is_read_and_that_is_said(page: Page) -> None:
    pixels = np.zeros((12, 12, 1), np.uint8)
    pixels[5] = 250
    content = list(png(pixels))
    expect(page.locator(".drop").first).to_be_visible()
    assert page.evaluate(DROP, [["a.png", "b.png"], content, ".drop"])
    panel = page.locator("section.card").first
    expect(panel).to_contain_text("Only the first of 2 files is read: a.png")
    expect(panel.locator(".best .label")).to_have_text("lying")
    assert page.evaluate(DROP, [["a.png"], content, "main"]), "the browser would leave the page"


def test_a_chosen_sound_is_classified_and_its_spectrogram_shown(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "high.wav"
    soundfile.write(path, np.sin(np.arange(3_000) * 1.5) * 0.3, 8_000)
    panel = page.locator("section.card").nth(1)
    panel.locator("input[type=file]").set_input_files(path)
    expect(panel.locator(".best .label")).to_have_text("high")
    expect(panel.locator(".read.sound figcaption")).to_contain_text("time from left to right")
    assert panel.locator(".parts i").count() > 5


def test_a_file_that_is_no_image_is_a_problem_in_words(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "none.png"
    path.write_bytes(b"nothing")
    page.locator("input[type=file]").first.set_input_files(path)
    expect(page.locator("#problem-text")).to_contain_text("The server refuses this: the image: ")
    draw(page, is_lying=True)
    expect(page.locator("#problem")).to_be_hidden()


def test_a_phone_has_room_for_all_of_it(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    draw(page, is_lying=True)
    expect(page.locator(".best .label")).to_have_text("lying")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("is_dark", [False, True])
def test_the_explorer_lays_attention_over_the_image(
    open_page: OpenPage, trained_image_classifier: Path, tmp_path: Path, is_dark: bool
) -> None:
    pixels = np.zeros((12, 12, 1), np.uint8)
    pixels[5] = 240
    (tmp_path / "a.png").write_bytes(png(pixels))
    out = tmp_path / "attention.html"
    write_attention(Classifier.load(trained_image_classifier), str(tmp_path / "a.png"), out)
    page = open_page(out, color_scheme="dark" if is_dark else "light")
    expect(page.locator(".hw-picture img")).to_have_attribute("alt", "image, class lying")
    expect(page.locator(".hw-explorer")).to_contain_text("Choose a patch to see what it looks at")
    fields = page.locator(".hw-grid label")
    expect(fields).to_have_count(9)
    expect(page.locator(".hw-says")).to_contain_text("Reading “‹class›”")
    fields.nth(4).click()
    expect(page.locator(".hw-says")).to_contain_text("Reading “row 2, column 2”")
    assert fields.nth(4).get_attribute("title") == "row 2, column 2"
    veils = page.evaluate(
        "() => [...document.querySelectorAll('.hw-grid label')]"
        ".map((label) => Number(label.style.getPropertyValue('--hw-veil')))"
    )
    assert min(veils) == 0
    assert max(veils) <= 0.8
    page.keyboard.press("ArrowRight")
    expect(page.locator(".hw-says")).to_contain_text("Reading “row 2, column 3”")
