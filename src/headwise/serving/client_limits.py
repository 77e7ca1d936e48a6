"""Limit each client: its rates, requests, connections, unsent responses and event loop time."""

import asyncio
import time
import types
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from math import ceil, exp, inf
from math import log as natural_log
from typing import Any, NamedTuple, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwise.serving.clients import TrustedProxies, client_group
from headwise.serving.limits import RefusedError
from headwise.serving.logs import log

_MOST_BUCKETS = 10_000
"""How many clients' buckets are kept before full ones are removed."""


class CharacterRate:
    """A token bucket per client: holds one minute's characters, and refills continuously."""

    def __init__(self, per_minute: int | None) -> None:
        """Allow so many characters per minute; None: unlimited."""
        self._per_minute = per_minute
        self._buckets: dict[str, tuple[float, float]] = {}
        """What each client had left, and at which time."""

    def take(self, client: str, characters: int) -> None:
        """Count characters, or raise RefusedError. A refused request is not counted.

        A request of more than one minute's characters needs a full bucket, and leaves a debt.
        """
        if self._per_minute is None:
            return
        now, most = time.monotonic(), float(self._per_minute)
        left = self._left(client, now)
        missing = min(characters, most) - left
        if missing > 0:
            raise RefusedError(
                429,
                f"more than {self._per_minute:,} characters a minute: try again later",
                retry_after=ceil(missing / most * 60),
            )
        self._buckets[client] = (left - characters, now)
        if len(self._buckets) > _MOST_BUCKETS:
            self._buckets = {
                name: bucket
                for name, bucket in self._buckets.items()
                if self._left(name, now) < most
            }

    def _left(self, client: str, now: float) -> float:
        assert self._per_minute is not None
        left, since = self._buckets.get(client, (float(self._per_minute), now))
        return min(self._per_minute, left + (now - since) * self._per_minute / 60)


class Concurrency:
    """Limit the concurrent requests of each client."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._now: Counter[str] = Counter()

    @contextmanager
    def one(self, client: str) -> Iterator[None]:
        """Count a request while it is handled, or raise RefusedError."""
        if self._now[client] >= self._most:
            raise RefusedError(
                429,
                f"more than {self._most:,} requests at once: wait for one to be answered",
                retry_after=1,
            )
        self._now[client] += 1
        try:
            yield
        finally:
            self._now[client] -= 1
            if not self._now[client]:
                del self._now[client]


class RoundRobinGuard:
    """Admit requests to an application round-robin by client, one per iteration of the event loop.

    To parse and check a request takes up to 20 ms of the event loop. Admitted in order of arrival,
    the requests of one client on a hundred connections would all be parsed before the request of
    another client. Here it waits for at most one request of each other client.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_idle = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._enter(scope["state"]["client"])
        await self._app(scope, receive, send)

    async def _enter(self, client: str) -> None:
        loop = asyncio.get_running_loop()
        if self._is_idle:
            self._is_idle = False
            loop.call_soon(self._admit_next)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        await turn

    def _admit_next(self) -> None:
        """Admit the next request of the client whose last one is longest ago."""
        turn = self._pop()
        if turn is None:
            self._is_idle = True
            return
        turn.set_result(None)
        asyncio.get_running_loop().call_soon(self._admit_next)

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


_MOST_LOOP_SHARE = 0.2
"""The share of the event loop's time that all clients may use before some are paused. The compute
thread needs the GIL, too, and runs Python code only while the event loop does not."""
_REFUND = 0.75
"""The share of its time that a client gets back for a request with a successful response: those are
limited by their compute cost."""
CONNECTION_SECONDS = 0.0005
"""About what it costs the event loop to accept a connection."""
_DECAY_SECONDS = 1.0
"""Time constant with which a client's share decays."""
_UPDATE_SECONDS = 0.05
"""How long a computed fair share is used."""
_LEAST_SHARE = 0.001
"""Smaller shares are forgotten."""
_LONGEST_PAUSE = 1.0


class LoopTime:
    """The share of the event loop's time that each client has used recently.

    To parse, refuse and log a request costs the server more than it costs a client to send it. So a
    client on a few connections could keep the event loop busy with requests that are all refused.
    Where the loop is busy and several clients use it, those above the fair share are paused: their
    connections are not read for up to a second, which costs nothing.
    """

    def __init__(self, proxies: TrustedProxies) -> None:
        """Neither count nor pause trusted proxies: each sends for many clients."""
        self._proxies = proxies
        self._shares: dict[str, tuple[float, float]] = {}
        """Each client's share, and the time at which it had that value."""
        self._fair_share, self._update_at = inf, 0.0

    @property
    def num_clients(self) -> int:
        """How many clients' shares are kept."""
        return len(self._shares)

    def charge(self, address: str, seconds: float) -> None:
        """Count time that the event loop spent on a client."""
        if self._proxies.trusts(address):
            return
        client, now = client_group(address), time.monotonic()
        share = self._share(client, now) + seconds / _DECAY_SECONDS
        self._shares[client] = (max(0.0, share), now)

    def pause(self, address: str) -> float:
        """Return for how many seconds not to read from a client: usually 0."""
        client, now = client_group(address), time.monotonic()
        if now >= self._update_at:
            self._update_at = now + _UPDATE_SECONDS
            self._fair_share = self._find_fair_share(now)
        share = self._share(client, now)
        if share <= self._fair_share:
            return 0.0
        # After this time it will have decayed to the fair share.
        return min(_LONGEST_PAUSE, _DECAY_SECONDS * natural_log(share / self._fair_share))

    def _share(self, client: str, now: float) -> float:
        share, since = self._shares.get(client, (0.0, now))
        return share * exp((since - now) / _DECAY_SECONDS)

    def _find_fair_share(self, now: float) -> float:
        """Return the most per client with which all together use at most `_MOST_LOOP_SHARE`.

        A client that uses less keeps its share; the rest is divided evenly.
        """
        shares = {client: self._share(client, now) for client in self._shares}
        self._shares = {c: (share, now) for c, share in shares.items() if share > _LEAST_SHARE}
        left, used = _MOST_LOOP_SHARE, sorted(share for share, _ in self._shares.values())
        if len(used) < 2 or sum(used) <= _MOST_LOOP_SHARE:
            return inf
        for index, share in enumerate(used):
            fair = left / (len(used) - index)
            if share > fair:
                return fair
            left -= share
        return inf


class LoopTimeMeter:
    """Measure the event loop time that an application uses for each client."""

    def __init__(self, app: ASGIApp, loop_time: LoopTime) -> None:
        self._app, self._loop_time = app, loop_time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope.get("client"):
            await self._app(scope, receive, send)
            return
        address, spent, is_success = scope["client"][0], 0.0, False

        async def watched_send(message: Message) -> None:
            nonlocal is_success
            if message["type"] == "http.response.start":
                is_success = message["status"] < 400
            await send(message)

        def charge(seconds: float) -> None:
            nonlocal spent
            spent += seconds
            self._loop_time.charge(address, seconds)

        await _measured(self._app(scope, receive, watched_send), charge)
        if is_success:
            self._loop_time.charge(address, -_REFUND * (spent + CONNECTION_SECONDS))


@types.coroutine
def _measured(work: Awaitable[None], charge: Callable[[float], None]) -> Generator[Any, Any, None]:
    """Await something, and charge the time in which it runs, not the time in which it waits."""
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
        except BaseException as caught:  # Cancelled, or the awaited future has failed.
            error = caught


_DELAY_SECONDS = 1.0
_MOST_DELAYED = 256
"""How many refused connections per `_DELAY_SECONDS` are held open: each uses a file descriptor."""


class Refusal(NamedTuple):
    """The response to a connection beyond a limit, and after how many seconds to send it."""

    response: bytes
    seconds: float


class OpenConnections:
    """Count open connections, in total and per client, and refuse those beyond a limit."""

    def __init__(self, *, most: int, most_per_client: int, proxies: TrustedProxies) -> None:
        """Exempt trusted proxies from `most_per_client`: each connects for many clients."""
        self.most, self.most_per_client, self._proxies = most, most_per_client, proxies
        self._total = self._num_delayed = 0
        self._delayed_since = 0.0
        self._by_client: Counter[str] = Counter()

    def add(self, address: str) -> "Refusal | None":
        """Count a connection; return how to refuse it, or None if there is room.

        A refused connection counts until it is removed, too.
        """
        client = client_group(address)
        self._total += 1
        self._by_client[client] += 1
        if self._total > self.most:
            return Refusal(_TOO_MANY, 0.0)
        if self._by_client[client] > self.most_per_client and not self._proxies.trusts(address):
            # Delayed: else it could open a thousand connections per second.
            return Refusal(_TOO_MANY_FROM_CLIENT, self._delay())
        return None

    def _delay(self) -> float:
        """Return for how long to hold a connection before refusing it, unless too many are held."""
        now = time.monotonic()
        if now - self._delayed_since > _DELAY_SECONDS:
            self._delayed_since, self._num_delayed = now, 0
        self._num_delayed += 1
        return _DELAY_SECONDS if self._num_delayed <= _MOST_DELAYED else 0.0

    def remove(self, address: str) -> None:
        """Stop counting a connection that was added."""
        client = client_group(address)
        self._total -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]

    @property
    def num_clients(self) -> int:
        """How many clients have open connections."""
        return len(self._by_client)


def _response(status: str, sentence: str) -> bytes:
    content = f'{{"error":"{sentence}"}}'
    return (
        f"HTTP/1.1 {status}\r\nConnection: close\r\nRetry-After: 1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n{content}"
    ).encode()


_TOO_MANY = _response("503 Service Unavailable", "too many connections: try again later")
_TOO_MANY_FROM_CLIENT = _response(
    "429 Too Many Requests",
    "too many connections from your address: close some, or use each for several requests",
)


class Receiver(Protocol):
    """A connection that responses are sent on."""

    @property
    def group(self) -> str:
        """The client that the connection belongs to."""

    def unsent(self) -> int:
        """Return how many bytes of responses wait in memory to be sent."""

    def abort(self) -> None:
        """Close the connection and discard those bytes."""


class UnsentResponses:
    """Keep the unsent bytes of all connections within a budget by closing connections."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        # The longest waiting connection first. A connection may have sent more since its size was
        # recorded, never less: the total is exact or too high.
        self._sizes: dict[Receiver, int] = {}
        self.total = 0
        """Unsent bytes of all connections."""

    @property
    def num_connections(self) -> int:
        """How many connections have unsent bytes."""
        return len(self._sizes)

    def record(self, connection: Receiver, size: int) -> None:
        """Record a connection's unsent bytes; close connections if the total is above the budget.

        The longest waiting connection of the client with most unsent bytes is closed first. So a
        client that reads nothing on many connections cannot end the connections of others.
        """
        self._set(connection, size)
        if self.total > self._most_bytes:
            self._make_room()

    def _set(self, connection: Receiver, size: int) -> None:
        self.total += size - self._sizes.get(connection, 0)
        if size:
            self._sizes[connection] = size
        else:
            self._sizes.pop(connection, None)

    def _make_room(self) -> None:
        for connection in list(self._sizes):
            self._set(connection, connection.unsent())
        by_client: Counter[str] = Counter()
        for connection, size in self._sizes.items():
            by_client[connection.group] += size
        while self.total > self._most_bytes:
            (client, _), *_ = by_client.most_common(1)
            oldest = next(each for each in self._sizes if each.group == client)
            by_client[client] -= self._sizes[oldest]
            log("connection closed", reason="unsent answers exceed the budget")
            self._set(oldest, 0)
            oldest.abort()
