"""How many connections are open: in all, and by each client."""

from collections import Counter

from headwise.serving.clients import TrustedProxies, client_group


class OpenConnections:
    """Counts connections, and says with which answer those beyond a limit are refused."""

    def __init__(self, *, most: int, most_per_client: int, proxies: TrustedProxies) -> None:
        """Exempt trusted proxies from `most_per_client`: each connects for many clients."""
        self.most, self._most_per_client, self._proxies = most, most_per_client, proxies
        self._total = 0
        self._by_client: Counter[str] = Counter()

    def add(self, address: str) -> bytes | None:
        """Count a connection; return the answer that refuses it, or None if there is room.

        A refused connection counts, too, until it is removed.
        """
        client = client_group(address)
        self._total += 1
        self._by_client[client] += 1
        if self._total > self.most:
            return _TOO_MANY
        if self._by_client[client] > self._most_per_client and not self.is_proxy(address):
            return _TOO_MANY_FROM_CLIENT
        return None

    def is_proxy(self, address: str) -> bool:
        """Return whether connections from an address are those of many clients."""
        return self._proxies.trusts(address)

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
