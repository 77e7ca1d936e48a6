"""A real browser for the pages: Debian's Chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import pytest

from headwise.files import replaced_directory
from headwise.runs.checkpoint import read_weights, write_weights
from headwise.runs.directory import RunDirectory
from headwise.tasks.translation.translator import Translator
from headwise.workflows.report import report
from headwise.workflows.train import train
from tests.small_runs import small_config, write_text

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Dialog, Page

ColorScheme = Literal["light", "dark"]


class OpenPage(Protocol):
    """The `open_page` fixture: a file to open, and what to emulate."""

    def __call__(
        self,
        path: Path,
        *,
        width: int = 1280,
        has_touch: bool | None = None,
        color_scheme: ColorScheme | None = None,
        reduced_motion: Literal["reduce"] | None = None,
    ) -> "Page": ...


_ARGUMENTS = [
    "--no-sandbox",  # In a container there may be none to have.
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


# While Playwright runs, no test in this thread can run an event loop: it stops after each module.
@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium on this machine: `make setup-browser` installs it")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: "Browser") -> Iterator[OpenPage]:
    """Open files; afterwards, assert that their pages had no problems and sent no requests."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []
    requests: list[str] = []

    def dismiss(dialog: "Dialog") -> None:
        problems.append(dialog.message)
        dialog.dismiss()

    def open_file(
        path: Path,
        *,
        width: int = 1280,
        has_touch: bool | None = None,
        color_scheme: ColorScheme | None = None,
        reduced_motion: Literal["reduce"] | None = None,
    ) -> "Page":
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            has_touch=has_touch,
            color_scheme=color_scheme,
            reduced_motion=reduced_motion,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(5000)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", dismiss)
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        requests.remove(path.as_uri())
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert (problems, requests) == ([], [])


@pytest.fixture(scope="session")
def deep_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with several layers and heads, trained for a moment and then made lively."""
    directory = tmp_path_factory.mktemp("deep")
    config = small_config(
        "data.source_language=en",
        "data.target_language=de",
        "model.num_layers=3",
        "model.num_heads=4",
        "model.norm_order=pre",
        "decode.max_extra_tokens=2",
        "decode.alpha=5",  # It has learned little but to stop: let long translations win.
    )
    train(config, directory / "run", text=write_text(directory))
    # So little training leaves all weights of attention about equal: make them differ.
    averaged = RunDirectory(directory / "run").averaged
    weights = {
        name: 5 * weight if "in_projection" in name else weight
        for name, weight in read_weights(averaged).items()
    }
    with replaced_directory(averaged) as temporary:
        write_weights(temporary, weights, {"steps": [12]})
    return directory / "run"


@pytest.fixture(scope="session")
def report_page(deep_run: Path) -> Path:
    return report(RunDirectory(deep_run), Translator.load(deep_run))
