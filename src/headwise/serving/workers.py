"""Start, supervise and end the worker processes, and divide searches among them.

Python runs one thread of a process at a time, and small steps gain little from several cores. So
for many clients, several processes with few cores each do more than one with all of them.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO

from headwise.decoding import Found, SearchSettings
from headwise.errors import ConfigError
from headwise.machine import num_cores
from headwise.model import Seq2Seq
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
    Event,
    Load,
    Loaded,
    SearchKey,
    encode_message,
)
from headwise.serving.worker_process import Assigned, WorkerProcess
from headwise.tasks.translation.engine import LostError

_START_SECONDS = 300.0
_STOP_SECONDS = 2.0
_POLL_SECONDS = 0.05
_MOST_POLLS = 100
"""How often to check whether a disconnected worker has exited by itself, before it is killed: its
own exit code tells more."""
_MOST_DOUBLINGS = 5
"""A worker that ends while starting is started again after 1, 2, 4, ... 32 seconds."""


class Workers:
    """A context manager for worker processes, each of which has all models."""

    def __init__(self, count: int, models: Mapping[str, Seq2Seq]) -> None:
        self._count, self._models = count, models
        self._loads: list[Load] = []
        self._numbers = itertools.count()
        self._searches = itertools.count()
        self.processes: list[WorkerProcess] = []
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
            self._loads.append(Load(name, model.config, model.vocab, weights.fileno()))
        files = [load.weights for load in self._loads]
        try:
            for _ in range(self._count):
                self.processes.append(WorkerProcess(max(1, num_cores() // self._count), files))
        except OSError as error:
            raise ConfigError(f"cannot start {self._count} workers: {error.strerror}") from error
        for worker in self.processes:
            worker.connection.settimeout(_START_SECONDS)
            try:
                worker.connection.sendall(b"".join(map(encode_message, self._loads)))
                while not self._is_ready(worker):
                    if not (data := worker.connection.recv(1 << 16)):
                        raise ConnectionResetError
                    for event in worker.decoder.feed(data):
                        self.handle(worker, event)
            except OSError as error:
                raise ConfigError(
                    "a worker process has ended before it was ready: try --workers 1"
                ) from error

    def _close(self, seconds: float) -> None:
        for worker in self.processes:
            worker.connection.close()
        until = time.monotonic() + seconds
        for worker in self.processes:
            worker.end(until - time.monotonic())
        self._files.close()

    async def watch(self, hang_seconds: float) -> None:
        """Handle the workers' events from now on, in the running event loop.

        A busy worker that sends no event for `hang_seconds` is killed and replaced.
        """
        for worker in self.processes:
            await worker.connect(partial(self.handle, worker))
            self._watching.append(asyncio.create_task(self._restart_whenever_ended(worker)))
        self._watching.append(asyncio.create_task(self._kill_hung_repeatedly(hang_seconds)))

    def kill_hung(self, seconds: float) -> None:
        """Kill busy workers that have sent no event for so long; `watch` replaces them."""
        for worker in self.processes:
            is_loading = not self._is_ready(worker)
            hangs = worker.is_hung(_START_SECONDS if is_loading else seconds, is_loading)
            if hangs and worker.process.poll() is None:
                log("a worker hangs, and is killed")
                worker.process.kill()

    def unwatch(self) -> None:
        """Stop handling events; close the connections."""
        for task in self._watching:
            task.cancel()
        self._watching.clear()
        for worker in self.processes:
            worker.transport.abort()

    @property
    def num_ready(self) -> int:
        """How many workers have loaded all models."""
        return sum(map(self._is_ready, self.processes))

    def search(
        self,
        model: str,
        settings: SearchSettings,
        max_extra_tokens: int,
        on_ready: Callable[[], None],
        client_of: Callable[[int], str],
        is_bulk: bool,
    ) -> "WorkerSearch":
        """Begin a search that is divided among the workers."""
        key = SearchKey(next(self._searches), model, settings, max_extra_tokens, is_bulk)
        return WorkerSearch(self, key, on_ready, client_of)

    def add(
        self, search: "WorkerSearch", sources: Mapping[int, list[int]]
    ) -> dict[int, tuple[WorkerProcess, int]]:
        """Send each sentence to the worker with least to do; return the worker and its number."""
        # A worker that does not read its commands gets no more.
        available = {
            worker: worker.tokens
            for worker in self.processes
            if self._is_ready(worker) and worker.is_reading
        }
        if not available:
            raise _refusal("all workers are busy" if self.num_ready else "all workers have ended")
        places: dict[int, tuple[WorkerProcess, int]] = {}
        commands: dict[WorkerProcess, Add] = {}
        for number, ids in sources.items():
            worker = min(available, key=lambda each: available[each])
            ours, tokens = next(self._numbers), (len(ids) + 1) * search.key.settings.beam
            available[worker] += tokens
            worker.assign(ours, Assigned(search, number, tokens))
            places[number] = (worker, ours)
            command = commands.setdefault(worker, Add(search.key, {}, {}))
            command.sources[ours], command.clients[ours] = ids, search.client_of(number)
        for worker, command in commands.items():
            worker.send(command)
        return places

    def drop(self, places: Collection[tuple[WorkerProcess, int]]) -> None:
        """Drop sentences, given by worker and number."""
        unwanted: dict[WorkerProcess, list[int]] = {}
        for worker, number in places:
            if (sentence := worker.in_progress.pop(number, None)) is not None:
                worker.dropping[number] = sentence.tokens
                unwanted.setdefault(worker, []).append(number)
        for worker, numbers in unwanted.items():
            worker.send(Drop(numbers))

    def _is_ready(self, worker: WorkerProcess) -> bool:
        return len(worker.loaded) == len(self._models)

    async def _restart_whenever_ended(self, worker: WorkerProcess) -> None:
        while True:
            await worker.link.lost.wait()
            self._fail_all(worker)
            for _ in range(_MOST_POLLS):
                if worker.process.poll() is not None:
                    break
                await asyncio.sleep(_POLL_SECONDS)
            worker.end(0)
            log("a worker has ended", code=worker.process.returncode)
            while not await self._start_again(worker):
                pass

    async def _kill_hung_repeatedly(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds / 4)
            self.kill_hung(seconds)

    def _fail_all(self, worker: WorkerProcess) -> None:
        """Fail the sentences of a worker that has ended."""
        lost = list(worker.in_progress.values())
        worker.in_progress.clear()
        worker.loaded.clear()
        for each in lost:
            each.search.fail(each.number, _refusal("a worker has ended"))

    async def _start_again(self, worker: WorkerProcess) -> bool:
        await asyncio.sleep(2.0 ** min(worker.failures, _MOST_DOUBLINGS))
        worker.failures += 1
        try:
            worker.start()
        except OSError as error:
            log("a worker cannot be started", error=error.strerror)
            return False
        await worker.connect(partial(self.handle, worker))
        for load in self._loads:
            worker.send(load)
        return True

    def handle(self, worker: WorkerProcess, event: Event) -> None:
        """Handle a worker's event."""
        worker.last_event_at = time.monotonic()
        if isinstance(event, Alive):
            return
        if isinstance(event, Loaded):
            worker.loaded.add(event.name)
            if self._is_ready(worker):
                worker.failures = 0
        elif isinstance(event, Dropped):
            for ours in event.numbers:
                worker.dropping.pop(ours, None)
        elif isinstance(event, Done):
            for ours, hypotheses in event.found:
                # It may have been dropped in the meantime.
                if (sentence := worker.in_progress.pop(ours, None)) is not None:
                    sentence.search.found.append((sentence.number, hypotheses))
                    sentence.search.on_ready()
        else:
            for ours in event.numbers:
                if (sentence := worker.in_progress.pop(ours, None)) is not None:
                    error = RuntimeError("a worker's search has failed")
                    sentence.search.fail(sentence.number, error)


class WorkerSearch:
    """A search that is divided among all workers."""

    def __init__(
        self,
        workers: Workers,
        key: SearchKey,
        on_ready: Callable[[], None],
        client_of: Callable[[int], str],
    ) -> None:
        self.key, self.on_ready, self.client_of = key, on_ready, client_of
        self.found: Found = []
        """Sentences that are done and not returned by `advance` yet."""
        self._failed: dict[int, Exception] = {}
        self._workers = workers
        self._places: dict[int, tuple[WorkerProcess, int]] = {}

    def __len__(self) -> int:
        """Return how many sentences are in progress."""
        return len(self._places)

    @property
    def is_ready(self) -> bool:
        """Whether `advance` has something to return or raise."""
        return bool(self.found or self._failed)

    def accepts(self, newcomers: int) -> bool:
        """Return True: each worker decides when new sentences join."""
        return True

    def add(self, sources: Mapping[int, list[int]]) -> None:
        """Add sentences; if no worker is available, only these fail."""
        try:
            self._places |= self._workers.add(self, sources)
        except RefusedError as refusal:
            for number in sources:
                self.fail(number, refusal)

    def advance(self) -> Found:
        """Return the sentences that are done, or raise LostError for those that failed."""
        if self._failed:
            failed, self._failed = self._failed, {}
            for number in failed:
                self._places.pop(number, None)
            raise LostError(failed)
        found, self.found = self.found, []
        for number, _ in found:
            del self._places[number]
        return found

    def drop(self, numbers: Collection[int]) -> None:
        """Drop some sentences."""
        places = [self._places.pop(number) for number in numbers if number in self._places]
        self.found = [each for each in self.found if each[0] in self._places]
        self._failed = {n: error for n, error in self._failed.items() if n not in numbers}
        self._workers.drop(places)

    def fail(self, number: int, error: Exception) -> None:
        """Record that the search for a sentence has failed."""
        self._failed[number] = error
        self.on_ready()


def _weights(model: Seq2Seq) -> IO[bytes]:
    """Write a model's weights to an unnamed temporary file: nothing is left after a crash.

    The file is not changed later: a restarted worker loads the same weights.
    """
    file = TemporaryFile()  # noqa: SIM115 - closed with the workers
    write_tensors(Path(f"/dev/fd/{file.fileno()}"), model_weights(model))
    return file


def _refusal(why: str) -> RefusedError:
    return RefusedError(503, f"{why}: try again in a moment", retry_after=1)
