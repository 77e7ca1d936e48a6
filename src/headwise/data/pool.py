"""Work on the blocks of a text in several processes, in order and in bounded memory."""

import gc
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

from headwise.errors import DataError

B = TypeVar("B")
R = TypeVar("R")

_BLOCKS_AHEAD = 4
"""Blocks for each process that may be under way at once: the bound on memory."""


def in_processes(work: Callable[[B], R], blocks: Iterable[B], processes: int) -> Iterator[R]:
    """Yield the result for each block, in order; `work` is pickled once for each process."""
    if processes == 1:
        yield from map(work, blocks)
        return
    # Spawned, not forked: a fork copies locks that another thread may be holding.
    with ProcessPoolExecutor(
        processes, get_context("spawn"), initializer=_set_work, initargs=(work,)
    ) as pool:
        under_way: deque[Future[R]] = deque()
        for block in blocks:
            with without_interrupts():
                under_way.append(pool.submit(_do_work, block))
            if len(under_way) >= processes * _BLOCKS_AHEAD:
                yield _result(under_way)
        while under_way:
            yield _result(under_way)


def _result(under_way: "deque[Future[R]]") -> R:
    try:
        return under_way.popleft().result()
    except BrokenProcessPool as error:
        raise DataError(
            "a process that encodes has ended: is there too little memory for --processes as many? "
            "In a script of your own, call this under `if __name__ == '__main__':`"
        ) from error


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Start processes that never hear of Ctrl-C, from their first moment on.

    It reaches every process of the terminal; the one that started the others answers it. What is
    held back here comes at the end of the block; a process started in it holds it back for good.
    The handler is held back, too: numpy's threads take signals that are blocked in this one.
    """
    came: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handler = (
        signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if is_main else None
    )
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if came:
        signal.raise_signal(signal.SIGINT)


_work: Callable[[Any], Any] | None = None


def _set_work(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    # Encoding makes lists by the thousand and no cycles: looking for some costs 7 % of its time.
    gc.disable()


def _end_with_parent(parent: int) -> None:
    """End this process once its parent has gone without a word."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _do_work(block: Any) -> Any:
    assert _work is not None
    return _work(block)
