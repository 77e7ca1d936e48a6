"""Sentences of many callers, searched together.

One thread for each model takes what is waiting whenever it becomes free, up to a budget of tokens:
so batches grow with the load, and a sentence that comes alone is searched at once. Each is answered
as soon as it is done, while others of its batch go on. The reasons are in
docs/decisions/0011-serving.md.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any

from headwise.decoding import Hypothesis, SearchSettings
from headwise.serving.compute import compute
from headwise.serving.limits import Limits, RefusedError
from headwise.serving.metrics import Metrics
from headwise.tasks.translation import Translator

_BATCH_SENTENCES = 256
_BATCH_TOKENS = 8192
"""What is taken at a time; the engine sorts it by length and divides it further."""

_GATHER_SECONDS = 0.004
"""How long a model waits, after a batch, for those whom it has just answered to come again."""


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


@dataclass(frozen=True, eq=False)
class _Call:
    """Something else that the model is to do, between two batches."""

    function: Callable[[], Any]
    future: asyncio.Future[Any]


class Batcher:
    """A model's queue and the thread that empties it.

    Everything but the thread's own work is called from one event loop.
    """

    def __init__(self, name: str, translator: Translator, limits: Limits, metrics: Metrics) -> None:
        self._translator, self._limits = translator, limits
        self._waiting: deque[_Sentence] = deque()
        self._calls: deque[_Call] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._speed = 0.0  # Sentences a second of the last batches; 0 before the first.
        self._thread = threading.Thread(target=self._work, name=f"model {name}", daemon=True)
        self._given_up = metrics.given_up.labels(name)
        self._batches = metrics.batches.labels(name)
        self._seconds = metrics.search_seconds.labels(name)
        self._tokens = metrics.source_tokens.labels(name)
        metrics.waiting.labels(name).set_function(lambda: len(self._waiting))

    def start(self) -> None:
        """Begin to work; to be called in the event loop that will submit."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the model's thread is there to work."""
        return self._thread.is_alive()

    def check_room(self, sentences: int = 1) -> None:
        """Raise RefusedError where more sentences would have to wait than may.

        What is more than the whole queue has its turn when nothing else waits.
        """
        waiting = len(self._waiting)
        if waiting and waiting + sentences > self._limits.queue:
            seconds = ceil(waiting / self._speed) if self._speed else 1
            raise RefusedError(
                429,
                "too many sentences are waiting to be translated: try again in a moment",
                retry_after=max(1, min(60, seconds)),
            )

    def submit(self, sources: list[list[int]], settings: SearchSettings) -> Ticket:
        """Put sentences into the queue; the ticket's future has what is found for them."""
        ticket = Ticket(
            settings, self._loop.create_future(), [[] for _ in sources], missing=len(sources)
        )
        if not sources:
            ticket.future.set_result([])
            return ticket
        self.check_room(len(sources))
        with self._change:
            self._waiting.extend(_Sentence(ticket, n, ids) for n, ids in enumerate(sources))
            self._change.notify()
        return ticket

    def drop(self, ticket: Ticket) -> None:
        """Give up what is left of a ticket: what waits never starts, what is searched ends soon."""
        if ticket.future.done() and not ticket.future.cancelled():
            return
        with self._change:
            ticket.wanted = False
            kept = [sentence for sentence in self._waiting if sentence.ticket is not ticket]
            self._given_up.inc(ticket.missing)
            self._waiting = deque(kept)

    async def call(self, function: Callable[[], Any]) -> Any:
        """Have something called where models compute, before the next batch is taken."""
        future = self._loop.create_future()
        with self._change:
            self._calls.append(_Call(function, future))
            self._change.notify()
        return await future

    def close(self) -> None:
        """Let the thread end after what it is doing."""
        with self._change:
            self._closed = True
            self._change.notify()

    def join(self, seconds: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(seconds)

    def _work(self) -> None:
        answered = 0
        while (task := self._take(answered)) is not None:
            if isinstance(task, _Call):
                compute(partial(self._answer, task))
            else:
                answered = len(task)
                compute(partial(self._search, task))

    def _take(self, answered: int) -> "_Call | list[_Sentence] | None":
        """Wait for something to do: a call, or sentences; None is the end.

        Those whose sentences have just been `answered` often come again at once. So that the first
        of them is not searched alone, while the others wait, all have a moment to do so.
        """
        until = time.monotonic() + _GATHER_SECONDS
        with self._change:
            while not self._closed:
                if self._calls:
                    return self._calls.popleft()
                left = until - time.monotonic()
                if self._waiting and (len(self._waiting) >= answered or left <= 0):
                    return self._batch()
                self._change.wait(left if left > 0 else None)
            return None

    def _batch(self) -> list[_Sentence]:
        """Take the oldest sentence and those that can be searched with it, in their order."""
        settings = self._waiting[0].ticket.settings
        taken: list[_Sentence] = []
        others: list[_Sentence] = []
        tokens = 0
        while self._waiting and len(taken) < _BATCH_SENTENCES and tokens < _BATCH_TOKENS:
            sentence = self._waiting.popleft()
            if sentence.ticket.settings == settings:
                taken.append(sentence)
                tokens += len(sentence.ids) + 1
            else:
                others.append(sentence)
        self._waiting.extendleft(reversed(others))
        return taken

    def _search(self, sentences: list[_Sentence]) -> None:
        begin = time.monotonic()
        try:
            self._translator.search(
                [sentence.ids for sentence in sentences],
                sentences[0].ticket.settings,
                watcher=_Watcher(sentences, self._resolve),
            )
        except (
            Exception
        ) as error:  # Whatever it is, it is this batch's: the thread serves the rest.
            for sentence in sentences:
                self._resolve(sentence.ticket.future, error)
        seconds = time.monotonic() - begin
        self._batches.observe(len(sentences))
        self._seconds.inc(seconds)
        self._tokens.inc(sum(len(sentence.ids) + 1 for sentence in sentences))
        speed = len(sentences) / max(seconds, 1e-6)
        self._speed = speed if not self._speed else 0.8 * self._speed + 0.2 * speed

    def _answer(self, call: _Call) -> None:
        if call.future.cancelled():
            return
        try:
            result = call.function()
        except Exception as error:  # It goes to whoever asked.
            self._resolve(call.future, error)
        else:
            self._resolve(call.future, result)

    def _resolve(self, future: asyncio.Future[Any], result: Any) -> None:
        """Hand a result, or an error, to the event loop."""

        def hand_over() -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(hand_over)


@dataclass(frozen=True)
class _Watcher:
    """Looks on while a batch is searched: hands out results, gives up what nobody waits for."""

    sentences: list[_Sentence]
    resolve: Callable[[asyncio.Future[Any], Any], None]
    lock: threading.Lock = field(default_factory=threading.Lock)
    """An engine may search in several threads, each of which is done with some sentences."""

    def unwanted(self) -> Collection[int]:
        return {n for n, sentence in enumerate(self.sentences) if not sentence.ticket.wanted}

    def done(self, number: int, results: list[Hypothesis]) -> None:
        sentence = self.sentences[number]
        ticket = sentence.ticket
        with self.lock:
            ticket.results[sentence.place] = results
            ticket.missing -= 1
            complete = not ticket.missing
        if complete:
            self.resolve(ticket.future, ticket.results)
