"""Requests enter the application round-robin by client, one in each turn of the event loop.

To parse and check a request takes up to some 20 ms of the event loop. Entering in the order they
come, the requests of one client on a hundred connections would all be parsed before that of another
client. Here another client's request waits for one of each client at most.
"""

import asyncio
from collections import deque

from starlette.types import ASGIApp, Receive, Scope, Send


class Turnstile:
    """Let requests into an application one by one, clients taking turns."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_open = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._enter(scope["state"]["client"])
        await self._app(scope, receive, send)

    async def _enter(self, client: str) -> None:
        loop = asyncio.get_running_loop()
        if self._is_open:
            self._is_open = False
            loop.call_soon(self._next)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        await turn

    def _next(self) -> None:
        """Let in the next request, of the client that has waited longest since its last one."""
        turn = self._pop()
        if turn is None:
            self._is_open = True
            return
        turn.set_result(None)
        asyncio.get_running_loop().call_soon(self._next)

    def _pop(self) -> asyncio.Future[None] | None:
        while self._waiting:
            client = next(iter(self._waiting))
            turns = self._waiting.pop(client)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.done():  # Its request may have been cancelled.
                return turn
        return None
