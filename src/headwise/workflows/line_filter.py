"""Translate the lines of a stream: one line out for each line in, in order, in bounded memory.

Lines that are waiting are translated together, up to a window of them. As soon as no line is
waiting, those read so far are translated and written, so that pipes are fast and a person at a
terminal gets each answer at once.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from io import BufferedIOBase

from headwise.data.lines import stream_lines
from headwise.data.text import LineReport, decode_line
from headwise.errors import DataError

_WINDOW_LINES = 512
_WINDOW_BYTES = 1 << 20
_WAKE_SECONDS = 0.5
"""How often the main thread wakes while it waits for a line. The kernel may deliver a signal to the
thread that reads; without waking, the main thread would not run its handler."""

_IDLE_SECONDS = 0.05


class _End:
    """Put last by the reader, with the error that ended the input, if any."""

    def __init__(self, error: DataError | None = None) -> None:
        self.error = error


class _LinesAhead(queue.Queue["bytes | _End"]):
    """A queue that holds one window: limited by lines and by bytes."""

    def __init__(self) -> None:
        super().__init__(maxsize=_WINDOW_BYTES)

    def _init(self, maxsize: int) -> None:
        self.queue: deque[bytes | _End] = deque()
        self._weight = 0

    def _qsize(self) -> int:
        return self._weight

    def _put(self, item: "bytes | _End") -> None:
        self.queue.append(item)
        self._weight += self._weight_of(item)

    def _get(self) -> "bytes | _End":
        item = self.queue.popleft()
        self._weight -= self._weight_of(item)
        return item

    @staticmethod
    def _weight_of(item: "bytes | _End") -> int:
        least = _WINDOW_BYTES // _WINDOW_LINES
        return least if isinstance(item, _End) else max(least, len(item))


def windows(stream: BufferedIOBase, name: str) -> Iterator[list[bytes]]:
    """Yield the lines of a stream, without their line feeds, in windows of the lines available.

    A thread reads ahead by at most one window. Only this thread uses the stream, and it closes it:
    any other thread would block while this one waits for a line. A line that is too long is a
    DataError, raised after the lines before it.
    """
    lines = _LinesAhead()

    def read() -> None:
        end = _End()
        try:
            with stream:
                for line in stream_lines(stream, name):
                    lines.put(line)
        except DataError as error:
            end = _End(error)
        except (OSError, ValueError, EOFError) as error:  # Broken, or closed by someone else.
            end = _End(DataError(f"{name}: the input cannot be read: {error}"))
        lines.put(end)

    threading.Thread(target=read, daemon=True).start()
    window: list[bytes] = []
    size = 0
    while True:
        try:
            line = lines.get(timeout=_IDLE_SECONDS if window else _WAKE_SECONDS)
        except queue.Empty:
            if window:
                yield window
                window, size = [], 0
            continue
        if isinstance(line, _End):
            if window:
                yield window
            if line.error is not None:
                raise line.error
            return
        window.append(line)
        size += len(line)
        if len(window) >= _WINDOW_LINES or size >= _WINDOW_BYTES:
            yield window
            window, size = [], 0


def translate_lines(
    stream: BufferedIOBase,
    name: str,
    translate: Callable[[list[str], int], list[str]],
    write: Callable[[bytes], None],
    *,
    lenient: bool,
    on_progress: Callable[[int], None],
) -> int:
    """Translate a stream's lines; return how many there were.

    `translate` gets some lines and the number of the first, from 0, and returns one line for each.
    The lines before one that cannot be read are translated and written first.
    """
    done = 0
    for window in windows(stream, name):
        texts, fault = _decoded(window, name, done, lenient)
        if texts:
            lines = translate(texts, done)
            assert len(lines) == len(texts)
            write("".join(f"{line}\n" for line in lines).encode())
        done += len(texts)
        on_progress(done)
        if fault is not None:
            raise fault
    return done


def _decoded(
    window: list[bytes], name: str, before: int, lenient: bool
) -> tuple[list[str], DataError | None]:
    """Decode lines up to the first that is not text."""
    texts: list[str] = []
    report = LineReport()
    for number, raw in enumerate(window, start=before + 1):
        try:
            text = decode_line(
                raw,
                name,
                number,
                report,
                advice="convert the input, or have such bytes replaced with --lenient",
                errors="replace" if lenient else "strict",
            )
        except DataError as fault:
            return texts, fault
        if "\0" in text and not lenient:
            return texts, DataError(
                f"{name}:{number}: a NUL character: remove it, or have it replaced with --lenient"
            )
        texts.append(text.replace("\0", "\ufffd"))
    return texts, None
