"""Check what a page does while a test uses it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import ConsoleMessage, Dialog, Error, Locator, Page, Request, expect

# A busy machine must not fail a test.
expect.set_options(timeout=20_000)


@contextmanager
def watched(page: Page, url: str) -> Iterator[None]:
    """Assert that a page raises no error, opens no dialog and sends requests to one server only."""
    problems: list[str] = []
    own = re.compile(f"{re.escape(url)}|data:")

    def on_error(error: Error) -> None:
        problems.append(f"error: {error}")

    def on_dialog(dialog: Dialog) -> None:
        problems.append("dialog")
        dialog.dismiss()

    def on_request(request: Request) -> None:
        if not own.match(request.url):
            problems.append(f"request: {request.url}")

    def on_console(message: ConsoleMessage) -> None:
        if "Content Security" in message.text:
            problems.append(message.text)

    page.on("pageerror", on_error)
    page.on("dialog", on_dialog)
    page.on("request", on_request)
    page.on("console", on_console)
    yield
    page.remove_listener("pageerror", on_error)
    page.remove_listener("dialog", on_dialog)
    page.remove_listener("request", on_request)
    page.remove_listener("console", on_console)
    assert problems == []


def text_of(locator: Locator) -> str:
    """Return the text of an element, which may be hidden."""
    text = locator.text_content()
    assert text is not None
    return text


def wait_until(page: Page, script: str, argument: object = None) -> None:
    """Wait until a script returns something true.

    Playwright's wait_for_function evaluates text inside the page, which the page's policy forbids.
    """
    for _ in range(400):
        if page.evaluate(script, argument):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {script}")
