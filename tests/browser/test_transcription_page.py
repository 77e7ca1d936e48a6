"""Transcriptions on the page, and their attention over images and sounds, in a real browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Browser, Locator, Page, expect

from headwise.data.images import png
from headwise.inspect.attention_file import write_attention
from headwise.tasks.transcription.transcriber import Transcriber
from headwise.workflows.serve import load_served
from tests.browser.conftest import OpenPage
from tests.servers import Running, running
from tests.transcribed import RATE, draw_line, say
from tests.watching import watched


@pytest.fixture(scope="module")
def server(
    trained_reader: Path, trained_listener: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("served")
    runs = [folder / "lines", folder / "sounds"]
    for run, made in zip(runs, (trained_reader, trained_listener), strict=True):
        shutil.copytree(made, run)
    with running(load_served(runs)) as server:
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


@pytest.fixture
def line(tmp_path: Path) -> Path:
    path = tmp_path / "line.png"
    path.write_bytes(png(draw_line("LOT", np.random.default_rng(1))[:, :, None]))
    return path


def veils(page: Page, fields: str, name: str) -> list[float]:
    """Return how dark each field over a picture is."""
    found: list[float] = page.evaluate(
        "([fields, name]) => [...document.querySelectorAll(fields)]"
        ".map((field) => Number(field.style.getPropertyValue(name)))",
        [fields, name],
    )
    return found


def test_each_token_shows_where_the_model_looks(
    page: Page, trained_reader: Path, line: Path
) -> None:
    (expected,) = Transcriber.load(trained_reader).transcribe(line)
    panel: Locator = page.locator("section.card").first
    expect(panel.locator("canvas.draw")).to_have_count(0)
    panel.locator("input[type=file]").set_input_files(line)
    expect(panel.locator(".transcript")).to_have_text(expected.text)
    tokens = panel.locator(".written button")
    expect(tokens).to_have_count(len(expected.text))
    first = veils(page, ".parts i", "--veil")
    assert min(first) == 0 < max(first) <= 0.65
    tokens.first.focus()
    page.keyboard.press("ArrowRight")
    expect(tokens.nth(1)).to_be_focused()
    expect(tokens.nth(1)).to_have_attribute("aria-pressed", "true")
    assert veils(page, ".parts i", "--veil") != first


def test_the_words_of_a_sound_have_times(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, say(["fa", "do"], np.random.default_rng(5))[0], RATE)
    panel = page.locator("section.card").nth(1)
    panel.locator("input[type=file]").set_input_files(path)
    expect(panel.locator(".words li").first).to_contain_text("s")
    expect(panel.locator(".read.sound img")).to_be_visible()
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("is_dark", [False, True])
def test_the_explorer_lays_the_decoders_attention_over_the_image(
    open_page: OpenPage, trained_reader: Path, line: Path, is_dark: bool, tmp_path: Path
) -> None:
    out = tmp_path / "attention.html"
    write_attention(Transcriber.load(trained_reader), str(line), out, target="LOT")
    page = open_page(out, color_scheme="dark" if is_dark else "light")
    expect(page.locator(".hw-picture img")).to_be_visible()
    expect(page.locator(".hw-says")).to_contain_text("When it writes “L”")
    first = veils(page, ".hw-grid i", "--hw-veil")
    assert min(first) == 0 < max(first) <= 0.8
    page.locator(".hw-text label").nth(1).click()
    expect(page.locator(".hw-says")).to_contain_text("When it writes “O”")
    assert veils(page, ".hw-grid i", "--hw-veil") != first
    page.locator("input[value=encoder]").check()
    page.locator(".hw-grid label").nth(2).click()
    expect(page.locator(".hw-says")).to_contain_text("Reading “pixel 4”")
    page.locator("input[value=decoder]").check()
    expect(page.locator(".hw-rows label")).to_have_count(4)
    expect(page.locator(".hw-about").first).to_contain_text("looks back at what it has written")
