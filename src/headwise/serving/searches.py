"""What the searches of a model hold: sentences, loads of clients, and speed.

A sentence is whatever a search takes: a source to translate, or a prompt to continue.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from headwise.decoding import SearchSettings
from headwise.serving.fairness import Ticket

T = TypeVar("T", bound=Sized)
T_contra = TypeVar("T_contra", contravariant=True)
R = TypeVar("R")

_MOST_SENTENCES = 128
_MOST_TOKENS = 16_384
"""What a search may hold: sentences, and source tokens, counted once per hypothesis, and once per
sentence padded to the longest."""

_LIGHT_SENTENCES = 8
_LIGHT_TOKENS = 2048
"""What a client may have waiting and in progress before its sentences are searched in bulk:
sentences, and source tokens counted once per hypothesis."""

_BULK_SECONDS = 2.0
"""A client counts as bulk for this long after it had more than that."""
_MOST_BULK_CLIENTS = 1024


class Search(Protocol[T_contra, R]):
    """A search that numbered sentences can join at any time, such as an `OngoingSearch`."""

    def __len__(self) -> int:
        """Return how many sentences are being searched."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether `advance` would return without waiting."""
        ...

    def accepts(self, newcomers: int) -> bool:
        """Return whether this is a good time to add so many sentences."""
        ...

    def add(self, sources: Mapping[int, T_contra]) -> None:
        """Start searching for new sentences."""
        ...

    def advance(self) -> list[tuple[int, R]]:
        """Take a step; return the results of the sentences that it finished, or raise LostError.

        A false result stands for NaN logits.
        """
        ...

    def drop(self, numbers: Collection[int]) -> None:
        """Cancel some sentences as soon as possible."""
        ...


@dataclass(frozen=True)
class Source(Generic[T]):
    """A sentence, and its search settings."""

    item: T
    """What the search takes, whose length is in tokens."""
    settings: SearchSettings

    @property
    def tokens(self) -> int:
        """Its share of a search: source tokens, once per hypothesis."""
        return (len(self.item) + 1) * self.settings.beam


ClientOf = Callable[[int], str]
BeginSearch = Callable[[SearchSettings, Callable[[], None], ClientOf, bool], Search[T, R]]
"""Begins a search, given its settings, a callback for when it becomes ready by itself, a function
that returns the client of a sentence, and whether it is bulk."""


@dataclass(frozen=True)
class Lane:
    """The properties that sentences searched together share."""

    settings: SearchSettings
    is_bulk: bool


@dataclass(frozen=True, eq=False)
class Sentence(Generic[T, R]):
    """One sentence of a request."""

    ticket: Ticket[Source[T], R]
    index: int
    """Its place among the request's results."""
    source: Source[T]


@dataclass(eq=False)
class Running(Generic[T, R]):
    """A search in progress, its sentences, and how many of their tokens each client has."""

    search: Search[T, R]
    sentences: dict[int, Sentence[T, R]]
    tokens: Counter[str] = field(default_factory=Counter)
    turn: int = 0
    """The number of its last turn."""

    def has_room(self, source: Source[T], shares: float) -> bool:
        """Return whether there is room for a sentence in `shares` times the usual size."""
        size, most_tokens = len(self.sentences), _MOST_TOKENS * shares
        if not size:
            return True
        tokens = self.tokens.total() + source.tokens
        if size >= _MOST_SENTENCES * shares or tokens > most_tokens:
            return False
        longest = max(len(each.source.item) for each in self.sentences.values())
        return (size + 1) * (max(longest, len(source.item)) + 1) <= most_tokens

    def add(self, number: int, sentence: Sentence[T, R]) -> None:
        self.sentences[number] = sentence
        self.tokens[sentence.ticket.client] += sentence.source.tokens

    def remove(self, number: int) -> Sentence[T, R]:
        sentence = self.sentences.pop(number)
        client = sentence.ticket.client
        self.tokens[client] -= sentence.source.tokens
        if not self.tokens[client]:
            del self.tokens[client]
        return sentence


class ClientLoads:
    """What each client has waiting and in progress, and which clients are bulk."""

    def __init__(self) -> None:
        self._loads: dict[str, Counter[str]] = {}
        self._bulk_until: dict[str, float] = {}

    def add(self, client: str, sources: Iterable[Source[Any]]) -> None:
        """Count a client's new sentences."""
        if len(self._bulk_until) > _MOST_BULK_CLIENTS:
            now = time.monotonic()
            self._bulk_until = {c: end for c, end in self._bulk_until.items() if end > now}
        load = self._loads.setdefault(client, Counter())
        for source in sources:
            load["sentences"] += 1
            load["tokens"] += source.tokens

    def remove(self, client: str, sources: Iterable[Source[Any]]) -> None:
        """Stop counting sentences that neither wait nor are in progress any more."""
        for source in sources:
            load = self._loads[client]
            load["sentences"] -= 1
            load["tokens"] -= source.tokens
            if not load["sentences"]:
                del self._loads[client]

    def clear(self) -> None:
        """Stop counting all sentences."""
        self._loads = {}

    def is_bulk(self, client: str) -> bool:
        """Return whether a client's sentences are searched apart from those of light clients."""
        load, now = self._loads[client], time.monotonic()
        if load["sentences"] > _LIGHT_SENTENCES or load["tokens"] > _LIGHT_TOKENS:
            # For a while: a client near the limit would be divided between two searches.
            self._bulk_until[client] = now + _BULK_SECONDS
        return now < self._bulk_until.get(client, now)


@dataclass
class Speed:
    """Sentences per second, averaged over the last second or more of work."""

    per_second: float = 0.0
    _sentences: int = 0
    _since: float | None = None
    _busy_since: float | None = None

    def record(self, sentences: int, *, is_busy: bool) -> float:
        """Count sentences that are done; return the busy seconds since the last call.

        Time counts as busy if `is_busy` was given at its start.
        """
        now = time.monotonic()
        busy_seconds = 0.0 if self._busy_since is None else now - self._busy_since
        self._busy_since = now if is_busy else None
        if self._since is not None:
            self._sentences += sentences
            if now - self._since > 1 and self._sentences:
                self.per_second = self._sentences / (now - self._since)
                self._since, self._sentences = now, 0
        elif is_busy:
            self._since, self._sentences = now, 0
        if not is_busy:
            self._since = None
        return busy_seconds

    def seconds_for(self, sentences: int) -> float:
        """Estimate how long so many take; 1 second where nothing is known yet."""
        return sentences / self.per_second if self.per_second else 1.0
