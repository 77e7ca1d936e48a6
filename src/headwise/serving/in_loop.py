"""Work that hands on what others compute: done in the event loop, without a thread of its own."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from headwise.serving.compute import Work
from headwise.serving.fairness import Turns
from headwise.serving.logs import log_error


class InLoop:
    """Gives work its turns between other things that the event loop does."""

    def __init__(self) -> None:
        self.changed: AbstractContextManager[None] = nullcontext()
        self.turns = Turns()
        self._work: list[Work] = []
        self._is_scheduled = False

    def clock(self) -> float:
        """Return the time: a turn here is short, and `thread_time` is a slow system call."""
        return time.perf_counter()

    def add(self, work: Work) -> None:
        """Have something done from now on, in the event loop that runs."""
        self._loop = asyncio.get_running_loop()
        self._work.append(work)
        self.wake()

    def has(self, work: Work) -> bool:
        """Return whether something is done, and has not crashed."""
        return work in self._work

    def remove(self, work: Work, seconds: float) -> None:
        """Have something done no more; nothing is under way when this is called."""
        if work in self._work:
            self._work.remove(work)

    def wake(self) -> None:
        """Look, in a moment, whether there is something to do."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._look)

    def tell(self, loop: asyncio.AbstractEventLoop, news: Callable[[], None]) -> None:
        """Call something: the event loop is where we are."""
        news()

    def _look(self) -> None:
        self._is_scheduled = False
        is_due = False
        for work in list(self._work):
            try:
                if work.due() == 0:
                    work.turn()
                    is_due |= work.due() == 0
            except Exception:  # A bug. Other work goes on, and the server is not healthy any more.
                log_error("work has crashed")
                self._work.remove(work)
        if is_due:
            self.wake()
