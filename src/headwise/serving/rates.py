"""Rates: characters of a client a minute, requests of a client at once, sentences a second."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil

from headwise.serving.limits import RefusedError

_MOST_BUCKETS = 10_000
"""How many clients' allowances are kept before full ones, which say nothing, are removed."""


class CharacterRate:
    """A token bucket for each client: a minute's characters at once, refilled as time passes."""

    def __init__(self, per_minute: int | None) -> None:
        """Allow so many characters a minute; None: any number."""
        self._per_minute = per_minute
        self._buckets: dict[str, tuple[float, float]] = {}
        """What each client had left, and when."""

    def take(self, client: str, characters: int) -> None:
        """Count characters, or raise RefusedError. A refused request counts nothing.

        A request of more than a minute's characters needs a full bucket, and leaves a debt.
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
    """Requests of each client that are being answered."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._now: Counter[str] = Counter()

    @contextmanager
    def one(self, client: str) -> Iterator[None]:
        """Count a request while it is answered, or raise RefusedError."""
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


@dataclass
class Speed:
    """Sentences a second, lately, while there was something to do."""

    per_second: float = 0.0
    _sentences: int = 0
    _since: float | None = None

    def note(self, sentences: int, *, is_busy: bool) -> None:
        now = time.monotonic()
        if self._since is not None:
            self._sentences += sentences
            if now - self._since > 1 and self._sentences:
                self.per_second = self._sentences / (now - self._since)
                self._since, self._sentences = now, 0
        elif is_busy:
            self._since, self._sentences = now, 0
        if not is_busy:
            self._since = None

    def seconds_for(self, sentences: int) -> float:
        """Return how long so many will take; a second where nothing is known yet."""
        return sentences / self.per_second if self.per_second else 1.0
