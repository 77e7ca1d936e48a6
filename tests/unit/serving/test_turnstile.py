"""Requests that enter in turns."""

import asyncio
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from headwise.serving.turnstile import Turnstile


async def nothing(*_: Any) -> Message:
    raise AssertionError("nothing is received or sent here")


class App:
    """Notes whose request enters, and how many have entered in the same turn of the loop."""

    def __init__(self) -> None:
        self.clients: list[str] = []
        self.most_at_once = 0
        self._now = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.clients.append(scope["state"]["client"])
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        asyncio.get_running_loop().call_soon(self._leave)

    def _leave(self) -> None:
        self._now -= 1


def scope(client: str) -> Scope:
    return {"type": "http", "state": {"client": client}}


def test_clients_enter_in_turns_however_many_requests_one_has() -> None:
    app = App()

    async def test() -> None:
        turnstile = Turnstile(app)
        requests = [turnstile(scope("hog"), nothing, nothing) for _ in range(50)]
        requests += [turnstile(scope(client), nothing, nothing) for client in ("a", "b", "b")]
        await asyncio.gather(*requests)

    asyncio.run(test())
    assert app.clients[:6] == ["hog", "hog", "a", "b", "hog", "b"]
    assert len(app.clients) == 53
    assert app.most_at_once <= 2


def test_a_request_that_is_cancelled_while_it_waits_is_passed_over() -> None:
    app = App()

    async def test() -> None:
        turnstile = Turnstile(app)
        tasks = [
            asyncio.ensure_future(turnstile(scope(client), nothing, nothing))
            for client in ("a", "b", "c")
        ]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await turnstile(scope("d"), nothing, nothing)

    asyncio.run(test())
    assert app.clients == ["a", "c", "d"]


def test_what_is_no_request_does_not_wait() -> None:
    entered = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        entered.append(scope["type"])

    asyncio.run(Turnstile(app)({"type": "lifespan"}, nothing, nothing))
    assert entered == ["lifespan"]
