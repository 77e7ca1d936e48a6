"""Requests are admitted round-robin by client."""

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from headwise.serving.client_limits import RoundRobinGuard


async def nothing(*_: Any) -> Any:
    raise AssertionError("nothing is received or sent here")


class App:
    """Records the clients of admitted requests, and how many are admitted per loop iteration."""

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


def test_clients_take_turns_however_many_requests_one_has() -> None:
    app = App()

    async def test() -> None:
        guard = RoundRobinGuard(app)
        requests = [guard(scope("hog"), nothing, nothing) for _ in range(50)]
        requests += [guard(scope(client), nothing, nothing) for client in ("a", "b", "b")]
        await asyncio.gather(*requests)

    asyncio.run(test())
    assert app.clients[:6] == ["hog", "hog", "a", "b", "hog", "b"]
    assert len(app.clients) == 53
    assert app.most_at_once <= 2


def test_a_cancelled_waiting_request_is_skipped() -> None:
    app = App()

    async def test() -> None:
        guard = RoundRobinGuard(app)
        tasks = [
            asyncio.ensure_future(guard(scope(client), nothing, nothing))
            for client in ("a", "b", "c")
        ]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await guard(scope("d"), nothing, nothing)

    asyncio.run(test())
    assert app.clients == ["a", "c", "d"]


def test_lifespan_events_do_not_wait() -> None:
    entered = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        entered.append(scope["type"])

    asyncio.run(RoundRobinGuard(app)({"type": "lifespan"}, nothing, nothing))
    assert entered == ["lifespan"]
