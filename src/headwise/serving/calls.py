"""Alignment, attention and token scores: small calls that take turns with the searches.

Each call is for one sentence or a few, so that a request's deadline or its client's hang-up is
noticed between two of them, and no other client waits for more than one.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from headwise.serving.batching import resolve
from headwise.serving.compute import Driver
from headwise.serving.fairness import FairQueue, Ticket
from headwise.serving.limits import Limits, RefusedError

Call = Callable[[], Any]


class Calls:
    """A queue of calls, made one at a time where models compute.

    `turn` is called by a driver's thread; everything else from one event loop.
    """

    def __init__(self, limits: Limits, driver: Driver, *, is_bulk: bool) -> None:
        self._limits, self._driver, self._is_bulk = limits, driver, is_bulk
        self._queue: FairQueue[Call, Any] = FairQueue()

    def start(self) -> None:
        """Remember the event loop that submits and is told the results; begin."""
        self._loop = asyncio.get_running_loop()
        self._driver.add(self)

    @property
    def is_alive(self) -> bool:
        """Whether it has been started, and not closed."""
        return self._driver.has(self)

    def close(self, seconds: float) -> None:
        """End; wait so long for the call that is under way."""
        self._driver.remove(self, seconds)

    def check_room(self, client: str) -> None:
        """Raise RefusedError where a client has as many calls waiting as its share of the queue.

        For a request that begins. One that was let in is bounded by its cost.
        """
        if not self._queue.has_room(client, 1, self._limits.queue):
            raise RefusedError(
                429, "too many sentences are waiting: try again in a moment", retry_after=1
            )

    async def results(self, calls: Iterable[Call], client: str) -> list[Any]:
        """Return what calls return, in their order. If this is cancelled, the rest is not made."""
        ticket: Ticket[Call, Any] = Ticket.of(client, calls, self._loop.create_future())
        if not ticket.size:
            return []
        with self._driver.changed:
            self._driver.turns.wake(client)
            self._queue.add(ticket)
            self._driver.wake()
        try:
            return await ticket.future
        finally:
            with self._driver.changed:
                self._queue.remove(ticket)

    def due(self) -> float | None:
        """Return whether there is something to do: at once (0), or not before it is told."""
        return 0 if len(self._queue) else None

    def place(self) -> tuple[float, float]:
        """Return the place of the client that is next."""
        return self._driver.turns.place(self._queue.clients, is_bulk=self._is_bulk)

    def turn(self) -> None:
        """Make one call."""
        with self._driver.changed:
            if not len(self._queue):
                return
            client = self._driver.turns.first(self._queue.clients)
            ticket, place, call = self._queue.pop(client)
        began = self._driver.clock()
        answer: Any = None
        try:
            ticket.results[place] = call()
            if not ticket.missing:
                answer = ticket.in_order
        except Exception as error:  # Fails this request only.
            answer = error
        with self._driver.changed:
            seconds = self._driver.clock() - began
            self._driver.turns.charge({client: 1}, seconds, is_bulk=self._is_bulk)
            if isinstance(answer, Exception):
                self._queue.remove(ticket)
        if answer is not None:
            self._driver.tell(self._loop, lambda: resolve([(ticket.future, answer)]))
