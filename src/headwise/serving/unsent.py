"""A budget for answers that clients have not taken yet, over all connections."""

from collections import Counter
from typing import Protocol

from headwise.serving.logs import log


class Receiver(Protocol):
    """A connection that an answer is sent on."""

    @property
    def group(self) -> str:
        """Return the client that the connection belongs to."""

    def unsent(self) -> int:
        """Return how many bytes wait in memory for the client to take them."""

    def abort(self) -> None:
        """Close the connection and drop those bytes."""


class UnsentAnswers:
    """Keeps the unsent bytes of all connections within a budget by closing connections."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        # In the order in which they began to wait. A connection may have sent more since its size
        # was noted, never less: the total is exact or too high.
        self._sizes: dict[Receiver, int] = {}
        self._total = 0

    def note(self, connection: Receiver, size: int) -> None:
        """Note how many bytes a connection has not sent; make room if all together are too many."""
        self._set(connection, size)
        if self._total > self._most_bytes:
            self._make_room()

    def _set(self, connection: Receiver, size: int) -> None:
        self._total += size - self._sizes.get(connection, 0)
        if size:
            self._sizes[connection] = size
        else:
            self._sizes.pop(connection, None)

    def _make_room(self) -> None:
        """Close the connections that wait longest, of the client that holds most, until it fits.

        So a client that takes nothing on many connections cannot end the connections of others.
        """
        for connection in list(self._sizes):
            self._set(connection, connection.unsent())
        by_client: Counter[str] = Counter()
        for connection, size in self._sizes.items():
            by_client[connection.group] += size
        while self._total > self._most_bytes:
            (client, _), *_ = by_client.most_common(1)
            oldest = next(each for each in self._sizes if each.group == client)
            by_client[client] -= self._sizes[oldest]
            log("connection closed", reason="unsent answers exceed the budget")
            self._set(oldest, 0)
            oldest.abort()
