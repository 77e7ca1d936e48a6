"""Event loop time by client: those that take most of it are read from more slowly.

To parse, refuse and log a request costs the server more than it costs a client to send it. So a
client on a few connections could keep the event loop busy with requests that are all refused. Where
the loop is busy and several clients use it, those that take more than a fair share are paused:
their connections are not read for up to a second, which costs nothing.
"""

import time
import types
from collections.abc import Awaitable, Callable, Generator
from math import exp, inf, log
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwise.serving.clients import TrustedProxies, client_group

_BUSY = 0.2
"""The part of the loop's time that clients may have together before some are paused. The compute
thread needs Python's lock, too: of the rest, it has what the loop leaves."""
_REFUND = 0.75
"""The part of its time that a request is given back once it is answered well: what clients ask for
is what the server is for, and is limited by what it costs to compute."""
CONNECTION_SECONDS = 0.0005
"""What it costs the event loop to accept a connection, about."""
_MEMORY_SECONDS = 1.0
_LOOK_SECONDS = 0.05
"""How long the fair share that was found is used."""
_LEAST = 0.001
"""What is too small a part to remember."""
_LONGEST_PAUSE = 1.0


class LoopTime:
    """The part of the event loop's time that each client has had lately."""

    def __init__(self, proxies: TrustedProxies) -> None:
        """Neither count nor pause trusted proxies: each of them sends for many clients."""
        self._proxies = proxies
        self._parts: dict[str, tuple[float, float]] = {}
        """Each client's part, and when it was that."""
        self._share, self._look_at = inf, 0.0

    def charge(self, address: str, seconds: float) -> None:
        """Count time that the loop has spent for a client."""
        if self._proxies.trusts(address):
            return
        client, now = client_group(address), time.monotonic()
        part = self._part(client, now) + seconds / _MEMORY_SECONDS
        self._parts[client] = (max(0.0, part), now)

    def pause(self, address: str) -> float:
        """Return for how many seconds not to read from a client: mostly 0."""
        client, now = client_group(address), time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            self._share = self._fair_share(now)
        part = self._part(client, now)
        if part <= self._share:
            return 0.0
        # Until then it will have fallen to the share.
        return min(_LONGEST_PAUSE, _MEMORY_SECONDS * log(part / self._share))

    def _part(self, client: str, now: float) -> float:
        part, since = self._parts.get(client, (0.0, now))
        return part * exp((since - now) / _MEMORY_SECONDS)

    def _fair_share(self, now: float) -> float:
        """Return the most that a client may have, so that all together have no more than `_BUSY`.

        A client that takes less keeps what it takes; the rest is divided evenly.
        """
        parts = {client: self._part(client, now) for client in self._parts}
        self._parts = {c: (part, now) for c, part in parts.items() if part > _LEAST}
        left, sizes = _BUSY, sorted(part for part, _ in self._parts.values())
        if len(sizes) < 2 or sum(sizes) <= _BUSY:
            return inf
        for place, size in enumerate(sizes):
            share = left / (len(sizes) - place)
            if size > share:
                return share
            left -= size
        return inf


class Metered:
    """Count the event loop's time that an application takes for each client."""

    def __init__(self, app: ASGIApp, loop_time: LoopTime) -> None:
        self._app, self._loop_time = app, loop_time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope.get("client"):
            await self._app(scope, receive, send)
            return
        address, spent, is_good = scope["client"][0], 0.0, False

        async def watched_send(message: Message) -> None:
            nonlocal is_good
            if message["type"] == "http.response.start":
                is_good = message["status"] < 400
            await send(message)

        def charge(seconds: float) -> None:
            nonlocal spent
            spent += seconds
            self._loop_time.charge(address, seconds)

        await _metered(self._app(scope, receive, watched_send), charge)
        if is_good:
            self._loop_time.charge(address, -_REFUND * (spent + CONNECTION_SECONDS))


@types.coroutine
def _metered(work: Awaitable[None], charge: Callable[[float], None]) -> Generator[Any, Any, None]:
    """Wait for something, and charge the time that it runs: not that in which it waits itself."""
    steps = work.__await__()
    error: BaseException | None = None
    while True:
        began = time.perf_counter()
        try:
            waits_for = next(steps) if error is None else steps.throw(error)
        except StopIteration:
            return
        finally:
            charge(time.perf_counter() - began)
        error = None
        try:
            yield waits_for
        except BaseException as caught:  # Cancelled, or what was waited for has failed.
            error = caught
