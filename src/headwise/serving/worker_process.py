"""The server's handle of one worker process: how it is started, talked to and ended."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headwise.serving.worker import Command, Event, MessageDecoder, encode_message

if TYPE_CHECKING:
    from headwise.serving.workers import WorkerSearch

_PROGRAM = (
    "from headwise.garbage import collect_less; collect_less(); "
    "from headwise.serving.worker import main; main()"
)


class Assigned(NamedTuple):
    """A sentence that a worker searches for: its search, its number there, and its tokens."""

    search: "WorkerSearch"
    number: int
    tokens: int


class Link(asyncio.Protocol):
    """Receives a worker's events in the event loop."""

    def __init__(self, decoder: MessageDecoder, handle: Callable[[Event], None]) -> None:
        self._decoder, self._handle = decoder, handle
        self.lost = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        for event in self._decoder.feed(data):
            self._handle(event)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


class WorkerProcess:
    """One worker process, which can be started again after it has ended."""

    transport: asyncio.Transport
    link: Link

    def __init__(self, threads: int, files: Sequence[int]) -> None:
        """Start a process with so many threads, which inherits `files`."""
        self._threads, self._files = threads, files
        self.failures = 0
        """How often it has ended since it was last ready."""
        self.start()

    def start(self) -> None:
        """Start the process, with the state of a new one."""
        self.loaded: set[str] = set()
        self.in_progress: dict[int, Assigned] = {}
        """Its sentences, by their numbers in the messages."""
        self.dropping: dict[int, int] = {}
        """The tokens of sentences that it was sent to drop, and has not confirmed."""
        self.last_event_at = time.monotonic()
        """When it last sent an event, or became busy."""
        self.decoder = MessageDecoder()
        self.connection, theirs = socket.socketpair()
        # Ctrl-C goes to all processes of a terminal; only the server decides when workers end. The
        # process inherits the signal mask, so these signals are blocked from its start.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                [
                    sys.executable,
                    "-P",  # No imports from the server's working directory.
                    "-c",
                    _PROGRAM,
                    str(theirs.fileno()),
                    str(self._threads),
                ],
                pass_fds=[theirs.fileno(), *self._files],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        except OSError:
            self.connection.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()

    async def connect(self, handle: Callable[[Event], None]) -> None:
        """Pass its events to `handle` from now on, in the running event loop."""
        self.connection.setblocking(False)
        self.link = Link(self.decoder, handle)
        self.transport, _ = await asyncio.get_running_loop().create_unix_connection(
            lambda: self.link, sock=self.connection
        )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    @property
    def tokens(self) -> int:
        """How much it has to do, as far as known.

        Dropped sentences count until it confirms them: else a hung worker would seem idle, and get
        all new sentences.
        """
        in_progress = sum(each.tokens for each in self.in_progress.values())
        return in_progress + sum(self.dropping.values())

    @property
    def is_reading(self) -> bool:
        """Whether it has read all commands, as far as the connection's buffer tells."""
        return not self.transport.get_write_buffer_size()

    def send(self, command: Command) -> None:
        """Send a command without waiting for it to be read."""
        self.transport.write(encode_message(command))

    def assign(self, number: int, sentence: Assigned) -> None:
        """Record a sentence that it is sent."""
        if not self.in_progress and not self.dropping:
            self.last_event_at = time.monotonic()
        self.in_progress[number] = sentence

    def is_hung(self, seconds: float, is_loading: bool) -> bool:
        """Return whether it is busy, and has sent no event for so long."""
        is_busy = bool(is_loading or self.in_progress or self.dropping)
        return is_busy and time.monotonic() - self.last_event_at > seconds

    def end(self, seconds: float) -> None:
        """Wait so long for the process to exit, as its connection is closed, then kill it."""
        try:
            self.process.wait(max(0, seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
