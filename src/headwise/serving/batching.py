"""Sentences of many callers, searched together.

A model searches for all its sentences at once, a step at a time. Those that come join after one of
the next steps, and those that are done leave and are answered: so nobody waits for a batch to fill,
nor for the rest of one to end. The reasons are in docs/decisions/0011-serving.md.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from math import ceil
from typing import Any

from headwise.decoding import Found, Hypothesis, SearchSettings
from headwise.serving.compute import Driver
from headwise.serving.limits import Limits, RefusedError
from headwise.serving.metrics import Metrics
from headwise.tasks.engine import LostError, OngoingSearch

BeginSearch = Callable[[SearchSettings, Callable[[], None]], OngoingSearch]

_MOST_SENTENCES = 128
_MOST_TOKENS = 16_384
"""What a search may have under way: sentences, and tokens: of their hypotheses' sources, and of
their sources alone if all were as long as the longest."""

_MOST_SEARCHES = 4
"""How many searches, each with settings of its own, may be under way."""

_LOOK_SECONDS = 0.005
"""How often a search that accepts nobody is asked again."""


@dataclass(eq=False)
class Ticket:
    """One caller's sentences."""

    settings: SearchSettings
    future: asyncio.Future[list[list[Hypothesis]]]
    results: list[list[Hypothesis]]
    missing: int
    """How many sentences have no result yet."""
    wanted: bool = True


@dataclass(frozen=True, eq=False)
class _Sentence:
    ticket: Ticket
    place: int
    ids: list[int]

    @property
    def tokens(self) -> int:
        return (len(self.ids) + 1) * self.ticket.settings.beam


@dataclass(eq=False)
class _Running:
    """A search and those who wait for it."""

    search: OngoingSearch
    sentences: dict[int, _Sentence] = field(default_factory=dict)
    tokens: int = 0

    def has_room(self, sentence: _Sentence, shares: int) -> bool:
        size, most_tokens = len(self.sentences), _MOST_TOKENS * shares
        if not size:
            return True
        if size >= _MOST_SENTENCES * shares or self.tokens + sentence.tokens > most_tokens:
            return False
        longest = max(len(each.ids) for each in (sentence, *self.sentences.values()))
        return (size + 1) * (longest + 1) <= most_tokens

    def enter(self, number: int, sentence: _Sentence) -> None:
        self.sentences[number] = sentence
        self.tokens += sentence.tokens

    def leave(self, number: int) -> _Sentence:
        sentence = self.sentences.pop(number)
        self.tokens -= sentence.tokens
        return sentence


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
        shares: Callable[[], int] = lambda: 1,
    ) -> None:
        """Take `shares` times as much at once as one that searches should have under way."""
        self._search, self._limits, self._driver = search, limits, driver
        self._shares = shares
        self._waiting: deque[_Sentence] = deque()
        self._has_unwanted = False  # Whether sentences under way are to be given up.
        self._running: dict[SearchSettings, _Running] = {}
        self._numbers = count()
        self._answers: list[tuple[asyncio.Future[Any], Any]] = []
        self._speed = _Speed()
        self._done = 0  # Sentences, in this turn.
        self._busy_since: float | None = None
        self._given_up = metrics.given_up.labels(name)
        self._batches = metrics.batches.labels(name)
        self._seconds = metrics.search_seconds.labels(name)
        self._tokens = metrics.source_tokens.labels(name)
        metrics.waiting.labels(name).set_function(lambda: len(self._waiting))

    def start(self) -> None:
        """Take note of the event loop that will submit, and is to be told the results; begin."""
        self._loop = asyncio.get_running_loop()
        self._driver.add(self)

    @property
    def is_alive(self) -> bool:
        """Whether it has begun, and not come to a bad end."""
        return self._driver.has(self)

    def close(self, seconds: float) -> None:
        """End; wait so long for the step that is under way."""
        self._driver.remove(self, seconds)

    def check_room(self, sentences: int = 1) -> None:
        """Raise RefusedError where more sentences would have to wait than may.

        What is more than the whole queue has its turn when nothing else waits.
        """
        waiting = len(self._waiting)
        if waiting and waiting + sentences > self._limits.queue:
            seconds = self._speed.seconds_for(waiting)
            raise RefusedError(
                429,
                "too many sentences are waiting to be translated: try again in a moment",
                retry_after=max(1, min(60, ceil(seconds))),
            )

    def submit(self, sources: list[list[int]], settings: SearchSettings) -> Ticket:
        """Put sentences into the queue; the ticket's future has what is found for them."""
        ticket = Ticket(
            settings, self._loop.create_future(), [[] for _ in sources], missing=len(sources)
        )
        if not sources:
            ticket.future.set_result([])
            return ticket
        with self._driver.changed:
            self.check_room(len(sources))
            self._waiting.extend(_Sentence(ticket, n, ids) for n, ids in enumerate(sources))
            self._driver.wake()
        return ticket

    def drop(self, ticket: Ticket) -> None:
        """Give up what is left of a ticket: what waits never starts, what is searched ends soon."""
        with self._driver.changed:
            if not ticket.missing:
                return
            ticket.wanted = False
            kept = [sentence for sentence in self._waiting if sentence.ticket is not ticket]
            self._has_unwanted |= ticket.missing > len(self._waiting) - len(kept)
            self._given_up.inc(ticket.missing)
            self._waiting = deque(kept)
            self._driver.wake()

    def due(self) -> float | None:
        """Return when there is something to do: at once (0), in some seconds, or when told."""
        if self._has_unwanted or any(each.search.is_ready for each in self._running.values()):
            return 0
        soonest, shares = None, self._shares()
        seen = set()
        for sentence in self._waiting:
            settings = sentence.ticket.settings
            if settings in seen:
                continue
            seen.add(settings)
            running = self._running.get(settings)
            if running is None:
                # Where there are too many searches, whoever comes later waits as well.
                return 0 if len(self._running) < _MOST_SEARCHES else soonest
            if running.has_room(sentence, shares):
                if running.search.accepts(len(self._waiting)):
                    return 0
                soonest = _LOOK_SECONDS
        return soonest

    def turn(self) -> None:
        """Let newcomers join, and take one step in every search."""
        try:
            self._turn()
        except Exception as error:  # A mistake of ours: nothing is going to be done any more.
            with self._driver.changed:
                sentences = [*self._waiting]
                for running in self._running.values():
                    sentences += running.sentences.values()
                self._fail(sentences, error)
            raise
        finally:
            self._hand_over()

    def _turn(self) -> None:
        with self._driver.changed:
            self._has_unwanted = False
            newcomers = self._newcomers()
        self._done = 0
        for settings, running in list(self._running.items()):
            try:
                self._go_on(running, newcomers.get(settings, {}))
            except Exception as error:  # Whatever it is, it is this search's: others go on.
                self._fail(running.sentences.values(), error)
                del self._running[settings]
            else:
                # What nobody wants any more may still be under way.
                if not running.sentences and not running.search:
                    del self._running[settings]
        self._note_busy()
        self._speed.note(self._done, is_busy=bool(self._running))

    def _fail(self, sentences: Iterable[_Sentence], error: Exception) -> None:
        """Have the callers of some sentences told what went wrong."""
        tickets = {sentence.ticket for sentence in sentences}
        self._answers += [(ticket.future, error) for ticket in tickets]

    def _newcomers(self) -> dict[SearchSettings, dict[int, _Sentence]]:
        """Take from the queue, in its order, what can begin now."""
        newcomers: dict[SearchSettings, dict[int, _Sentence]] = {}
        shares = self._shares()
        left: list[_Sentence] = []
        closed: set[SearchSettings] = set()
        while self._waiting:
            sentence = self._waiting.popleft()
            settings = sentence.ticket.settings
            if settings in closed:
                left.append(sentence)
                continue
            running = self._running.get(settings)
            if running is None:
                if len(self._running) >= _MOST_SEARCHES:
                    # Nobody overtakes it, so that one of those searches comes to its end.
                    left.append(sentence)
                    break
                try:
                    search = self._search(settings, self._driver.wake)
                except Exception as error:  # It concerns nobody else.
                    self._fail([sentence], error)
                    continue
                running = self._running[settings] = _Running(search)
            # Most often, all who wait want the same settings.
            number_waiting = 1 + len(self._waiting)
            may_join = settings in newcomers or running.search.accepts(number_waiting)
            if not may_join or not running.has_room(sentence, shares):
                # Those after it might find room, again and again, and it never would.
                closed.add(settings)
                left.append(sentence)
            else:
                number = next(self._numbers)
                newcomers.setdefault(settings, {})[number] = sentence
                running.enter(number, sentence)
        self._waiting.extendleft(reversed(left))
        return newcomers

    def _go_on(self, running: _Running, newcomers: dict[int, _Sentence]) -> None:
        """Take one step of a search."""
        unwanted = [n for n, each in running.sentences.items() if not each.ticket.wanted]
        running.search.drop(unwanted)
        for number in unwanted:
            running.leave(number)
        joining = {n: each.ids for n, each in newcomers.items() if n in running.sentences}
        if joining:
            self._tokens.inc(sum(len(ids) + 1 for ids in joining.values()))
            running.search.add(joining)
        if running.search.is_ready:
            self._batches.observe(len(running.search))
            try:
                self._take(running, running.search.advance())
            except LostError as lost:
                for number, error in lost.errors.items():
                    self._fail([running.leave(number)], error)

    def _take(self, running: _Running, found: Found) -> None:
        """Note what was found; a ticket that has everything is ready to be answered."""
        for number, hypotheses in found:
            self._done += 1
            sentence = running.leave(number)
            ticket = sentence.ticket
            ticket.results[sentence.place] = hypotheses
            ticket.missing -= 1
            if not ticket.missing:
                self._answers.append((ticket.future, ticket.results))

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
            self._driver.tell(self._loop, lambda: _resolve(answers))


@dataclass
class _Speed:
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


def _resolve(answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in answers:
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
