"""Processes that search for translations, started, looked after and ended by the server.

Python lets one thread of a process run at a time, and small steps gain little from several cores.
So where many clients ask, several processes with few cores each do more than one with all of them.
"""

import asyncio
import itertools
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO

from headwise.decoding import Found, SearchSettings
from headwise.errors import ConfigError
from headwise.machine import num_cores
from headwise.model import Transformer
from headwise.runs.tensors import write_tensors
from headwise.runs.weights import model_weights
from headwise.serving.limits import RefusedError
from headwise.serving.logs import log
from headwise.serving.worker import (
    Add,
    Alive,
    Done,
    Drop,
    Dropped,
    Inbox,
    Load,
    Loaded,
    News,
    Order,
    SearchKey,
    packed,
)
from headwise.tasks.translation.engine import LostError

_START_SECONDS = 300.0
_STOP_SECONDS = 2.0
_LOOK_SECONDS = 0.05
_MOST_LOOKS = 100
"""How often it is looked whether a worker that has hung up has ended in its own way, which tells
more than ours."""
_MOST_DOUBLINGS = 5
"""A worker that ends as soon as it has started is started again after 1, 2, 4, ... 32 seconds."""


class _Link(asyncio.Protocol):
    """What a worker says, in the event loop."""

    def __init__(self, inbox: Inbox, take: Callable[[News], None]) -> None:
        self._inbox, self._take = inbox, take
        self.lost = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        for news in self._inbox.feed(data):
            self._take(news)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


class _Worker:
    """One process, as the server sees it."""

    transport: asyncio.Transport
    link: _Link

    def __init__(self, threads: int, files: Sequence[int]) -> None:
        self._threads, self._files = threads, files
        self.failures = 0
        """How often it has ended since it was last ready."""
        self.start()

    def start(self) -> None:
        """Start the process; what it was before is forgotten."""
        self.loaded: set[str] = set()
        self.under_way: dict[int, tuple[WorkerSearch, int, int]] = {}
        """Whose each sentence is, the number it has there, and its tokens."""
        self.given_up: dict[int, int] = {}
        """The tokens of those that it was told to give up, and has not said that it has."""
        self.heard_at = time.monotonic()
        """When it last said something, or was given something to do after it had nothing."""
        self.inbox = Inbox()
        self.connection, theirs = socket.socketpair()
        # Ctrl-C and the like go to all processes; only the server decides when the work ends. What
        # is blocked here is blocked there, from the first moment on.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                [
                    sys.executable,
                    "-P",  # Nothing from the directory that the server was started in.
                    "-c",
                    "from headwise.serving.worker import main; main()",
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

    @property
    def tokens(self) -> int:
        """How much it has to do, as far as is known.

        What it was told to give up counts until it says so: else one that has come to a stop would
        seem to have nothing to do, and be given everything.
        """
        under_way = sum(tokens for _, _, tokens in self.under_way.values())
        return under_way + sum(self.given_up.values())

    def send(self, order: Order) -> None:
        """Tell the process something, as soon as it listens."""
        self.transport.write(packed(order))

    def begin(self, number: int, search: "WorkerSearch", theirs: int, tokens: int) -> None:
        """Note that a sentence is given to it."""
        if not self.under_way and not self.given_up:
            self.heard_at = time.monotonic()
        self.under_way[number] = (search, theirs, tokens)

    def is_silent(self, seconds: float, is_loading: bool) -> bool:
        """Return whether it has something to do, and has said nothing for so long."""
        is_busy = bool(is_loading or self.under_way or self.given_up)
        return is_busy and time.monotonic() - self.heard_at > seconds

    def end(self, seconds: float) -> None:
        """Let the process end by itself, for which it has so long since its connection did."""
        try:
            self.process.wait(max(0, seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Workers:
    """As many processes as wanted, each with all models, while the block runs."""

    def __init__(self, count: int, models: Mapping[str, Transformer]) -> None:
        self._count, self._models = count, models
        self._orders: list[Load] = []
        self._numbers = itertools.count()
        self._searches = itertools.count()
        self._workers: list[_Worker] = []
        self._watching: list[asyncio.Task[None]] = []
        self._files = ExitStack()

    def __enter__(self) -> "Workers":
        """Start the processes and wait until they are ready."""
        try:
            self._start()
        except BaseException:
            self._close(0)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all processes."""
        self._close(_STOP_SECONDS)

    def _start(self) -> None:
        for name, model in self._models.items():
            weights = self._files.enter_context(_weights(model))
            self._orders.append(Load(name, model.config, model.vocab, weights.fileno()))
        files = [order.weights for order in self._orders]
        try:
            for _ in range(self._count):
                self._workers.append(_Worker(max(1, num_cores() // self._count), files))
        except OSError as error:
            raise ConfigError(f"cannot start {self._count} workers: {error.strerror}") from error
        for worker in self._workers:
            worker.connection.settimeout(_START_SECONDS)
            try:
                worker.connection.sendall(b"".join(map(packed, self._orders)))
                while not self._is_ready(worker):
                    if not (data := worker.connection.recv(1 << 16)):
                        raise ConnectionResetError
                    for news in worker.inbox.feed(data):
                        self._take(worker, news)
            except OSError as error:
                raise ConfigError(
                    "a process that was to search has ended before it was ready: try --workers 1"
                ) from error

    def _close(self, seconds: float) -> None:
        for worker in self._workers:
            worker.connection.close()
        until = time.monotonic() + seconds
        for worker in self._workers:
            worker.end(until - time.monotonic())
        self._files.close()

    async def watch(self, hang_seconds: float) -> None:
        """Take what they say, from now on, in the event loop that runs.

        A worker with something to do that is silent for `hang_seconds` is killed and replaced.
        """
        for worker in self._workers:
            await self._connect(worker)
            self._watching.append(asyncio.create_task(self._look_after(worker)))
        self._watching.append(asyncio.create_task(self._watch_silent(hang_seconds)))

    def kill_silent(self, seconds: float) -> None:
        """Kill the workers that hang; `watch` has them replaced."""
        for worker in self._workers:
            is_loading = not self._is_ready(worker)
            hangs = worker.is_silent(_START_SECONDS if is_loading else seconds, is_loading)
            if hangs and worker.process.poll() is None:
                log("a worker hangs, and is killed")
                worker.process.kill()

    def unwatch(self) -> None:
        """Take no more of what they say; they may end."""
        for task in self._watching:
            task.cancel()
        self._watching.clear()
        for worker in self._workers:
            worker.transport.abort()

    @property
    def num_ready(self) -> int:
        """How many there are to search."""
        return sum(map(self._is_ready, self._workers))

    def search(
        self,
        model: str,
        settings: SearchSettings,
        max_extra_tokens: int,
        on_ready: Callable[[], None],
        client_of: Callable[[int], str],
        is_bulk: bool,
    ) -> "WorkerSearch":
        """Begin a search that the workers share; each shares its time among the clients."""
        key = SearchKey(next(self._searches), model, settings, max_extra_tokens, is_bulk)
        return WorkerSearch(self, key, on_ready, client_of)

    def add(
        self, search: "WorkerSearch", sources: Mapping[int, list[int]]
    ) -> dict[int, tuple[_Worker, int]]:
        """Give each sentence to whoever has least to do; return by whom and as what it is known."""
        # Who has not even read what it was sent, for so long that it piles up, is given no more.
        listening = {
            worker: worker.tokens
            for worker in self._workers
            if self._is_ready(worker) and not worker.transport.get_write_buffer_size()
        }
        if not listening:
            raise _refusal("all workers are busy" if self.num_ready else "all workers have ended")
        places: dict[int, tuple[_Worker, int]] = {}
        orders: dict[_Worker, Add] = {}
        for number, ids in sources.items():
            worker = min(listening, key=lambda each: listening[each])
            ours, tokens = next(self._numbers), (len(ids) + 1) * search.key.settings.beam
            listening[worker] += tokens
            worker.begin(ours, search, number, tokens)
            places[number] = (worker, ours)
            order = orders.setdefault(worker, Add(search.key, {}, {}))
            order.sources[ours], order.clients[ours] = ids, search.client_of(number)
        for worker, order in orders.items():
            worker.send(order)
        return places

    def drop(self, places: Collection[tuple[_Worker, int]]) -> None:
        """Give up sentences."""
        orders: dict[_Worker, list[int]] = {}
        for worker, number in places:
            if (place := worker.under_way.pop(number, None)) is not None:
                worker.given_up[number] = place[2]
                orders.setdefault(worker, []).append(number)
        for worker, unwanted in orders.items():
            worker.send(Drop(unwanted))

    def _is_ready(self, worker: _Worker) -> bool:
        return len(worker.loaded) == len(self._models)

    async def _connect(self, worker: _Worker) -> None:
        worker.connection.setblocking(False)
        worker.link = _Link(worker.inbox, partial(self._take, worker))
        worker.transport, _ = await asyncio.get_running_loop().create_unix_connection(
            lambda: worker.link, sock=worker.connection
        )

    async def _look_after(self, worker: _Worker) -> None:
        """Have a worker start again whenever it has ended."""
        while True:
            await worker.link.lost.wait()
            self._lose(worker)
            for _ in range(_MOST_LOOKS):
                if worker.process.poll() is not None:
                    break
                await asyncio.sleep(_LOOK_SECONDS)
            worker.end(0)
            log("a worker has ended", code=worker.process.returncode)
            while not await self._start_again(worker):
                pass

    async def _watch_silent(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds / 4)
            self.kill_silent(seconds)

    def _lose(self, worker: _Worker) -> None:
        """Note that a worker has ended, and what it had under way with it."""
        lost = list(worker.under_way.values())
        worker.under_way.clear()
        worker.loaded.clear()
        for search, number, _ in lost:
            search.lose(number, _refusal("a worker has ended"))

    async def _start_again(self, worker: _Worker) -> bool:
        await asyncio.sleep(2.0 ** min(worker.failures, _MOST_DOUBLINGS))
        worker.failures += 1
        try:
            worker.start()
        except OSError as error:
            log("a worker cannot be started", error=error.strerror)
            return False
        await self._connect(worker)
        for order in self._orders:
            worker.send(order)
        return True

    def _take(self, worker: _Worker, news: News) -> None:
        worker.heard_at = time.monotonic()
        if isinstance(news, Alive):
            return
        if isinstance(news, Loaded):
            worker.loaded.add(news.name)
            if self._is_ready(worker):
                worker.failures = 0
        elif isinstance(news, Dropped):
            for ours in news.numbers:
                worker.given_up.pop(ours, None)
        elif isinstance(news, Done):
            for ours, hypotheses in news.found:
                # What was dropped in the meantime is nobody's.
                if (place := worker.under_way.pop(ours, None)) is not None:
                    search, number, _ = place
                    search.found.append((number, hypotheses))
                    search.on_ready()
        else:
            for ours in news.numbers:
                if (place := worker.under_way.pop(ours, None)) is not None:
                    search, number, _ = place
                    search.lose(number, RuntimeError("a worker's search has failed"))


class WorkerSearch:
    """A search that all workers take their part of."""

    def __init__(
        self,
        workers: Workers,
        key: SearchKey,
        on_ready: Callable[[], None],
        client_of: Callable[[int], str],
    ) -> None:
        self.key, self.on_ready, self.client_of = key, on_ready, client_of
        self.found: Found = []
        """What was found and not fetched yet."""
        self._lost: dict[int, Exception] = {}
        self._workers = workers
        self._places: dict[int, tuple[_Worker, int]] = {}

    def __len__(self) -> int:
        """Return how many sentences are under way."""
        return len(self._places)

    @property
    def is_ready(self) -> bool:
        """Whether there is anything to fetch."""
        return bool(self.found or self._lost)

    def accepts(self, newcomers: int) -> bool:
        """Return that it is always a good time: whoever searches lets them join when it is."""
        return True

    def add(self, sources: Mapping[int, list[int]]) -> None:
        """Begin with new sentences; where nobody can, they are lost, and the others go on."""
        try:
            self._places |= self._workers.add(self, sources)
        except RefusedError as refusal:
            for number in sources:
                self.lose(number, refusal)

    def advance(self) -> Found:
        """Fetch what was found."""
        if self._lost:
            lost, self._lost = self._lost, {}
            for number in lost:
                self._places.pop(number, None)
            raise LostError(lost)
        found, self.found = self.found, []
        for number, _ in found:
            del self._places[number]
        return found

    def drop(self, numbers: Collection[int]) -> None:
        """Give up some sentences."""
        places = [self._places.pop(number) for number in numbers if number in self._places]
        self.found = [each for each in self.found if each[0] in self._places]
        self._lost = {n: error for n, error in self._lost.items() if n not in numbers}
        self._workers.drop(places)

    def lose(self, number: int, error: Exception) -> None:
        """Note that nobody searches for a sentence any more."""
        self._lost[number] = error
        self.on_ready()


def _weights(model: Transformer) -> IO[bytes]:
    """Return a model's weights in a file without a name, of which nothing is ever left.

    They stay as they are now: a worker that is started later finds the same.
    """
    file = TemporaryFile()  # noqa: SIM115 - it is closed with the workers
    write_tensors(Path(f"/dev/fd/{file.fileno()}"), model_weights(model))
    return file


def _refusal(why: str) -> RefusedError:
    return RefusedError(503, f"{why}: try again in a moment", retry_after=1)
