"""What every reader of outside input owes: a result or one of our errors, in bounded memory."""

import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import ParamSpec, TypeVar

from headwise.errors import HeadwiseError

P = ParamSpec("P")
T = TypeVar("T")

MOST_MEMORY = 512 << 20
"""Bytes that a reader may map or allocate for the small inputs here."""

_MOST_SECONDS = 60
"""Against hangs only: every input here is read in milliseconds."""

_STATM = Path("/proc/self/statm")


def result_or_refusal(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Return what was read, or None where it was refused; every other exception is a bug."""
    with _limited():
        try:
            return read(*args, **kwargs)
        except HeadwiseError:
            return None


@contextmanager
def _limited() -> Iterator[None]:
    """Turn too much memory into a MemoryError, and a hang into an AssertionError."""

    def on_alarm(_: int, __: FrameType | None) -> None:
        raise AssertionError(f"not read within {_MOST_SECONDS} seconds")

    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(_MOST_SECONDS)
    if _STATM.exists():
        mapped = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MOST_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
