"""Sentences of many clients, searched together.

A model searches for all its sentences at once, a step at a time. New sentences join after one of
the next steps; those that are done leave and are answered. So no request waits for a batch to fill,
nor for the rest of one to end.

Sentences are taken from the queue round-robin by client. A client with much under way is searched
apart from those with little ("bulk"). The searches of those with little come first, and of each
kind the one with the client that has had least compute time: a short request is served within a few
steps, whatever others have queued. The reasons are in docs/decisions/0013-fair-shares.md.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import count
from math import ceil, inf
from typing import Any

from headwise.decoding import Found, Hypothesis, SearchSettings
from headwise.serving.compute import Driver
from headwise.serving.fairness import FairQueue, Ticket
from headwise.serving.limits import Limits, RefusedError
from headwise.serving.logs import log_error
from headwise.serving.metrics import Metrics
from headwise.serving.rates import Speed
from headwise.serving.under_way import Lane, Running, SearchTicket, Sentence, Source
from headwise.tasks.translation.engine import LostError, OngoingSearch

ClientOf = Callable[[int], str]
BeginSearch = Callable[[SearchSettings, Callable[[], None], ClientOf, bool], OngoingSearch]
"""Begins a search with some settings. It is told what to call once it is ready by itself, how to
find out which client a sentence is for, and whether it is in bulk."""

_LIGHT_SENTENCES = 8
_LIGHT_TOKENS = 2048
"""What a client may have waiting and under way before its sentences are searched in bulk:
sentences, and tokens of their hypotheses' sources."""

_LIGHT_SECONDS = 2.0
_BULK_BESIDE_LIGHT = 0.25
"""So long after a client with little has come, a search in bulk takes this part of the usual; so
long after a client had much, it is searched in bulk."""
_MOST_BULK_CLIENTS = 1024

_MOST_SEARCHES = 2
"""How many searches may be under way, in bulk and not, with settings that are not the model's own.
The model's own settings have a search of each kind reserved."""

_FIRST = (-inf, -inf)
"""The place of what costs no compute time: to end a search that has no sentences any more."""

_LOOK_SECONDS = 0.005
"""How often a search that accepts no sentences is asked again."""


class _Start(Enum):
    """When a sentence that waits can start."""

    NOW = 0
    SOON = 1
    LATER = 2
    """Once a search has room or ends."""


@dataclass(frozen=True)
class _Waiting:
    """The requests that wait for a search, the next first, and when that one can start."""

    start: _Start
    tickets: list[SearchTicket]


class Batcher:
    """A model's queue, and the searches that empty it.

    `turn` is called by a driver, which may do so in a thread of its own; everything else from one
    event loop. What both touch they touch while they hold the driver's `changed`.
    """

    def __init__(
        self,
        name: str,
        search: BeginSearch,
        limits: Limits,
        metrics: Metrics,
        driver: Driver,
        *,
        default: SearchSettings | None = None,
        shares: Callable[[], int] = lambda: 1,
        is_free: Callable[[], bool] = lambda: True,
    ) -> None:
        """Take `shares` times as much at once as a single process should have under way.

        `default` are the settings that a search is reserved for. A search begins only if something
        `is_free` to compute it.
        """
        self._search, self._limits, self._driver = search, limits, driver
        self._default = default or SearchSettings()
        self._shares, self._is_free = shares, is_free
        self._queue: FairQueue[Source, list[Hypothesis]] = FairQueue()
        self._pending: dict[str, Counter[str]] = {}
        """Sentences and tokens of each client, waiting and under way."""
        self._bulk_until: dict[str, float] = {}
        """When clients that had much will be searched with those that have little."""
        self._has_unwanted = False  # Whether sentences under way are to be given up.
        self._running: dict[Lane, Running] = {}
        self._numbers, self._turns = count(), count()
        self._answers: list[tuple[asyncio.Future[Any], Any]] = []
        self._speed = Speed()
        self._done = 0  # Sentences, in this turn.
        self._busy_since: float | None = None
        self._progress_at, self._light_at = time.monotonic(), -inf
        self._given_up = metrics.given_up.labels(name)
        self._batches = metrics.batches.labels(name)
        self._seconds = metrics.search_seconds.labels(name)
        self._tokens = metrics.source_tokens.labels(name)
        self._failed_turns = metrics.failed_turns.labels(name)
        metrics.waiting.labels(name).set_function(lambda: len(self._queue))

    def start(self) -> None:
        """Remember the event loop that submits and is told the results; begin."""
        self._loop = asyncio.get_running_loop()
        self._driver.add(self)

    @property
    def is_alive(self) -> bool:
        """Whether it has been started, and not closed."""
        return self._driver.has(self)

    @property
    def stalled_seconds(self) -> float:
        """For how long sentences have been under way without a step or a result."""
        return time.monotonic() - self._progress_at if self._running else 0.0

    def close(self, seconds: float) -> None:
        """End; wait so long for the step that is under way."""
        self._driver.remove(self, seconds)

    def check_room(self, client: str, sentences: int = 1) -> None:
        """Raise RefusedError where a client would have more sentences waiting than its share."""
        if not self._queue.has_room(client, sentences, self._limits.queue):
            seconds = self._speed.seconds_for(len(self._queue))
            raise RefusedError(
                429,
                "too many sentences are waiting to be translated: try again in a moment",
                retry_after=max(1, min(60, ceil(seconds))),
            )

    def submit(
        self, sources: Iterable[list[int]], settings: SearchSettings, client: str = ""
    ) -> SearchTicket:
        """Put sentences into the queue; the ticket's future has what is found for them."""
        items = [Source(ids, settings) for ids in sources]
        ticket: SearchTicket = Ticket.of(client, items, self._loop.create_future())
        if not items:
            ticket.future.set_result([])
            return ticket
        with self._driver.changed:
            self.check_room(client, len(items))
            self._driver.turns.wake(client)
            if len(self._bulk_until) > _MOST_BULK_CLIENTS:
                now = time.monotonic()
                self._bulk_until = {c: end for c, end in self._bulk_until.items() if end > now}
            pending = self._pending.setdefault(client, Counter())
            pending["sentences"] += len(items)
            pending["tokens"] += sum(item.tokens for item in items)
            self._queue.add(ticket)
            self._driver.wake()
        return ticket

    def drop(self, ticket: SearchTicket) -> None:
        """Give up what is left of a ticket: what waits never starts, what is searched ends soon."""
        with self._driver.changed:
            if not ticket.missing or not ticket.wanted:
                return
            ticket.wanted = False
            waiting = self._queue.remove(ticket)
            self._settle(ticket.client, waiting)
            self._has_unwanted |= ticket.missing > len(waiting)
            self._given_up.inc(ticket.missing)
            self._driver.wake()

    def due(self) -> float | None:
        """Return when there is something to do: at once (0), in some seconds, or when told."""
        if self._has_unwanted or any(each.search.is_ready for each in self._running.values()):
            return 0
        starts = [waiting.start for waiting in self._waiting().values()]
        if _Start.NOW in starts:
            return 0
        return _LOOK_SECONDS if _Start.SOON in starts else None

    def place(self) -> tuple[float, float]:
        """Return the place of the search that is next."""
        return min(self._next_lanes(self._waiting()).values(), default=_FIRST)

    def turn(self) -> None:
        """Let sentences join one of the searches, and take a step of it."""
        try:
            self._turn()
        except Exception as error:
            # A bug: these requests fail, and the model goes on with the next ones.
            with self._driver.changed:
                self._reset(error)
            self._failed_turns.inc()
            log_error("a turn has failed")
        finally:
            self._hand_over()

    def _turn(self) -> None:
        self._done = 0
        with self._driver.changed:
            self._has_unwanted = False
        self._drop_unwanted()
        with self._driver.changed:
            waiting = self._waiting()
            lanes = self._next_lanes(waiting)
            lane = min(lanes, key=lambda each: (lanes[each], self._turn_of(each)), default=None)
            newcomers = {}
            if lane in waiting and waiting[lane].start is _Start.NOW:
                newcomers = self._newcomers(lane, waiting[lane].tickets)
        if lane is not None and (running := self._running.get(lane)) is not None:
            try:
                self._go_on(lane, running, newcomers)
            except Exception as error:  # Fails this search only.
                log_error("a search has failed")
                self._end(lane, error)
        for each, running in list(self._running.items()):
            # A search that cannot be interrupted goes on with sentences that were given up.
            if not running.sentences and not running.search:
                del self._running[each]
        self._note_busy()
        self._speed.note(self._done, is_busy=bool(self._running))

    def _turn_of(self, lane: Lane) -> int:
        """Return when it was last a search's turn: a client's own searches take turns."""
        running = self._running.get(lane)
        return -1 if running is None else running.turn

    def _lane(self, ticket: SearchTicket, source: Source) -> Lane:
        """Return which search a sentence belongs to now: its client's load decides."""
        load, now = self._pending[ticket.client], time.monotonic()
        if load["sentences"] > _LIGHT_SENTENCES or load["tokens"] > _LIGHT_TOKENS:
            # For a while: one that goes back and forth would be divided between two searches.
            self._bulk_until[ticket.client] = now + _LIGHT_SECONDS
        return Lane(source.settings, now < self._bulk_until.get(ticket.client, now))

    def _waiting(self) -> dict[Lane, _Waiting]:
        """Return the requests that wait for each search, and when the first of them can start."""
        tickets: dict[Lane, list[SearchTicket]] = {}
        for ticket, source in self._queue.heads():
            tickets.setdefault(self._lane(ticket, source), []).append(ticket)
        # Where a request waits for one of the few searches with other settings to end, none of
        # them takes new sentences, so that one does end.
        ending = {
            lane.is_bulk
            for lane in tickets
            if lane not in self._running and not self._may_begin(lane)
        }
        found = {}
        for lane, waiting in tickets.items():
            # No other overtakes it: else shorter ones could take its room for ever.
            _, first = waiting[0].waiting[0]
            running = self._running.get(lane)
            if running is None:
                start = self._start_of_new(lane)
            elif not running.has_room(first, self._room(lane)) or (
                self._is_other(lane) and lane.is_bulk in ending
            ):
                start = _Start.LATER
            else:
                size = sum(len(ticket.waiting) for ticket in waiting)
                start = _Start.NOW if running.search.accepts(size) else _Start.SOON
            found[lane] = _Waiting(start, waiting)
        return found

    def _start_of_new(self, lane: Lane) -> _Start:
        if not self._may_begin(lane):
            return _Start.LATER
        return _Start.NOW if self._is_free() else _Start.SOON

    def _is_other(self, lane: Lane) -> bool:
        return lane.settings != self._default

    def _room(self, lane: Lane) -> float:
        """Return how many times the usual a search may have under way.

        A step in bulk is not interrupted: while clients with little come, it is kept short.
        """
        has_light = time.monotonic() - self._light_at < _LIGHT_SECONDS
        return self._shares() * (_BULK_BESIDE_LIGHT if lane.is_bulk and has_light else 1.0)

    def _may_begin(self, lane: Lane) -> bool:
        if not self._is_other(lane):
            return True
        others = [each for each in self._running if self._is_other(each)]
        return sum(each.is_bulk == lane.is_bulk for each in others) < _MOST_SEARCHES

    def _next_lanes(self, waiting: Mapping[Lane, _Waiting]) -> dict[Lane, tuple[float, float]]:
        """Return where something can be done, each with its place in the order of turns."""
        clients: dict[Lane, set[str]] = {}
        for lane, running in self._running.items():
            if running.search.is_ready:
                clients[lane] = set(running.tokens)
        for lane, each in waiting.items():
            if each.start is _Start.NOW:
                names = clients.setdefault(lane, set())
                names.update(ticket.client for ticket in each.tickets)
        turns = self._driver.turns
        # In a search that is ready, all sentences may have been given up.
        return {
            lane: turns.place(names, is_bulk=lane.is_bulk) if names else _FIRST
            for lane, names in clients.items()
        }

    def _newcomers(self, lane: Lane, starting: list[SearchTicket]) -> dict[int, Sentence]:
        """Take from the queue what can join a search now; begin it if there is none yet.

        `starting` are requests of which something can.
        """
        running = self._running.get(lane)
        if running is None:
            sentences: dict[int, Sentence] = {}
            try:
                search = self._search(
                    lane.settings,
                    self._driver.wake,
                    lambda number: sentences[number].ticket.client,
                    lane.is_bulk,
                )
            except Exception as error:  # Out of memory, say: these requests fail, others go on.
                log_error("a search cannot begin")
                for ticket in starting:
                    self._give_up(ticket, error)
                return {}
            running = self._running[lane] = Running(search, sentences)
            self._progress_at = time.monotonic()
        newcomers: dict[int, Sentence] = {}
        room = self._room(lane)
        if not lane.is_bulk:
            self._light_at = time.monotonic()

        def starts(ticket: SearchTicket, place: int, source: Source) -> bool | None:
            if self._lane(ticket, source) != lane:
                return False
            if not running.has_room(source, room):
                return None
            number = next(self._numbers)
            newcomers[number] = Sentence(ticket, place, source)
            running.enter(number, newcomers[number])
            return True

        self._queue.take(starts)
        return newcomers

    def _go_on(self, lane: Lane, running: Running, newcomers: dict[int, Sentence]) -> None:
        """Let sentences join a search, and take a step of it."""
        began, running.turn = self._driver.clock(), next(self._turns)
        if newcomers:
            self._tokens.inc(sum(len(each.source.ids) + 1 for each in newcomers.values()))
            running.search.add({n: each.source.ids for n, each in newcomers.items()})
        clients = dict(running.tokens)
        if running.search.is_ready:
            self._batches.observe(len(running.search))
            try:
                self._take(running, running.search.advance())
            except LostError as lost:
                for number, error in lost.errors.items():
                    self._lose(running, number, error)
            self._progress_at = time.monotonic()
        if clients:
            with self._driver.changed:
                seconds = self._driver.clock() - began
                self._driver.turns.charge(clients, seconds, is_bulk=lane.is_bulk)

    def _take(self, running: Running, found: Found) -> None:
        """Note what was found; a ticket that has everything is ready to be answered."""
        for number, hypotheses in found:
            if not hypotheses:
                self._lose(running, number, nan_refusal())
                continue
            self._done += 1
            sentence = self._leave(running, number)
            ticket = sentence.ticket
            ticket.results[sentence.place] = hypotheses
            if not ticket.missing:
                self._answers.append((ticket.future, ticket.in_order))

    def _leave(self, running: Running, number: int) -> Sentence:
        sentence = running.leave(number)
        with self._driver.changed:
            self._settle(sentence.ticket.client, [sentence.source])
        return sentence

    def _lose(self, running: Running, number: int, error: Exception) -> None:
        """Fail the request of a sentence; the rest of it is dropped by its caller."""
        self._answers.append((self._leave(running, number).ticket.future, error))

    def _drop_unwanted(self) -> None:
        for running in self._running.values():
            unwanted = [n for n, each in running.sentences.items() if not each.ticket.wanted]
            if unwanted:
                running.search.drop(unwanted)
                for number in unwanted:
                    self._leave(running, number)

    def _settle(self, client: str, sources: Iterable[Source]) -> None:
        """Note that sentences of a client neither wait nor are under way any more."""
        for source in sources:
            load = self._pending[client]
            load["sentences"] -= 1
            load["tokens"] -= source.tokens
            if not load["sentences"]:
                del self._pending[client]

    def _end(self, lane: Lane, error: Exception) -> None:
        """End a search, and fail the requests that it had sentences of."""
        running = self._running.pop(lane)
        for number in list(running.sentences):
            self._lose(running, number, error)

    def _give_up(self, ticket: SearchTicket, error: Exception) -> None:
        """Fail a request of which nothing can start."""
        self._settle(ticket.client, self._queue.remove(ticket))
        self._answers.append((ticket.future, error))

    def _reset(self, error: Exception) -> None:
        """Fail all requests, and begin anew."""
        tickets = set(self._queue.clear())
        for running in self._running.values():
            tickets |= {sentence.ticket for sentence in running.sentences.values()}
        self._answers += [(ticket.future, error) for ticket in tickets]
        self._pending, self._running = {}, {}

    def _note_busy(self) -> None:
        """Count the time in which something is under way, here or wherever it is searched for."""
        now = time.monotonic()
        if self._busy_since is not None:
            self._seconds.inc(now - self._busy_since)
        self._busy_since = now if self._running else None

    def _hand_over(self) -> None:
        """Tell the event loop what there is to answer."""
        answers, self._answers = self._answers, []
        if answers:
            self._driver.tell(self._loop, lambda: resolve(answers))


def nan_refusal() -> RefusedError:
    """Return the answer to a request for which the model computed NaN."""
    return RefusedError(500, "the model's logits are NaN for a sentence of this request")


def resolve(answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
    """Tell futures their results or errors, unless they are cancelled."""
    for future, result in answers:
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
