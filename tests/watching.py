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
