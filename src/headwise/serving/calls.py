"""Make small calls (alignment, attention, token scores) in turns with the searches.

Each call is for one sentence or a few, so that a request's deadline or its client's disconnection
is noticed between two of them, and no other client waits for more than one.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from headwise.serving.compute import Driver, set_results
from headwise.serving.fairness import FairQueue, Ticket
from headwise.serving.limits import Limits, RefusedError

Call = Callable[[], Any]


class Calls:
    """A queue of calls, made one at a time by the driver that searches.

    A driver's thread calls `turn`; everything else is called in the event loop.
    """

    def __init__(self, limits: Limits, driver: Driver, *, is_bulk: bool) -> None:
        self._limits, self._driver, self._is_bulk = limits, driver, is_bulk
        self._queue: FairQueue[Call, Any] = FairQueue()

    def check_room(self, client: str) -> None:
        """Raise RefusedError if a client has as many calls waiting as its share of the queue.

        For new requests: an accepted one is limited by its cost.
        """
        if not self._queue.has_room(client, 1, self._limits.queue):
            raise RefusedError(
                429, "too many sentences are waiting: try again in a moment", retry_after=1
            )

    async def results(self, calls: Iterable[Call], client: str) -> list[Any]:
        """Return the calls' results in order. If cancelled, the remaining calls are not made."""
        ticket: Ticket[Call, Any] = Ticket.of(
            client, calls, asyncio.get_running_loop().create_future()
        )
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
        """Return 0 if calls are waiting, else None: not until `wake`."""
        return 0 if len(self._queue) else None

    def priority(self) -> tuple[float, float]:
        """Return the priority of the client that is next."""
        return self._driver.turns.priority(self._queue.clients, is_bulk=self._is_bulk)

    def turn(self) -> None:
        """Make one call."""
        with self._driver.changed:
            if not len(self._queue):
                return
            client = self._driver.turns.first(self._queue.clients)
            ticket, index, call = self._queue.pop(client)
        began = self._driver.clock()
        result: Any = None
        try:
            ticket.results[index] = call()
            if not ticket.missing:
                result = ticket.in_order
        except Exception as error:  # Fails this request only.
            result = error
        with self._driver.changed:
            seconds = self._driver.clock() - began
            self._driver.turns.charge({client: 1}, seconds, is_bulk=self._is_bulk)
            if isinstance(result, Exception):
                self._queue.remove(ticket)
        if result is not None:
            loop = ticket.future.get_loop()
            self._driver.call_soon(loop, lambda: set_results([(ticket.future, result)]))
