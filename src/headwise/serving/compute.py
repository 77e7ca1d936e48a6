"""The one thread that computes.

Under torch, OpenMP keeps its threads awake between two steps only as long as there are no more of
them than cores, and every thread that computes brings its own. So a single one loads the models and
searches with all of them. On two cores a sentence alone took three times as long where another
thread had computed before.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_thread = ThreadPoolExecutor(1, thread_name_prefix="compute")


def compute(function: Callable[[], T]) -> T:
    """Call a function in the thread that computes, after what waits for it already."""
    return _thread.submit(function).result()
