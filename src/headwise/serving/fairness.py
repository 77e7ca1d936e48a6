"""Whose turn it is: a queue taken round-robin by client, and compute time by client and by kind."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_CREDIT_SECONDS = 0.25
"""By how much compute time a client that was idle may come before those that never are."""
_NEW_CREDIT_SECONDS = 0.02
"""The same for a client that was never seen: addresses are cheap."""
_LIGHT_WEIGHT = 4
"""How much more compute time short requests get than long ones, where both wait."""
_LIGHT_CREDIT_SECONDS = 0.25
_BULK_CREDIT_SECONDS = 0.02
"""By how much weighted compute time one kind may come before the other after it was idle."""
_MOST_HEADS = 64
"""How many of a client's requests are looked at to find out whether one can start."""
_MOST_CLIENTS = 1024
"""How many clients' compute times are kept; those that have been idle for longest go first."""


@dataclass(eq=False)
class Ticket(Generic[T, R]):
    """One request's items: those that wait, and the results of those that are done."""

    client: str
    size: int
    waiting: deque[tuple[int, T]]
    """Items that were not started, with their places among the results."""
    future: asyncio.Future[list[R]]
    results: dict[int, R]
    wanted: bool = True

    @classmethod
    def of(
        cls, client: str, items: Iterable[T], future: "asyncio.Future[list[R]]"
    ) -> "Ticket[T, R]":
        """Make a request's ticket before any of its items has started."""
        waiting = deque(enumerate(items))
        return cls(client, len(waiting), waiting, future, {})

    @property
    def missing(self) -> int:
        """How many items have no result yet."""
        return self.size - len(self.results)

    @property
    def in_order(self) -> list[R]:
        """The results of all items."""
        return [self.results[place] for place in range(self.size)]


class FairQueue(Generic[T, R]):
    """Items that wait, taken round-robin: client by client, and request by request within a client.

    However much one client or one request has queued, the next item of any other is taken after at
    most one item of each client that waits.
    """

    def __init__(self) -> None:
        self._tickets: dict[str, deque[Ticket[T, R]]] = {}
        self._sizes: dict[str, int] = {}
        self._size = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return self._size

    def waiting_of(self, client: str) -> int:
        """Return how many items of one client wait."""
        return self._sizes.get(client, 0)

    @property
    def clients(self) -> list[str]:
        """The clients that wait, the next first."""
        return list(self._tickets)

    def heads(self) -> Iterator[tuple[Ticket[T, R], T]]:
        """Yield the next item of each request; of a client's many requests, of the next ones."""
        for tickets in self._tickets.values():
            for ticket in islice(tickets, _MOST_HEADS):
                yield ticket, ticket.waiting[0][1]

    def has_room(self, client: str, items: int, limit: int) -> bool:
        """Return whether a client may queue so many items more.

        A client's share is the limit divided by the number of clients that wait, itself included.
        What is more than that is let in where nothing else of that client waits: it delays only
        that client's own requests.
        """
        ours = self.waiting_of(client)
        others = len(self._sizes) - (1 if ours else 0)
        return not ours or ours + items <= max(1, limit // (1 + others))

    def add(self, ticket: Ticket[T, R]) -> None:
        """Let a request's items wait."""
        self._tickets.setdefault(ticket.client, deque()).append(ticket)
        self._sizes[ticket.client] = self.waiting_of(ticket.client) + len(ticket.waiting)
        self._size += len(ticket.waiting)

    def remove(self, ticket: Ticket[T, R]) -> list[T]:
        """Take a request's items out; return those that had not started."""
        items = [item for _, item in ticket.waiting]
        if items:
            self._forget(ticket, len(items))
            ticket.waiting.clear()
        return items

    def clear(self) -> list[Ticket[T, R]]:
        """Take all items out; return the requests they were of."""
        tickets = [ticket for tickets in self._tickets.values() for ticket in tickets]
        for ticket in tickets:
            ticket.waiting.clear()
        self._tickets, self._sizes, self._size = {}, {}, 0
        return tickets

    def take(self, starts: Callable[[Ticket[T, R], int, T], bool | None]) -> None:
        """Take items in turn as long as some can start.

        `starts` starts an item and returns True. Where it returns False, no item of that request is
        offered again; None ends it all.
        """
        refused: set[Ticket[T, R]] = set()
        has_started: bool | None = True
        while has_started:
            has_started = False
            for client in self.clients:
                has_taken = self._take_one(client, starts, refused)
                if has_taken is None:
                    return
                has_started |= has_taken

    def pop(self, client: str) -> tuple[Ticket[T, R], int, T]:
        """Take the next item of one client."""
        tickets = self._tickets[client]
        ticket = tickets[0]
        tickets.rotate(-1)
        place, item = ticket.waiting.popleft()
        self._started(ticket)
        return ticket, place, item

    def _take_one(
        self,
        client: str,
        starts: Callable[[Ticket[T, R], int, T], bool | None],
        refused: set[Ticket[T, R]],
    ) -> bool | None:
        tickets = self._tickets[client]
        # Those that `heads` yields, and no others: else it could name one that another prevents.
        for ticket in islice(tickets, _MOST_HEADS):
            if ticket in refused:
                continue
            has_started = starts(ticket, *ticket.waiting[0])
            if has_started:
                # The next time, the client's other requests go first.
                tickets.remove(ticket)
                tickets.append(ticket)
                ticket.waiting.popleft()
                self._started(ticket)
                return True
            if has_started is None:
                return None
            refused.add(ticket)
        return False

    def _started(self, ticket: Ticket[T, R]) -> None:
        """Note that one item of a request waits no more, and let other clients go first."""
        client = ticket.client
        if ticket.waiting:
            self._sizes[client] -= 1
            self._size -= 1
        else:
            self._forget(ticket, 1)
        if client in self._tickets:
            self._tickets[client] = self._tickets.pop(client)

    def _forget(self, ticket: Ticket[T, R], items: int) -> None:
        tickets = self._tickets[ticket.client]
        tickets.remove(ticket)
        self._sizes[ticket.client] -= items
        self._size -= items
        if not tickets:
            del self._tickets[ticket.client], self._sizes[ticket.client]


class Shares:
    """Compute time by client: the client that has had least is next.

    A client that was idle comes before those that were not, but by a bounded time: a short request
    is served at once, and a long pause earns no right to keep others waiting afterwards.
    """

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        self._least = 0.0
        """The least time that an active client has had; it never falls."""

    def wake(self, client: str) -> None:
        """Note that a client has something to compute."""
        used = self._used.pop(client, self._least - _NEW_CREDIT_SECONDS)
        self._used[client] = max(used, self._least - _CREDIT_SECONDS)
        if len(self._used) > 2 * _MOST_CLIENTS:
            self._used = dict(list(self._used.items())[-_MOST_CLIENTS:])

    def least(self, clients: Iterable[str]) -> float:
        """Return the least time that any of these clients has had."""
        return min(self._used.get(client, self._least) for client in clients)

    def first(self, clients: Iterable[str]) -> str:
        """Return the client that has had least time."""
        return min(clients, key=lambda client: self._used.get(client, self._least))

    def charge(self, sizes: Mapping[str, int], seconds: float) -> None:
        """Divide compute time among the clients it was for, by how much of it each had."""
        self._least = max(self._least, self.least(sizes))
        total = sum(sizes.values())
        for client, size in sizes.items():
            before = self._used.get(client, self._least)
            self._used[client] = before + seconds * size / total


class Turns:
    """Whose turn it is to compute: short requests first, and of each kind the client with least.

    A client with little under way is "light", one with much "bulk". By fair shares alone, a client
    that asks for a sentence now and then would wait for a step of each that translates books. Bulk
    still gets a fifth, so that short requests cannot starve it.
    """

    def __init__(self) -> None:
        self._shares = Shares()
        self._light = self._bulk = 0.0

    def wake(self, client: str) -> None:
        """Note that a client has something to compute."""
        self._shares.wake(client)

    def place(self, clients: Iterable[str], *, is_bulk: bool) -> tuple[float, float]:
        """Return a sort key: what has the smallest is computed next."""
        return (self._bulk if is_bulk else self._light), self._shares.least(clients)

    def first(self, clients: Iterable[str]) -> str:
        """Return the client that has had least compute time."""
        return self._shares.first(clients)

    def charge(self, sizes: Mapping[str, int], seconds: float, *, is_bulk: bool) -> None:
        """Count compute time for the clients it was for, by how much of it each had."""
        self._shares.charge(sizes, seconds)
        if is_bulk:
            self._bulk += seconds
            self._light = max(self._light, self._bulk - _LIGHT_CREDIT_SECONDS)
        else:
            self._light += seconds / _LIGHT_WEIGHT
            self._bulk = max(self._bulk, self._light - _BULK_CREDIT_SECONDS)
