"""Stdin and stdout of a filter."""

import os
import signal
import sys
from io import BufferedReader
from typing import BinaryIO

from headwise.errors import DataError


def standard_input(instead: str) -> BufferedReader:
    """Return stdin with a buffer of its own.

    Python needs the buffer of `sys.stdin` when it exits, while the thread that reads may hold it.
    """
    if sys.stdin is None:
        raise DataError(f"stdin is closed: {instead}")
    return open(sys.stdin.fileno(), "rb", closefd=False)


def standard_output(instead: str) -> BinaryIO:
    """Return stdout, to write bytes to."""
    if sys.stdout is None:
        raise DataError(f"stdout is closed: {instead}")
    return sys.stdout.buffer


def write_whole(stream: BinaryIO, content: bytes) -> None:
    """Write whole lines: signals are handled before or after."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        stream.write(content)
        stream.flush()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def reader_is_gone() -> SystemExit:
    """Return how to exit after a BrokenPipeError: quietly, with the code of SIGPIPE."""
    # The reader of our output has closed it. Python would try to flush the rest at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return SystemExit(128 + signal.SIGPIPE)
