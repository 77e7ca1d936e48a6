"""Run work in turns: in the compute thread, or in the event loop."""

import asyncio
import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Protocol, TypeVar

from headwise.serving.fairness import Turns
from headwise.serving.logs import log_error

T = TypeVar("T")

_NICENESS = 5

_EXIT_SECONDS = 2.0
"""How long the step in progress may take to end when the process exits."""


class Work(Protocol):
    """Work that is done in short turns."""

    def due(self) -> float | None:
        """Return in how many seconds to take a turn; None: not until the driver's `wake`."""
        ...

    def priority(self) -> tuple[float, float]:
        """Return the priority of the next turn, from `Turns`; the smallest goes first."""
        ...

    def turn(self) -> None:
        """Take one turn."""
        ...


class Driver(Protocol):
    """Gives several pieces of work their turns."""

    @property
    def changed(self) -> AbstractContextManager[object]:
        """The lock to hold while changing anything that work reads in its turns."""
        ...

    @property
    def turns(self) -> Turns:
        """The order of turns over all work."""
        ...

    def clock(self) -> float:
        """Return a time in seconds, to measure how long a turn computes."""
        ...

    def add(self, work: Work) -> None:
        """Give work its turns from now on."""
        ...

    def has(self, work: Work) -> bool:
        """Return whether work was added, and has neither crashed nor been removed."""
        ...

    def remove(self, work: Work, seconds: float) -> None:
        """Stop giving work its turns; wait so long for a turn in progress."""
        ...

    def wake(self) -> None:
        """Check again which work is due."""
        ...

    def call_soon(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        """Call a function in an event loop."""
        ...


class ComputeThread:
    """The one thread of the server's process that computes: makes calls, and does work in turns.

    OpenMP keeps its threads spinning between two steps only as long as there are no more of them
    than cores, and every thread that computes with torch brings its own. So a single thread loads
    the models and searches with all of them. On two cores, a lone sentence took three times as long
    where another thread had computed before.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        """Held while anything changes that work reads in its turns, and notified then."""
        self.turns = Turns()
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._work: list[Work] = []
        self._current: Work | None = None
        self._is_calling = False
        self._turn_began: float | None = None
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread, before any work, and return its result."""
        return self.submit(function).result()

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """Schedule a call in the thread, between two turns of its work."""
        future: Future[T] = Future()
        with self.changed:
            self._calls.append((function, future))
            self._start()
        return future

    def clock(self) -> float:
        """Return the CPU time of the calling thread: wall time includes waiting for the GIL."""
        return time.thread_time()

    def add(self, work: Work) -> None:
        """Give work its turns from now on."""
        with self.changed:
            self._work.append(work)
            self._start()

    def wake(self) -> None:
        """Check again which work is due."""
        with self.changed:
            self.changed.notify_all()

    def has(self, work: Work) -> bool:
        """Return whether work was added, and has neither crashed nor been removed."""
        with self.changed:
            return work in self._work

    def remove(self, work: Work, seconds: float) -> None:
        """Stop giving work its turns; wait so long for a turn in progress."""
        with self.changed:
            if work in self._work:
                self._work.remove(work)
            self.changed.wait_for(lambda: self._current is not work, seconds)

    def clear(self, seconds: float) -> bool:
        """Remove all work and calls; return whether those in progress have ended within so long."""
        with self.changed:
            self._work.clear()
            for _, future in self._calls:
                future.cancel()
            self._calls.clear()
            return self.changed.wait_for(
                lambda: self._current is None and not self._is_calling, seconds
            )

    def call_soon(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        """Call a function in an event loop."""
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(callback)

    @property
    def stalled_seconds(self) -> float:
        """For how long the current turn has been running; infinite if the thread has crashed."""
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
        lower_priority()
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
        """Give a turn to the work that is due with the smallest priority."""
        with self.changed:
            ready = [each for each in list(self._work) if self._due(each) == 0]
            if not ready:
                return
            work = ready[0] if len(ready) == 1 else min(ready, key=lambda each: each.priority())
            # Work of equal priority takes turns.
            self._work.remove(work)
            self._work.append(work)
            self._current, self._turn_began = work, time.monotonic()
        try:
            work.turn()
        except Exception:
            self._crashed(work)
        finally:
            with self.changed:
                self._current = self._turn_began = None
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
        """Remove work that failed because of a bug; other work continues."""
        log_error("work has crashed")
        with self.changed:
            if work in self._work:
                self._work.remove(work)


def lower_priority() -> None:
    """Lower the calling thread's scheduling priority below that of the event loop (Linux only).

    Threads that it starts inherit it: OpenMP's and CTranslate2's. With it, 32 clients got 380
    sentences per second from CTranslate2 on two cores, without it 345: responses left sooner.
    """
    if sys.platform == "linux":
        # An unprivileged process may not decrease a niceness that is already higher.
        niceness = max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


@contextmanager
def exiting_when_idle(compute: ComputeThread) -> Iterator[None]:
    """On exit, wait until the thread is idle; if that takes too long, exit without clean-up.

    A thread that returns from torch while Python shuts down aborts the process (SIGABRT).
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        if not compute.clear(_EXIT_SECONDS):
            code = stop.code if isinstance(stop, SystemExit) else 128 + signal.SIGINT
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 1)
        raise


class InLoop:
    """Gives work its turns in the event loop: work that only forwards to other processes."""

    def __init__(self) -> None:
        self.changed: AbstractContextManager[None] = nullcontext()
        self.turns = Turns()
        self._work: list[Work] = []
        self._is_scheduled = False

    def clock(self) -> float:
        """Return wall time: turns here are short, and `thread_time` is a slow system call."""
        return time.perf_counter()

    def add(self, work: Work) -> None:
        """Give work its turns from now on, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._work.append(work)
        self.wake()

    def has(self, work: Work) -> bool:
        """Return whether work was added, and has neither crashed nor been removed."""
        return work in self._work

    def remove(self, work: Work, seconds: float) -> None:
        """Stop giving work its turns; no turn is in progress when this is called."""
        if work in self._work:
            self._work.remove(work)

    def wake(self) -> None:
        """Check soon which work is due."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def call_soon(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        """Call a function now: this is the event loop."""
        callback()

    def _run(self) -> None:
        self._is_scheduled = False
        is_due = False
        for work in list(self._work):
            try:
                if work.due() == 0:
                    work.turn()
                    is_due |= work.due() == 0
            except Exception:  # A bug. Other work continues; the server is unhealthy.
                log_error("work has crashed")
                self._work.remove(work)
        if is_due:
            self.wake()


def set_results(results: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    """Set futures' results or exceptions, unless they are done or cancelled."""
    for future, result in results:
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
