"""The one thread of the server's process that computes.

Under torch, OpenMP keeps its threads awake between two steps only as long as there are no more of
them than cores, and every thread that computes brings its own. So a single one loads the models and
searches with all of them. On two cores a sentence alone took three times as long where another
thread had computed before.
"""

import asyncio
import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol, TypeVar

from headwise.serving.fairness import Turns
from headwise.serving.logs import log_error

T = TypeVar("T")

_NICENESS = 5

_LAST_SECONDS = 2.0
"""How long a step that is under way has to end when the process does."""


class Work(Protocol):
    """Something to do, a bit at a time."""

    def due(self) -> float | None:
        """Return in how many seconds there may be something to do; None: not before it is told."""
        ...

    def place(self) -> tuple[float, float]:
        """Return the place of what it would do next, as `Turns` has it; the least is first."""
        ...

    def turn(self) -> None:
        """Do a bit of it."""
        ...


class Driver(Protocol):
    """Who gives work its turns."""

    @property
    def changed(self) -> AbstractContextManager[object]:
        """What is held while anything is changed that work looks at in its turn."""
        ...

    @property
    def turns(self) -> Turns:
        """Whose turn it is to compute, over all work."""
        ...

    def clock(self) -> float:
        """Return seconds, to tell how long a turn has computed."""
        ...

    def add(self, work: Work) -> None:
        """Have something done from now on."""
        ...

    def has(self, work: Work) -> bool:
        """Return whether something is done, and has not crashed."""
        ...

    def remove(self, work: Work, seconds: float) -> None:
        """Have something done no more; wait so long for the bit that is under way."""
        ...

    def wake(self) -> None:
        """Look whether there is something to do."""
        ...

    def tell(self, loop: asyncio.AbstractEventLoop, news: Callable[[], None]) -> None:
        """Have something called in an event loop."""
        ...


class Computer:
    """A thread that does what it is called for, and several kinds of work in turns."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        """Is held while anything is added to work, and notified of it."""
        self.turns = Turns()
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._work: list[Work] = []
        self._under_way: Work | None = None
        self._is_calling = False
        self._turn_began: float | None = None
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread, before anything else, and return what it returns."""
        return self.submit(function).result()

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """Have a function called in the thread, between two turns of its work."""
        future: Future[T] = Future()
        with self.changed:
            self._calls.append((function, future))
            self._start()
        return future

    def clock(self) -> float:
        """Return the CPU time of the calling thread: a turn also waits for the GIL."""
        return time.thread_time()

    def add(self, work: Work) -> None:
        """Have something done from now on."""
        with self.changed:
            self._work.append(work)
            self._start()

    def wake(self) -> None:
        """Let the thread see whether there is something to do."""
        with self.changed:
            self.changed.notify_all()

    def has(self, work: Work) -> bool:
        """Return whether something is done, and has not crashed."""
        with self.changed:
            return work in self._work

    def remove(self, work: Work, seconds: float) -> None:
        """Have something done no more; wait so long for the bit that is under way."""
        with self.changed:
            if work in self._work:
                self._work.remove(work)
            self.changed.wait_for(lambda: self._under_way is not work, seconds)

    def clear(self, seconds: float) -> bool:
        """Do nothing any more; return whether what was under way has ended within so long."""
        with self.changed:
            self._work.clear()
            for _, future in self._calls:
                future.cancel()
            self._calls.clear()
            return self.changed.wait_for(
                lambda: self._under_way is None and not self._is_calling, seconds
            )

    def tell(self, loop: asyncio.AbstractEventLoop, news: Callable[[], None]) -> None:
        """Have something called in an event loop."""
        with suppress(RuntimeError):  # A loop that is closed has nobody left to tell.
            loop.call_soon_threadsafe(news)

    @property
    def stalled_seconds(self) -> float:
        """For how long one turn has been under way; infinite if the thread has crashed."""
        if self._thread is not None and not self._thread.is_alive():
            return math.inf
        began = self._turn_began
        return 0.0 if began is None else time.monotonic() - began

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
            self._thread.start()
        self.changed.notify_all()

    def _run(self) -> None:
        step_back()
        while True:
            with self.changed:
                while not self._calls and (seconds := self._soonest()) != 0:
                    self.changed.wait(seconds)
                calls, self._calls = self._calls, deque()
                self._is_calling = bool(calls)
            for function, future in calls:
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)
            if calls:
                with self.changed:
                    self._is_calling = False
                    self.changed.notify_all()
            self._turn()

    def _turn(self) -> None:
        """Give a turn to the work that is next."""
        with self.changed:
            ready = [each for each in list(self._work) if self._due(each) == 0]
            if not ready:
                return
            work = ready[0] if len(ready) == 1 else min(ready, key=lambda each: each.place())
            # Among equals, they take turns.
            self._work.remove(work)
            self._work.append(work)
            self._under_way, self._turn_began = work, time.monotonic()
        try:
            work.turn()
        except Exception:
            self._crashed(work)
        finally:
            with self.changed:
                self._under_way = self._turn_began = None
                self.changed.notify_all()

    def _soonest(self) -> float | None:
        dues = [self._due(each) for each in list(self._work)]
        return min((due for due in dues if due is not None), default=None)

    def _due(self, work: Work) -> float | None:
        try:
            return work.due()
        except Exception:
            self._crashed(work)
            return None

    def _crashed(self, work: Work) -> None:
        """Do no more of some work after a bug; other work goes on."""
        log_error("work has crashed")
        with self.changed:
            if work in self._work:
                self._work.remove(work)


def step_back() -> None:
    """Let whoever reads and answers go first, where a thread can be told so by itself.

    What it starts does the same: OpenMP's threads, and CTranslate2's. Without it, 32 clients got
    345 sentences a second from CTranslate2 on two cores, with it 380: whoever was answered came
    again sooner.
    """
    if sys.platform == "linux":
        # Whoever is nicer already may not become less so.
        niceness = max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


computer = Computer()


@contextmanager
def until_nothing_computes() -> Iterator[None]:
    """Let the process end only when nothing computes, or at once where that takes too long.

    A thread that comes back from torch while Python ends brings the process down (SIGABRT).
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as end:
        if not computer.clear(_LAST_SECONDS):
            code = end.code if isinstance(end, SystemExit) else 128 + signal.SIGINT
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 1)
        raise
