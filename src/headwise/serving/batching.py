"""Search for the sentences of many clients together (continuous batching).

Here a sentence is a source to translate or a prompt to continue.

A model searches for all its sentences at once, one step at a time. New sentences join at one of the
next steps; those that are done leave and are answered. So no request waits for a batch to fill, nor
for the rest of a batch to end.

Sentences are taken from the queue round-robin by client. A client with much in progress ("bulk") is
searched apart from clients with little ("light"). Light searches come first, and within each kind
the search with the client that has used least compute time: a short request is served within a few
steps, whatever others have queued. docs/decisions/0013-fair-shares.md has the reasons.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import count
from math import ceil, inf
from typing import Any, Generic

from headwise.decoding import SearchSettings
from headwise.serving.compute import Driver, set_results
from headwise.serving.fairness import FairQueue, Ticket
from headwise.serving.limits import Limits, RefusedError
from headwise.serving.logs import log_error
from headwise.serving.observation import Metrics
from headwise.serving.searches import (
    BeginSearch,
    ClientLoads,
    Lane,
    R,
    Running,
    Sentence,
    Source,
    Speed,
    T,
)
from headwise.tasks.translation.engine import LostError

MOST_SEARCHES = 2
"""Most searches at once, of each kind, with settings other than the model's own. The model's own
settings always get a search of each kind."""

_LIGHT_SECONDS = 2.0
_BULK_BESIDE_LIGHT = 0.25
"""For so long after a light client's request, bulk searches hold this part of the usual."""

_FIRST = (-inf, -inf)
"""The priority of work that costs no compute time: ending a search without sentences."""

_POLL_SECONDS = 0.005
"""How often to ask a search again that accepts no sentences."""


class _Start(Enum):
    """When a waiting sentence can start."""

    NOW = 0
    SOON = 1
    LATER = 2
    """Once a search has room or ends."""


@dataclass(frozen=True)
class _Waiting(Generic[T, R]):
    """The requests that wait for a search, the next first, and when that one can start."""

    start: _Start
    tickets: list[Ticket[Source[T], R]]


class Batcher(Generic[T, R]):
    """A model's queue, and the searches that take sentences from it.

    A driver calls `turn`, perhaps in another thread; everything else is called in the event loop.
    Shared state is accessed while holding the driver's `changed`.
    """

    def __init__(
        self,
        name: str,
        search: BeginSearch[T, R],
        limits: Limits,
        metrics: Metrics,
        driver: Driver,
        *,
        default: SearchSettings | None = None,
        shares: Callable[[], int] = lambda: 1,
        is_free: Callable[[], bool] = lambda: True,
    ) -> None:
        """Hold `shares` times as many sentences at once as a single process should.

        `default` are the settings that always get a search. A search begins only if something
        `is_free` to compute it.
        """
        self._search, self._limits, self._driver = search, limits, driver
        self._default = default or SearchSettings()
        self._shares, self._is_free = shares, is_free
        self._queue: FairQueue[Source[T], R] = FairQueue()
        self._loads = ClientLoads()
        self._has_unwanted = False  # Whether sentences in progress are to be dropped.
        self._running: dict[Lane, Running[T, R]] = {}
        self._numbers, self._turns = count(), count()
        self._results: list[tuple[asyncio.Future[Any], Any]] = []
        self._speed = Speed()
        self._done = 0  # Sentences, in this turn.
        self._progress_at, self._light_at = time.monotonic(), -inf
        self._dropped = metrics.dropped.labels(name)
        self._batches = metrics.batches.labels(name)
        self._seconds = metrics.search_seconds.labels(name)
        self._tokens = metrics.source_tokens.labels(name)
        self._failed_turns = metrics.failed_turns.labels(name)
        metrics.waiting.labels(name).set_function(lambda: len(self._queue))

    @property
    def num_searches(self) -> int:
        """How many searches are in progress."""
        return len(self._running)

    @property
    def stalled_seconds(self) -> float:
        """For how long sentences have been in progress without a step or a result."""
        return time.monotonic() - self._progress_at if self._running else 0.0

    def check_room(self, client: str, sentences: int = 1) -> None:
        """Raise RefusedError if a client would have more sentences waiting than its share."""
        if not self._queue.has_room(client, sentences, self._limits.queue):
            seconds = self._speed.seconds_for(len(self._queue))
            raise RefusedError(
                429,
                "too many sentences are waiting: try again in a moment",
                retry_after=max(1, min(60, ceil(seconds))),
            )

    def submit(
        self, sources: Iterable[T], settings: SearchSettings, client: str = ""
    ) -> Ticket[Source[T], R]:
        """Queue sentences; the ticket's future gets their results."""
        items = [Source(item, settings) for item in sources]
        ticket: Ticket[Source[T], R] = Ticket.of(
            client, items, asyncio.get_running_loop().create_future()
        )
        if not items:
            ticket.future.set_result([])
            return ticket
        with self._driver.changed:
            self.check_room(client, len(items))
            self._driver.turns.wake(client)
            self._loads.add(client, items)
            self._queue.add(ticket)
            self._driver.wake()
        return ticket

    def drop(self, ticket: Ticket[Source[T], R]) -> None:
        """Drop the unfinished sentences of a ticket, those that wait and those in progress."""
        with self._driver.changed:
            if not ticket.missing or not ticket.wanted:
                return
            ticket.wanted = False
            waiting = self._queue.remove(ticket)
            self._loads.remove(ticket.client, waiting)
            self._has_unwanted |= ticket.missing > len(waiting)
            self._dropped.inc(ticket.missing)
            self._driver.wake()

    def due(self) -> float | None:
        """Return in how many seconds to take a turn: 0, a few, or None for not until `wake`."""
        if self._has_unwanted or any(each.search.is_ready for each in self._running.values()):
            return 0
        starts = [waiting.start for waiting in self._waiting().values()]
        if _Start.NOW in starts:
            return 0
        return _POLL_SECONDS if _Start.SOON in starts else None

    def priority(self) -> tuple[float, float]:
        """Return the priority of the search that is next."""
        return min(self._next_lanes(self._waiting()).values(), default=_FIRST)

    def turn(self) -> None:
        """Add waiting sentences to one of the searches, and take a step of it."""
        try:
            self._turn()
        except Exception as error:
            # A bug: all current requests fail, and later ones are served.
            with self._driver.changed:
                self._reset(error)
            self._failed_turns.inc()
            log_error("a turn has failed")
        finally:
            self._deliver()

    def _turn(self) -> None:
        self._done = 0
        with self._driver.changed:
            self._has_unwanted = False
        self._drop_unwanted()
        with self._driver.changed:
            waiting = self._waiting()
            lanes = self._next_lanes(waiting)
            lane = min(lanes, key=lambda each: (lanes[each], self._turn_of(each)), default=None)
            new: dict[int, Sentence[T, R]] = {}
            if lane in waiting and waiting[lane].start is _Start.NOW:
                new = self._take_from_queue(lane, waiting[lane].tickets)
        if lane is not None and (running := self._running.get(lane)) is not None:
            try:
                self._advance(lane, running, new)
            except Exception as error:  # Fails this search only.
                log_error("a search has failed")
                self._end(lane, error)
        for each, running in list(self._running.items()):
            # A search that cannot be interrupted continues with dropped sentences.
            if not running.sentences and not running.search:
                del self._running[each]
        self._seconds.inc(self._speed.record(self._done, is_busy=bool(self._running)))

    def _turn_of(self, lane: Lane) -> int:
        """Return the number of a search's last turn: a client's own searches take turns."""
        running = self._running.get(lane)
        return -1 if running is None else running.turn

    def _lane(self, ticket: Ticket[Source[T], R], source: Source[T]) -> Lane:
        """Return which search a sentence belongs to now: its client's load decides."""
        return Lane(source.settings, self._loads.is_bulk(ticket.client))

    def _waiting(self) -> dict[Lane, _Waiting[T, R]]:
        """Return the requests that wait for each search, and when the first of them can start."""
        tickets: dict[Lane, list[Ticket[Source[T], R]]] = {}
        for ticket, source in self._queue.heads():
            tickets.setdefault(self._lane(ticket, source), []).append(ticket)
        # While a request waits for a search with other settings to end, no such search takes new
        # sentences, so that one of them does end.
        ending = {
            lane.is_bulk
            for lane in tickets
            if lane not in self._running and not self._may_begin(lane)
        }
        found = {}
        for lane, waiting in tickets.items():
            # No other overtakes it: else shorter ones could take its room forever.
            _, first = waiting[0].waiting[0]
            running = self._running.get(lane)
            if running is None and not self._may_begin(lane):
                start = _Start.LATER
            elif running is None:
                start = _Start.NOW if self._is_free() else _Start.SOON
            elif not running.has_room(first, self._room(lane)) or (
                self._is_other(lane) and lane.is_bulk in ending
            ):
                start = _Start.LATER
            else:
                size = sum(len(ticket.waiting) for ticket in waiting)
                start = _Start.NOW if running.search.accepts(size) else _Start.SOON
            found[lane] = _Waiting(start, waiting)
        return found

    def _is_other(self, lane: Lane) -> bool:
        return lane.settings != self._default

    def _room(self, lane: Lane) -> float:
        """Return how many times the usual a search may hold.

        A bulk step is not interrupted: it is kept short while there are light clients.
        """
        has_light = time.monotonic() - self._light_at < _LIGHT_SECONDS
        return self._shares() * (_BULK_BESIDE_LIGHT if lane.is_bulk and has_light else 1.0)

    def _may_begin(self, lane: Lane) -> bool:
        if not self._is_other(lane):
            return True
        others = [each for each in self._running if self._is_other(each)]
        return sum(each.is_bulk == lane.is_bulk for each in others) < MOST_SEARCHES

    def _next_lanes(
        self, waiting: Mapping[Lane, _Waiting[T, R]]
    ) -> dict[Lane, tuple[float, float]]:
        """Return the searches that can take a step now, with their priorities."""
        clients: dict[Lane, set[str]] = {}
        for lane, running in self._running.items():
            if running.search.is_ready:
                clients[lane] = set(running.tokens)
        for lane, each in waiting.items():
            if each.start is _Start.NOW:
                names = clients.setdefault(lane, set())
                names.update(ticket.client for ticket in each.tickets)
        turns = self._driver.turns
        # All sentences of a search that is ready may have been dropped.
        return {
            lane: turns.priority(names, is_bulk=lane.is_bulk) if names else _FIRST
            for lane, names in clients.items()
        }

    def _take_from_queue(
        self, lane: Lane, starting: list[Ticket[Source[T], R]]
    ) -> dict[int, Sentence[T, R]]:
        """Take the sentences that can join a search now; begin the search if there is none yet.

        `starting` are requests with such sentences.
        """
        running = self._running.get(lane)
        if running is None:
            sentences: dict[int, Sentence[T, R]] = {}
            try:
                search = self._search(
                    lane.settings,
                    self._driver.wake,
                    lambda number: sentences[number].ticket.client,
                    lane.is_bulk,
                )
            except Exception as error:  # Out of memory, say: fails these requests only.
                log_error("a search cannot begin")
                for ticket in starting:
                    self._fail(ticket, error)
                return {}
            running = self._running[lane] = Running(search, sentences)
            self._progress_at = time.monotonic()
        new: dict[int, Sentence[T, R]] = {}
        room = self._room(lane)
        if not lane.is_bulk:
            self._light_at = time.monotonic()

        def start(ticket: Ticket[Source[T], R], index: int, source: Source[T]) -> bool | None:
            if self._lane(ticket, source) != lane:
                return False
            if not running.has_room(source, room):
                return None
            number = next(self._numbers)
            new[number] = Sentence(ticket, index, source)
            running.add(number, new[number])
            return True

        self._queue.take(start)
        return new

    def _advance(self, lane: Lane, running: Running[T, R], new: dict[int, Sentence[T, R]]) -> None:
        """Add new sentences to a search, and take a step of it."""
        began, running.turn = self._driver.clock(), next(self._turns)
        if new:
            self._tokens.inc(sum(len(each.source.item) + 1 for each in new.values()))
            running.search.add({n: each.source.item for n, each in new.items()})
        clients = dict(running.tokens)
        if running.search.is_ready:
            self._batches.observe(len(running.search))
            try:
                self._record(running, running.search.advance())
            except LostError as lost:
                for number, error in lost.errors.items():
                    self._fail_sentence(running, number, error)
            self._progress_at = time.monotonic()
        if clients:
            with self._driver.changed:
                seconds = self._driver.clock() - began
                self._driver.turns.charge(clients, seconds, is_bulk=lane.is_bulk)

    def _record(self, running: Running[T, R], found: list[tuple[int, R]]) -> None:
        """Store results with their tickets; a complete ticket is ready to be answered."""
        for number, result in found:
            if not result:
                refusal = "the model's logits are NaN for a sentence of this request"
                self._fail_sentence(running, number, RefusedError(500, refusal))
                continue
            self._done += 1
            sentence = self._remove(running, number)
            ticket = sentence.ticket
            ticket.results[sentence.index] = result
            if not ticket.missing:
                self._results.append((ticket.future, ticket.in_order))

    def _remove(self, running: Running[T, R], number: int) -> Sentence[T, R]:
        sentence = running.remove(number)
        with self._driver.changed:
            self._loads.remove(sentence.ticket.client, [sentence.source])
        return sentence

    def _fail_sentence(self, running: Running[T, R], number: int, error: Exception) -> None:
        """Fail the request of a sentence; its caller drops the rest of it."""
        self._results.append((self._remove(running, number).ticket.future, error))

    def _drop_unwanted(self) -> None:
        for running in self._running.values():
            unwanted = [n for n, each in running.sentences.items() if not each.ticket.wanted]
            if unwanted:
                running.search.drop(unwanted)
                for number in unwanted:
                    self._remove(running, number)

    def _end(self, lane: Lane, error: Exception) -> None:
        """End a search, and fail the requests of its sentences."""
        running = self._running.pop(lane)
        for number in list(running.sentences):
            self._fail_sentence(running, number, error)

    def _fail(self, ticket: Ticket[Source[T], R], error: Exception) -> None:
        """Fail a request whose sentences cannot start."""
        self._loads.remove(ticket.client, self._queue.remove(ticket))
        self._results.append((ticket.future, error))

    def _reset(self, error: Exception) -> None:
        """Fail all requests, and end all searches."""
        tickets = set(self._queue.clear())
        for running in self._running.values():
            tickets |= {sentence.ticket for sentence in running.sentences.values()}
        self._results += [(ticket.future, error) for ticket in tickets]
        self._loads.clear()
        self._running = {}

    def _deliver(self) -> None:
        """Set the futures of finished requests in the event loop."""
        results, self._results = self._results, []
        if results:
            self._driver.call_soon(results[0][0].get_loop(), lambda: set_results(results))
