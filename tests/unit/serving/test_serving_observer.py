"""What is recorded of every request: its id, its client, its key's holder."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from headwise.serving.clients import TrustedProxies
from headwise.serving.keys import BodyKeyGuard, KeyGuard, Keys, add_key
from headwise.serving.observation import Metrics, Observer
from headwise.serving.pages import refuse


class Asked:
    """One request through an Observer: its state, its response's headers, its log line."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        client: tuple[str, int] | None,
        headers: dict[str, str] | None = None,
        proxies: tuple[str, ...] = (),
    ) -> None:
        logged: list[dict[str, Any]] = []
        sent: list[Message] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            self.state = dict(scope["state"])
            await PlainTextResponse("")(scope, receive, send)

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        monkeypatch.setattr("headwise.serving.observation.log", lambda _, **fs: logged.append(fs))
        observer = Observer(app, Metrics(), TrustedProxies(proxies), is_accepting=lambda: True)
        scope: Scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "headers": Headers(headers or {}).raw,
            "client": client,
        }
        asyncio.run(observer(scope, receive, send))
        self.headers = Headers(raw=sent[0]["headers"])
        (self.log,) = logged


def test_every_request_gets_a_new_id(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"X-Request-Id": "given"}
    first, second = (Asked(monkeypatch, ("192.0.2.1", 5), given) for _ in range(2))
    for asked in (first, second):
        assert re.fullmatch("[0-9a-f]{16}", asked.headers["x-request-id"])
        assert asked.headers.getlist("x-request-id") == [asked.log["request"]]
        assert asked.state["facts"]["request"] == asked.log["request"]
    assert first.log["request"] != second.log["request"]


@pytest.mark.parametrize(
    ("client", "forwarded", "address", "proxy", "counted"),
    [
        (("192.0.2.1", 5), "203.0.113.9", "192.0.2.1", None, "192.0.2.1"),
        (("10.0.0.1", 5), "203.0.113.9", "203.0.113.9", "10.0.0.1", "203.0.113.9"),
        (("10.0.0.1", 5), "2001:db8::5", "2001:db8::5", "10.0.0.1", "2001:db8::/64"),
        (("2001:db8::7", 5), "", "2001:db8::7", None, "2001:db8::/64"),
        (None, "203.0.113.9", "", None, ""),
    ],
)
def test_the_client_is_logged_and_counted(
    monkeypatch: pytest.MonkeyPatch,
    client: tuple[str, int] | None,
    forwarded: str,
    address: str,
    proxy: str | None,
    counted: str,
) -> None:
    asked = Asked(monkeypatch, client, {"X-Forwarded-For": forwarded}, ("10.0.0.0/8",))
    assert (asked.log["client"], asked.log.get("proxy")) == (address, proxy)
    assert asked.state["client"] == counted


def test_a_key_is_counted_under_its_holder(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = add_key(file, "alice")
    clients = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        clients.append(scope["state"]["client"])

    async def nothing(*_: object) -> Any:
        raise AssertionError("nothing is read or sent")

    options: dict[str, Any] = {"keys": Keys(file), "refuse": refuse}
    for guard in (
        KeyGuard(app, session_holder=lambda _: None, left_open=(), **options),
        BodyKeyGuard(app, paths=("/",), key_in=lambda *_: None, **options),
    ):
        scope: Scope = {
            "type": "http",
            "path": "/",
            "query_string": f"api_key={key}".encode(),
            "headers": Headers({"Authorization": f"Bearer {key}"}).raw,
            "state": {"facts": {}, "client": "192.0.2.1", "body": b""},
        }
        asyncio.run(guard(scope, nothing, nothing))
    assert clients == ["key alice"] * 2
