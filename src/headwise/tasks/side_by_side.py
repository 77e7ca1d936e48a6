"""Work on several batches at once, with one core for each.

A step of decoding is small. Shared out among cores, it is done before they have all begun, so
that two are slower than one; whole batches side by side keep every core at work.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier, Lock
from typing import TypeVar

import torch

T = TypeVar("T")

_making = Lock()


def side_by_side(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """Do all jobs, as many at a time as torch may use threads; return their results in order.

    When one fails, its error is raised, and what is not begun by then never is.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        return [job() for job in jobs]
    with _making:
        # A fork takes the pool along, but not its threads.
        pool = _pool(os.getpid(), threads)
    futures = [pool.submit(job) for job in jobs]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return threads for each of which torch has one thread.

    torch keeps that number for each thread, but takes it for the default of new ones, too.
    """
    ready = Barrier(threads + 1)

    def begin() -> None:
        torch.get_num_threads()  # A thread that has not asked takes the default once more, later.
        torch.set_num_threads(1)
        ready.wait()

    pool = ThreadPoolExecutor(threads, thread_name_prefix=f"headwise-{process}", initializer=begin)
    for _ in range(threads):
        pool.submit(int)
    ready.wait()
    torch.set_num_threads(threads)
    return pool
