"""How many connections are open: in all, and by each client."""

import time
from collections import Counter
from typing import NamedTuple

from headwise.serving.clients import TrustedProxies, client_group

_DELAY_SECONDS = 1.0
_MOST_DELAYED = 256
"""How many refused connections are held for a moment, in a moment: each has a file open."""


class Refusal(NamedTuple):
    """What to answer a connection too many, and after how many seconds."""

    answer: bytes
    seconds: float


class OpenConnections:
    """Counts connections, and says with which answer those beyond a limit are refused."""

    def __init__(self, *, most: int, most_per_client: int, proxies: TrustedProxies) -> None:
        """Exempt trusted proxies from `most_per_client`: each connects for many clients."""
        self.most, self._most_per_client, self._proxies = most, most_per_client, proxies
        self._total = self._num_delayed = 0
        self._delayed_since = 0.0
        self._by_client: Counter[str] = Counter()

    def add(self, address: str) -> "Refusal | None":
        """Count a connection; return how to refuse it, or None if there is room.

        A refused connection counts, too, until it is removed.
        """
        client = client_group(address)
        self._total += 1
        self._by_client[client] += 1
        if self._total > self.most:
            return Refusal(_TOO_MANY, 0.0)
        if self._by_client[client] > self._most_per_client and not self._proxies.trusts(address):
            # It could open and be refused a thousand a second.
            return Refusal(_TOO_MANY_FROM_CLIENT, self._delay())
        return None

    def _delay(self) -> float:
        """Return for how long to hold a connection before it is refused: not too many at once."""
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


def _answer(status: str, sentence: str) -> bytes:
    content = f'{{"error":"{sentence}"}}'
    return (
        f"HTTP/1.1 {status}\r\nConnection: close\r\nRetry-After: 1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n{content}"
    ).encode()


_TOO_MANY = _answer("503 Service Unavailable", "too many connections: try again later")
_TOO_MANY_FROM_CLIENT = _answer(
    "429 Too Many Requests",
    "too many connections from your address: close some, or use each for several requests",
)
