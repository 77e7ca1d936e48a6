"""Share the server fairly: a queue that is round-robin by client, and compute time per client."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_CREDIT_SECONDS = 0.25
"""How much compute time a client gains at most over always active ones by being idle."""
_NEW_CREDIT_SECONDS = 0.02
"""The same for a new client: addresses are cheap."""
_LIGHT_WEIGHT = 4
"""How much more compute time light clients get than bulk ones, where both wait."""
_LIGHT_CREDIT_SECONDS = 0.25
_BULK_CREDIT_SECONDS = 0.02
"""How much weighted compute time a kind gains at most over the other by being idle."""
_MOST_HEADS = 64
"""How many of a client's requests are checked for one that can start."""
_MOST_CLIENTS = 1024
"""How many clients' compute times are kept; the longest idle ones are removed first."""


@dataclass(eq=False)
class Ticket(Generic[T, R]):
    """One request's items: those that wait, and the results of those that are done."""

    client: str
    size: int
    waiting: deque[tuple[int, T]]
    """Items that have not started, with their indices among the results."""
    future: asyncio.Future[list[R]]
    results: dict[int, R]
    wanted: bool = True

    @classmethod
    def of(
        cls, client: str, items: Iterable[T], future: "asyncio.Future[list[R]]"
    ) -> "Ticket[T, R]":
        """Make the ticket of a request that has not started; its results go to `future`."""
        waiting = deque(enumerate(items))
        return cls(client, len(waiting), waiting, future, {})

    @property
    def missing(self) -> int:
        """How many items have no result yet."""
        return self.size - len(self.results)

    @property
    def in_order(self) -> list[R]:
        """The results of all items, in order."""
        return [self.results[index] for index in range(self.size)]


class FairQueue(Generic[T, R]):
    """Waiting items, taken round-robin by client, and by request within a client.

    However much one client or request has queued, the next item of any other is taken after at most
    one item of each waiting client.
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
        """The waiting clients, the next first."""
        return list(self._tickets)

    def heads(self) -> Iterator[tuple[Ticket[T, R], T]]:
        """Yield the next item of each request; of a client with many, of its next requests."""
        for tickets in self._tickets.values():
            for ticket in islice(tickets, _MOST_HEADS):
                yield ticket, ticket.waiting[0][1]

    def has_room(self, client: str, items: int, limit: int) -> bool:
        """Return whether a client may queue so many more items.

        A client's share is the limit divided by the number of waiting clients, itself included. A
        client with nothing queued may exceed it: that delays only its own later requests.
        """
        ours = self.waiting_of(client)
        others = len(self._sizes) - (1 if ours else 0)
        return not ours or ours + items <= max(1, limit // (1 + others))

    def add(self, ticket: Ticket[T, R]) -> None:
        """Queue a request's items."""
        self._tickets.setdefault(ticket.client, deque()).append(ticket)
        self._sizes[ticket.client] = self.waiting_of(ticket.client) + len(ticket.waiting)
        self._size += len(ticket.waiting)

    def remove(self, ticket: Ticket[T, R]) -> list[T]:
        """Remove a request's waiting items, and return them."""
        items = [item for _, item in ticket.waiting]
        if items:
            self._forget(ticket, len(items))
            ticket.waiting.clear()
        return items

    def clear(self) -> list[Ticket[T, R]]:
        """Remove all items; return their requests."""
        tickets = [ticket for tickets in self._tickets.values() for ticket in tickets]
        for ticket in tickets:
            ticket.waiting.clear()
        self._tickets, self._sizes, self._size = {}, {}, 0
        return tickets

    def take(self, start: Callable[[Ticket[T, R], int, T], bool | None]) -> None:
        """Take items in turn as long as some can start.

        `start` starts an item and returns True. If it returns False, that request is skipped from
        then on; None stops taking items.
        """
        refused: set[Ticket[T, R]] = set()
        has_started: bool | None = True
        while has_started:
            has_started = False
            for client in self.clients:
                has_taken = self._take_one(client, start, refused)
                if has_taken is None:
                    return
                has_started |= has_taken

    def pop(self, client: str) -> tuple[Ticket[T, R], int, T]:
        """Take the next item of one client."""
        tickets = self._tickets[client]
        ticket = tickets[0]
        tickets.rotate(-1)
        index, item = ticket.waiting.popleft()
        self._started(ticket)
        return ticket, index, item

    def _take_one(
        self,
        client: str,
        start: Callable[[Ticket[T, R], int, T], bool | None],
        refused: set[Ticket[T, R]],
    ) -> bool | None:
        tickets = self._tickets[client]
        # Only those that `heads` yields: else one of its items could be blocked by another.
        for ticket in islice(tickets, _MOST_HEADS):
            if ticket in refused:
                continue
            has_started = start(ticket, *ticket.waiting[0])
            if has_started:
                # Next time, the client's other requests go first.
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
        """Count one item of a request as started; other clients go first now."""
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
    """Compute time per client: the client that has used least is next.

    A client that was idle comes before active ones, but by a bounded time: its short request is
    served at once, and a long pause does not let it block others afterwards.
    """

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        self._least = 0.0
        """The least time that an active client has used; it never falls."""

    @property
    def num_clients(self) -> int:
        """How many clients' times are kept."""
        return len(self._used)

    def wake(self, client: str) -> None:
        """Mark a client as active."""
        used = self._used.pop(client, self._least - _NEW_CREDIT_SECONDS)
        self._used[client] = max(used, self._least - _CREDIT_SECONDS)
        if len(self._used) > 2 * _MOST_CLIENTS:
            self._used = dict(list(self._used.items())[-_MOST_CLIENTS:])

    def least(self, clients: Iterable[str]) -> float:
        """Return the least time that any of these clients has used."""
        return min(self._used.get(client, self._least) for client in clients)

    def first(self, clients: Iterable[str]) -> str:
        """Return the client that has used least time."""
        return min(clients, key=lambda client: self._used.get(client, self._least))

    def charge(self, sizes: Mapping[str, int], seconds: float) -> None:
        """Divide compute time among clients in proportion to their sizes."""
        self._least = max(self._least, self.least(sizes))
        total = sum(sizes.values())
        for client, size in sizes.items():
            before = self._used.get(client, self._least)
            self._used[client] = before + seconds * size / total


class Turns:
    """The order of turns: light clients first, and within each kind by compute time.

    A client with little in progress is "light", one with much "bulk". By fair shares alone, a
    client that sends a sentence now and then would wait for a step of each that translates books.
    Bulk still gets a fifth of the time, so that light clients cannot starve it.
    """

    def __init__(self) -> None:
        self._shares = Shares()
        self._light = self._bulk = 0.0

    def wake(self, client: str) -> None:
        """Mark a client as active."""
        self._shares.wake(client)

    def priority(self, clients: Iterable[str], *, is_bulk: bool) -> tuple[float, float]:
        """Return a sort key: the smallest is computed next."""
        return (self._bulk if is_bulk else self._light), self._shares.least(clients)

    def first(self, clients: Iterable[str]) -> str:
        """Return the client that has used least compute time."""
        return self._shares.first(clients)

    def charge(self, sizes: Mapping[str, int], seconds: float, *, is_bulk: bool) -> None:
        """Divide compute time among clients in proportion to their sizes."""
        self._shares.charge(sizes, seconds)
        if is_bulk:
            self._bulk += seconds
            self._light = max(self._light, self._bulk - _LIGHT_CREDIT_SECONDS)
        else:
            self._light += seconds / _LIGHT_WEIGHT
            self._bulk = max(self._bulk, self._light - _BULK_CREDIT_SECONDS)
