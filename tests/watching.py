"""What is watched in a page that a server sends."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, expect

# A machine that is busy with something else is no reason to fail.
expect.set_options(timeout=20_000)


@contextmanager
def watched(page: Page, url: str) -> Iterator[None]:
    """See that a page raises no error, opens no dialog and asks nobody but one server."""
    troubles: list[str] = []
    own = re.compile(f"{re.escape(url)}|data:")
    listeners = {
        "pageerror": lambda error: troubles.append(f"error: {error}"),
        "dialog": lambda dialog: (troubles.append("dialog"), dialog.dismiss()),
        "request": lambda r: None if own.match(r.url) else troubles.append(f"request: {r.url}"),
        "console": lambda m: troubles.append(m.text) if "Content Security" in m.text else None,
    }
    for event, listener in listeners.items():
        page.on(event, listener)  # type: ignore[call-overload]
    yield
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    assert troubles == []


def wait_until(page: Page, script: str, argument: object = None) -> None:
    """Wait for a script to find something true.

    Playwright's own way to wait evaluates text inside the page, which the page's policy forbids.
    """
    for _ in range(400):
        if page.evaluate(script, argument):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {script}")
