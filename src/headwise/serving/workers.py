"""Processes that search for translations, started, looked after and ended by the server.

Python lets one thread of a process run at a time, and small steps gain little from several cores.
So where many clients ask, several processes with few cores each do more than one with all of them.
"""

import asyncio
import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from multiprocessing.connection import Pipe
from multiprocessing.reduction import send_handle
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import IO

from headwise.decoding import Found, SearchSettings
from headwise.errors import ConfigError
from headwise.model import Transformer
from headwise.runs.environment import cores
from headwise.runs.tensors import write_tensors
from headwise.runs.weights import model_weights
from headwise.serving.limits import RefusedError
from headwise.serving.logs import log
from headwise.serving.worker import (
    Add,
    Done,
    Drop,
    Load,
    Loaded,
    News,
    Order,
    SearchKey,
    Stop,
    receive,
    send,
)

_START_SECONDS = 300.0
_STOP_SECONDS = 2.0
_LONGEST_PAUSE = 30.0
"""Seconds between two starts of a worker that ends as soon as it has started."""


class _Worker:
    """One process, as the server sees it."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self.loaded: set[str] = set()
        self.under_way: dict[int, tuple[WorkerSearch, int]] = {}
        """Whose each sentence is, and the number it has there."""
        self.failures = 0
        """How often it has ended since it was last ready."""
        self.start()

    def start(self) -> None:
        """Start the process; what it was before is forgotten."""
        self.connection, theirs = Pipe()
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
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()

    def send(self, order: Order) -> None:
        """Tell the process something."""
        # Where it has ended, whoever reads from it notices, and tells those who wait.
        with suppress(OSError):
            send(self.connection, order)

    def load(self, order: Load, weights: IO[bytes]) -> None:
        """Give the process a model."""
        self.send(order)
        with suppress(OSError):
            send_handle(self.connection, weights.fileno(), self.process.pid)

    def end(self, seconds: float) -> None:
        """End the process, which was told to stop and has so long for it."""
        try:
            self.process.wait(max(0, seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.connection.close()


class Workers:
    """As many processes as wanted, shared by all models. Belongs to one thread."""

    def __init__(self, count: int) -> None:
        """Start them; they cannot be used before `load`."""
        self._models: list[tuple[Load, IO[bytes]]] = []
        """Each with its weights as they were: whoever is started later finds the same."""
        self._numbers = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._files = ExitStack()
        threads = max(1, cores() // count)
        self._workers = [_Worker(threads) for _ in range(count)]

    def __len__(self) -> int:
        """Return how many there are, whether they are ready or not."""
        return len(self._workers)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.send(Stop())
        until = time.monotonic() + _STOP_SECONDS
        for worker in self._workers:
            worker.end(until - time.monotonic())
        self._files.close()

    def load(self, models: Mapping[str, Transformer]) -> None:
        """Give all workers some models, and wait until they have them."""
        for name, model in models.items():
            order = Load(name, model.config, model.vocab)
            self._models.append((order, self._files.enter_context(_open_weights(model))))
        for worker in self._workers:
            self._load_all(worker)
        for worker in self._workers:
            while not self._has_all(worker):
                try:
                    if not worker.connection.poll(_START_SECONDS):
                        raise EOFError
                    self._take(worker, receive(worker.connection))
                except (EOFError, OSError) as error:
                    raise ConfigError(
                        "a process that was to search has ended before it was ready: "
                        "try --workers 1"
                    ) from error

    def watch(self) -> None:
        """Take what they say, from now on, in the event loop that runs."""
        self._loop = asyncio.get_running_loop()
        for worker in self._workers:
            self._loop.add_reader(worker.connection.fileno(), self._read, worker)

    def unwatch(self) -> None:
        """Take no more of what they say."""
        loop, self._loop = self._loop, None
        if loop is not None:
            for worker in self._workers:
                if not worker.connection.closed:
                    loop.remove_reader(worker.connection.fileno())

    @property
    def is_ready(self) -> bool:
        """Whether there is somebody to search."""
        return any(map(self._has_all, self._workers))

    def search(
        self,
        model: str,
        settings: SearchSettings,
        max_extra_tokens: int,
        on_ready: Callable[[], None],
    ) -> "WorkerSearch":
        """Begin a search that the workers share."""
        return WorkerSearch(self, SearchKey(model, settings, max_extra_tokens), on_ready)

    def add(
        self, search: "WorkerSearch", sources: Mapping[int, list[int]]
    ) -> dict[int, tuple[_Worker, int]]:
        """Give each sentence to whoever has least to do; return by whom and as what it is known."""
        ready = [worker for worker in self._workers if self._has_all(worker)]
        if not ready:
            raise _ended()
        places: dict[int, tuple[_Worker, int]] = {}
        orders: dict[_Worker, dict[int, list[int]]] = {}
        for number, ids in sources.items():
            worker = min(ready, key=lambda each: len(each.under_way))
            ours = next(self._numbers)
            worker.under_way[ours] = (search, number)
            places[number] = (worker, ours)
            orders.setdefault(worker, {})[ours] = ids
        for worker, order in orders.items():
            worker.send(Add(search.key, order))
        return places

    def drop(self, places: Collection[tuple[_Worker, int]]) -> None:
        """Give up sentences."""
        orders: dict[_Worker, list[int]] = {}
        for worker, number in places:
            if worker.under_way.pop(number, None) is not None:
                orders.setdefault(worker, []).append(number)
        for worker, unwanted in orders.items():
            worker.send(Drop(unwanted))

    def _has_all(self, worker: _Worker) -> bool:
        return worker.loaded.issuperset(order.name for order, _ in self._models)

    def _load_all(self, worker: _Worker) -> None:
        for order, weights in self._models:
            worker.load(order, weights)

    def _read(self, worker: _Worker) -> None:
        try:
            news = receive(worker.connection)
        except (EOFError, OSError):
            self._lose(worker)
        else:
            self._take(worker, news)

    def _take(self, worker: _Worker, news: News) -> None:
        if isinstance(news, Loaded):
            worker.loaded.add(news.name)
            if self._has_all(worker):
                worker.failures = 0
        elif isinstance(news, Done):
            for ours, hypotheses in news.found:
                # What was dropped in the meantime is nobody's.
                if (place := worker.under_way.pop(ours, None)) is not None:
                    search, number = place
                    search.found.append((number, hypotheses))
                    search.on_ready()
        else:
            lost = [worker.under_way.pop(ours, None) for ours in news.numbers]
            for search in {place[0] for place in lost if place is not None}:
                search.fail(RuntimeError("a worker's search has failed"))

    def _lose(self, worker: _Worker) -> None:
        """Note that a worker has ended, and what it had under way with it; have it come again."""
        if self._loop is None:
            return
        self._loop.remove_reader(worker.connection.fileno())
        worker.connection.close()
        worker.process.kill()  # Whatever it still wanted to do.
        log("a worker has ended", code=worker.process.wait())
        lost = {search for search, _ in worker.under_way.values()}
        worker.under_way.clear()
        worker.loaded.clear()
        for search in lost:
            search.fail(_ended())
        pause = min(_LONGEST_PAUSE, 2.0**worker.failures)
        worker.failures += 1
        self._loop.call_later(pause, self._start_again, worker)

    def _start_again(self, worker: _Worker) -> None:
        if self._loop is None:
            return
        worker.start()
        self._load_all(worker)
        self._loop.add_reader(worker.connection.fileno(), self._read, worker)


class WorkerSearch:
    """A search that all workers take their part of."""

    def __init__(self, workers: Workers, key: SearchKey, on_ready: Callable[[], None]) -> None:
        self.key, self.on_ready = key, on_ready
        self.found: Found = []
        """What was found and not fetched yet."""
        self._error: Exception | None = None
        self._workers = workers
        self._places: dict[int, tuple[_Worker, int]] = {}

    def __len__(self) -> int:
        """Return how many sentences are under way."""
        return len(self._places)

    @property
    def is_ready(self) -> bool:
        """Whether there is anything to fetch."""
        return bool(self.found) or self._error is not None

    def accepts(self, newcomers: int) -> bool:
        """Return that it is always a good time: whoever searches lets them join when it is."""
        return True

    def add(self, sources: Mapping[int, list[int]]) -> None:
        """Begin with new sentences."""
        self._places |= self._workers.add(self, sources)

    def advance(self) -> Found:
        """Fetch what was found."""
        if self._error is not None:
            self.drop(list(self._places))
            raise self._error
        found, self.found = self.found, []
        for number, _ in found:
            del self._places[number]
        return found

    def drop(self, numbers: Collection[int]) -> None:
        """Give up some sentences."""
        places = [self._places.pop(number) for number in numbers if number in self._places]
        self.found = [each for each in self.found if each[0] in self._places]
        self._workers.drop(places)

    def fail(self, error: Exception) -> None:
        """Let it end with an error."""
        self._error = error
        self.on_ready()


def _open_weights(model: Transformer) -> IO[bytes]:
    """Return a file without a name: nothing is left of it, however the server ends."""
    with TemporaryDirectory(prefix="headwise-") as directory:
        path = Path(directory) / "weights.safetensors"
        write_tensors(path, model_weights(model))
        return path.open("rb")


def _ended() -> RefusedError:
    return RefusedError(503, "what was searching has ended: try again in a moment", retry_after=1)
