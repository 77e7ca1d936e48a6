"""Worker processes: what they find, and what happens when they hang, crash or are killed."""

import asyncio
import fcntl
import json
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwise.config import Vocab
from headwise.decoding import SearchSettings
from headwise.errors import ConfigError
from headwise.model import Transformer
from headwise.serving.limits import Limits, RefusedError
from headwise.serving.worker import (
    Add,
    Alive,
    Command,
    Done,
    Drop,
    Dropped,
    Failed,
    MessageDecoder,
    SearchKey,
    Worker,
    encode_message,
)
from headwise.serving.worker_process import WorkerProcess
from headwise.serving.workers import Workers, WorkerSearch
from headwise.tasks.translation.engine import LostError
from headwise.tasks.translation.torch_engine import TorchEngine, TorchSearch
from headwise.tasks.translation.translator import Translator
from tests.conftest import Headwise, model_config
from tests.servers import Running, running, served, start_serve, wait_for

Test = Callable[[Workers], Coroutine[Any, Any, None]]
Run = Callable[[Test], None]

EXTRA = 10
FIRST = SearchSettings(nbest=2)
ENDLESS = SearchSettings(min_length=10_000)
HIGH = 1100
"""A file descriptor that is too high for `select`."""


@pytest.fixture(scope="module")
def models() -> dict[str, Transformer]:
    """Two different models: with tied and with untied embeddings."""
    vocab = Vocab.shared(50)
    return {
        "tied": Transformer(model_config(), vocab).eval(),
        "learned": Transformer(
            model_config(tying="untied", positions="learned", max_positions=10_200), vocab
        ).eval(),
    }


@pytest.fixture(scope="module")
def shared(models: dict[str, Transformer]) -> Iterator[tuple[Workers, asyncio.Runner]]:
    """Two workers, and the event loop that handles their events."""
    with Workers(2, models) as workers, asyncio.Runner() as runner:
        runner.run(workers.watch(hang_seconds=600))
        yield workers, runner
        workers.unwatch()
    assert not any(is_running(worker.pid) for worker in workers.processes)


@pytest.fixture
def run(shared: tuple[Workers, asyncio.Runner]) -> Iterator[Run]:
    """Run a test with two workers that are ready and idle."""
    workers, runner = shared
    yield lambda test: runner.run(asyncio.wait_for(test(workers), 60))

    async def restore() -> None:
        for worker in workers.processes:
            worker.process.send_signal(signal.SIGCONT)
            workers.drop([(worker, number) for number in worker.in_progress])
        await until(lambda: workers.num_ready == 2)
        await until(lambda: not any(worker.tokens for worker in workers.processes))

    runner.run(asyncio.wait_for(restore(), 60))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def ends(search: WorkerSearch) -> dict[int, Any]:
    """Wait for all sentences in progress."""
    found: dict[int, Any] = {}
    while len(search):
        await until(lambda: search.is_ready)
        found.update(search.advance())
    return found


def begun(workers: Workers, settings: SearchSettings = FIRST, model: str = "tied") -> WorkerSearch:
    extra = EXTRA if settings is FIRST else 10_000
    return workers.search(model, settings, extra, lambda: None, lambda number: "client", False)


def test_workers_find_what_the_engine_finds(run: Run, models: dict[str, Transformer]) -> None:
    sources = [[4 + (n * k) % 46 for k in range(1 + n % 9)] for n in range(40)]

    async def test(workers: Workers) -> None:
        searches = {name: begun(workers, model=name) for name in models}
        calls = 0

        def on_ready() -> None:
            nonlocal calls
            calls += 1

        searches["tied"].on_ready = on_ready
        for n, ids in enumerate(sources):
            for search in searches.values():
                search.add({n: ids})
        assert [len(worker.in_progress) for worker in workers.processes] == [40, 40]
        for name, model in models.items():
            found = await ends(searches[name])
            expected = TorchEngine(model).translate(sources, FIRST, EXTRA)
            assert [[each.ids for each in found[n]] for n in range(40)] == [
                [each.ids for each in hypotheses] for hypotheses in expected
            ]
        assert calls == 40
        assert [worker.in_progress for worker in workers.processes] == [{}, {}]

    run(test)


def test_dropped_sentences_are_no_longer_searched(run: Run) -> None:
    async def test(workers: Workers) -> None:
        search = begun(workers, ENDLESS)
        search.add({1: [5], 2: [6], 3: [7]})
        search.drop([1, 2, 3, 99])
        assert len(search) == 0
        assert [worker.in_progress for worker in workers.processes] == [{}, {}]
        # The workers confirm it, though the sentences would take 10,000 steps.
        await until(lambda: not any(worker.tokens for worker in workers.processes))

    run(test)


def test_a_sentence_dropped_after_it_is_done_is_not_returned(run: Run) -> None:
    async def test(workers: Workers) -> None:
        search = begun(workers)
        search.add({1: [5], 2: [6]})
        await until(lambda: len(search.found) == 2)
        search.drop([1])
        assert [number for number, _ in search.advance()] == [2]
        assert len(search) == 0

    run(test)


def test_a_killed_worker_is_replaced(run: Run) -> None:
    async def test(workers: Workers) -> None:
        search = begun(workers)
        first, second = workers.processes
        first.process.send_signal(signal.SIGSTOP)
        search.add({1: [5], 2: [6]})
        assert (len(first.in_progress), len(second.in_progress)) == (1, 1)
        killed = first.process
        killed.kill()
        await until(lambda: workers.num_ready == 1 and len(search.found) == 1)
        with pytest.raises(LostError) as caught:
            search.advance()
        (error,) = caught.value.errors.values()
        assert list(caught.value.errors) == [1]
        assert isinstance(error, RefusedError)
        assert "try again in a moment" in str(error)
        assert [number for number, _ in search.advance()] == [2], "the other worker is not affected"
        assert len(search) == 0
        assert workers.num_ready == 1
        assert await found_for(workers, {7: [5, 6]}) == [7]
        await until(lambda: workers.num_ready == 2)
        assert (first.pid != killed.pid, first.failures) == (True, 0)
        second.process.kill()
        await until(lambda: workers.num_ready == 1)
        assert await found_for(workers, {8: [5, 6]}) == [8], "the new process works"
        for worker in workers.processes:
            worker.process.kill()
        await until(lambda: workers.num_ready == 0)
        search = begun(workers)
        search.add({9: [5]})
        assert search.is_ready
        with pytest.raises(LostError) as caught:
            search.advance()
        assert "ended: try again in a moment" in str(caught.value.errors[9])
        assert (len(search), search.is_ready) == (0, False)

    run(test)


def test_the_exit_code_of_a_worker_is_logged(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[str, dict[str, Any]]] = []

    def log(event: str, **fields: Any) -> None:
        logged.append((event, fields))

    monkeypatch.setattr("headwise.serving.workers.log", log)

    async def test(workers: Workers) -> None:
        first, second = workers.processes
        first.transport.write(b"\0\0\0\1?")  # Not a message.
        second.process.kill()
        await until(lambda: len(logged) == 2)
        codes = [fields["code"] for _, fields in logged]
        assert sorted(codes) == [-signal.SIGKILL, 1]
        assert {event for event, _ in logged} == {"a worker has ended"}

    run(test)


def test_a_worker_that_cannot_be_started_is_retried(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(workers: Workers) -> None:
        (first, _), tries = workers.processes, 0
        start = first.start

        def fail_once() -> None:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise OSError(11, "no more processes")
            start()

        monkeypatch.setattr(first, "start", fail_once)
        first.process.kill()
        await until(lambda: workers.num_ready == 1)
        await until(lambda: workers.num_ready == 2)
        assert tries == 2

    run(test)


def test_a_worker_that_does_not_read_does_not_block_the_server(run: Run) -> None:
    async def test(workers: Workers) -> None:
        first, second = workers.processes
        first.process.send_signal(signal.SIGSTOP)
        search = begun(workers)
        for number in range(4000):
            search.add({number: [5] * 50})
            if not first.is_reading:
                break
            search.drop([number])
        assert not first.is_reading, "more than a connection's buffers hold"
        await until(lambda: second.is_reading)
        search.add({5000: [5], 5001: [6], 5002: [7]})
        assert {5000, 5001, 5002} <= {each.number for each in second.in_progress.values()}
        await until(lambda: len(search.found) >= 3)

    run(test)


def test_if_no_worker_reads_only_new_sentences_fail(run: Run) -> None:
    async def test(workers: Workers) -> None:
        search, other = begun(workers, ENDLESS), begun(workers)
        search.add({1: [5], 2: [6]})
        stop(workers)
        number = 0
        while any(worker.is_reading for worker in workers.processes):
            number += 1
            other.add({number: [5] * 50})
        search.add({3: [7]})
        with pytest.raises(LostError) as caught:
            search.advance()
        assert list(caught.value.errors) == [3]
        assert "are busy: try again in a moment" in str(caught.value.errors[3])
        assert (len(search), search.is_ready) == (2, False)

    run(test)


def stop(workers: Workers) -> None:
    for worker in workers.processes:
        worker.process.send_signal(signal.SIGSTOP)


def test_dropped_sentences_count_until_the_worker_confirms_them(run: Run) -> None:
    async def test(workers: Workers) -> None:
        first, second = workers.processes
        first.process.send_signal(signal.SIGSTOP)
        search = begun(workers)
        search.add({1: [5] * 9})
        assert len(first.in_progress) == 1
        search.drop([1])
        for number in range(2, 6):
            search.add({number: [5] * 9})
            assert (len(first.in_progress), len(second.in_progress)) == (0, 1)
            search.drop([number])
            await until(lambda: second.tokens == 0)
        assert first.tokens == 10 * FIRST.beam
        first.process.send_signal(signal.SIGCONT)
        await until(lambda: first.tokens == 0)

    run(test)


async def found_for(workers: Workers, sources: dict[int, list[int]]) -> list[int]:
    search = begun(workers)
    search.add(sources)
    return sorted(await ends(search))


def test_sentences_are_divided_by_size(run: Run) -> None:
    async def test(workers: Workers) -> None:
        search = begun(workers)
        search.add({0: [5] * 40, 1: [5], 2: [6], 3: [7], 4: [8]})
        first, second = workers.processes
        assert [each.number for each in first.in_progress.values()] == [0]
        assert [each.number for each in second.in_progress.values()] == [1, 2, 3, 4]
        assert (first.tokens, second.tokens) == (41 * FIRST.beam, 8 * FIRST.beam)
        await ends(search)

    run(test)


def test_workers_that_do_not_exit_are_killed(
    models: dict[str, Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[float] = []
    end = WorkerProcess.end

    def recorded(worker: WorkerProcess, seconds: float) -> None:
        timeouts.append(seconds)
        end(worker, seconds)

    monkeypatch.setattr(WorkerProcess, "end", recorded)
    monkeypatch.setattr("headwise.serving.workers._STOP_SECONDS", 0.5)
    with Workers(2, models) as workers:
        stop(workers)
    assert timeouts[0] <= 0.5
    assert timeouts[1] <= 0, "one timeout for all workers"
    assert not any(is_running(worker.pid) for worker in workers.processes)


def test_a_worker_that_ends_before_it_is_ready_is_an_error(
    models: dict[str, Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwise.serving.worker_process.sys.executable", "/bin/false")
    with (
        pytest.raises(ConfigError, match="before it was ready: try --workers 1"),
        Workers(2, models),
    ):
        pass
    monkeypatch.setattr("headwise.serving.worker_process.sys.executable", "/no/such/program")
    with pytest.raises(ConfigError, match="cannot start 2 workers: No such"), Workers(2, models):
        pass


class FailingSearch(TorchSearch):
    def add(self, sources: Mapping[int, list[int]]) -> None:
        raise ValueError("a bug")


class FailingEngine(TorchEngine):
    """An engine whose searches fail."""

    def search(
        self,
        settings: SearchSettings,
        max_extra_tokens: int,
        on_ready: Callable[[], None] = lambda: None,
    ) -> TorchSearch:
        return FailingSearch(self, settings, max_extra_tokens)


class Talk:
    """The server's end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._decoder = connection, MessageDecoder()
        self._connection.settimeout(60)
        self._events: list[Any] = []

    def send(self, *commands: Command) -> None:
        self._connection.sendall(b"".join(map(encode_message, commands)))

    def receive(self) -> Any:
        """Return the next event other than Alive: how often that is sent depends on time."""
        while not self._events:
            events = self._decoder.feed(self._connection.recv(7))
            self._events += [each for each in events if not isinstance(each, Alive)]
        return self._events.pop(0)


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise this process's limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def worker(many_files: None, models: dict[str, Transformer]) -> Iterator[Talk]:
    """A worker in a thread of this process, with one good engine and one that fails.

    Its file descriptor is as high as in a server with many clients.
    """
    ours, low = socket.socketpair()
    theirs = socket.socket(fileno=fcntl.fcntl(low, fcntl.F_DUPFD, HIGH))
    low.close()
    model = models["tied"]
    worker = Worker(theirs, {"good": TorchEngine(model), "bad": FailingEngine(model)})
    thread = threading.Thread(target=worker.run)
    thread.start()
    yield Talk(ours)
    ours.close()
    thread.join(10)
    assert not thread.is_alive()
    theirs.close()


def added(key: SearchKey, sources: dict[int, list[int]], client: str = "client") -> Add:
    return Add(key, sources, dict.fromkeys(sources, client))


def test_light_clients_are_served_before_bulk_ones(worker: Talk) -> None:
    hog, light = (SearchKey(n, "good", ENDLESS, 300, is_bulk=n == 0) for n in (0, 1))
    worker.send(added(hog, {n: [5] for n in range(100, 200)}, "hog"))
    worker.send(added(light, {1: [5]}, "innocent"))
    assert [number for number, _ in worker.receive().found] == [1]


def test_a_worker_that_hangs_is_killed_and_replaced(run: Run) -> None:
    async def test(workers: Workers) -> None:
        first, second = workers.processes
        hung = first.process
        hung.send_signal(signal.SIGSTOP)
        search = begun(workers)
        search.add({1: [5] * 9})
        assert len(first.in_progress) == 1
        workers.kill_hung(600)
        assert hung.poll() is None, "it may just be slow"
        for worker in (first, second):
            worker.last_event_at -= 1000
        workers.kill_hung(600)
        await until(lambda: search.is_ready)
        with pytest.raises(LostError, match="1 sentences were lost"):
            search.advance()
        assert hung.wait(10) == -signal.SIGKILL
        await until(lambda: workers.num_ready == 2)
        assert first.process is not hung
        assert await found_for(workers, {1: [5], 2: [6], 3: [7]}) == [1, 2, 3]
        assert second.process.poll() is None, "an idle worker is not hung"

    run(test)


def test_a_failing_search_does_not_affect_others(worker: Talk) -> None:
    good, bad = (SearchKey(0, name, FIRST, EXTRA, False) for name in ("good", "bad"))
    worker.send(added(bad, {1: [5], 2: [6]}))
    assert worker.receive() == Failed([1, 2])
    worker.send(added(good, {4: [5], 5: [6], 6: [7]}), Drop([5]))
    found: list[int] = []
    while len(found) < 2:
        event = worker.receive()
        if isinstance(event, Done):
            found += [number for number, _ in event.found]
        else:
            assert event == Dropped([5])
    assert sorted(found) == [4, 6]


def test_some_sentences_of_a_search_are_dropped(worker: Talk) -> None:
    endless, short = (
        SearchKey(0, "good", ENDLESS, 1000, False),
        SearchKey(1, "good", FIRST, 1, False),
    )
    worker.send(added(endless, {1: [5], 2: [6], 3: [7]}), added(short, {4: [5]}))
    assert [number for number, _ in worker.receive().found] == [4], "steps were taken"
    worker.send(Drop([1, 3]))
    assert worker.receive() == Dropped([1, 3])
    assert [number for number, _ in worker.receive().found] == [2]


def test_a_failure_concerns_its_own_search_only(run: Run) -> None:
    async def test(workers: Workers) -> None:
        search, other = begun(workers, ENDLESS), begun(workers, ENDLESS)
        search.add({1: [5], 2: [5]})
        other.add({1: [5]})
        (holder, number) = next(
            (worker, ours)
            for worker in workers.processes
            for ours, sentence in worker.in_progress.items()
            if (sentence.search, sentence.number) == (search, 1)
        )
        workers.handle(holder, Failed([number]))
        assert (search.is_ready, other.is_ready) == (True, False)
        with pytest.raises(LostError, match="1 sentences were lost") as caught:
            search.advance()
        assert isinstance(caught.value.errors[1], RuntimeError)
        assert (len(search), search.is_ready) == (1, False)
        search.drop([2])
        other.drop([1])

    run(test)


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # A thread may end meanwhile.
            found += map(int, (task / "children").read_text().split())
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def server(trained_run: Path, tmp_path: Path) -> Iterator[Running]:
    with start_serve(trained_run, tmp_path, "--workers", "2") as server:
        yield server


def test_a_server_with_workers_from_start_to_stop(server: Running, trained_run: Path) -> None:
    translator = Translator.load(trained_run)
    texts = ["ban dora kuti", "bun kan", "", "bara dora ban bun"]
    expected = [each.text for each in translator.translate(texts)]
    assert [each["text"] for each in server.translate(texts)] == expected
    attention = server.ask("POST", "/v1/attention", {"q": "ban dora"})
    assert (attention[0], len(attention[1]["records"])) == (200, 1)

    found = children(server.pid)
    assert len(found) == 2
    os.kill(found[0], signal.SIGKILL)
    wait_for(lambda: set(children(server.pid)) - set(found) and not is_running(found[0]))
    assert server.ask("GET", "/readyz")[0] == 200
    assert [each["text"] for each in server.translate(texts)] == expected
    wait_for(lambda: len(children(server.pid)) == 2)
    found = children(server.pid)

    answers: list[int] = []

    long = ["ban dora kuti bun kan bara " * 5] * 16

    def ask() -> None:
        fields = {"q": long, "min_length": 60, "beam": 8}
        answers.append(server.ask("POST", "/v1/translate", fields)[0])

    before = server.metric("headwise_source_tokens_total")
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    tokens = sum(len(ids) + 1 for ids in translator.cut(long, split=True).sources)
    wait_for(lambda: server.metric("headwise_source_tokens_total") == before + 4 * tokens)
    # As a service manager and a terminal do: several signals to all processes, in any order.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        for pid in (*found, server.pid):
            with suppress(ProcessLookupError):  # It may have ended.
                os.kill(pid, number)
    server.process.wait(60)
    for thread in threads:
        thread.join()
    log = server.log.read_text()
    assert answers == [200] * 4, f"requests in progress have not finished: {log}"
    assert not any(map(is_running, found))
    events = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert [line["event"] for line in events if line["event"] != "request"] == [
        "listening",
        "a worker has ended",
        "stopping",
    ]
    assert "Traceback" not in log


def test_sentences_of_cancelled_requests_are_dropped_by_the_workers(trained_run: Path) -> None:
    model = served(trained_run)
    with (
        Workers(2, {"run": model.translator.model}) as workers,
        running([replace(model, workers=workers)], limits=Limits(deadline=3)) as server,
    ):

        def translations() -> object:
            return server.ask("POST", "/v1/translate", {"q": "ban dora"})[1].get("translations")

        wait_for(lambda: translations() is not None)
        expected = translations()
        pids = [worker.pid for worker in workers.processes]

        def num_in_progress() -> int:
            return sum(len(worker.in_progress) for worker in workers.processes)

        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        status, answer, _ = server.ask("POST", "/v1/translate", {"q": ["ban", "dora", "kuti"]})
        assert (status, "longer than 3 seconds" in answer["error"]) == (504, True)
        wait_for(lambda: num_in_progress() == 0)

        with server.connect() as client:
            body = b'{"q": ["ban", "dora"]}'
            client.sendall(
                b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            wait_for(lambda: num_in_progress() == 2)
        wait_for(lambda: num_in_progress() == 0)
        wait_for(lambda: b'status="499"' in server.ask("GET", "/metrics")[1])

        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        wait_for(lambda: translations() == expected)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: server.ask("GET", "/readyz")[0] == 503)
        assert server.ask("POST", "/v1/translate", {"q": "ban dora"})[0] == 503
        wait_for(lambda: server.ask("GET", "/readyz")[0] == 200)
        wait_for(lambda: translations() == expected)


def test_a_killed_server_leaves_no_processes_and_files(
    trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with start_serve(trained_run, tmp_path, "--workers", "2") as server:
        found = children(server.pid)
        server.process.kill()
        server.process.wait()
        wait_for(lambda: not any(map(is_running, found)))
    assert list(temporary.iterdir()) == []


def test_workers_are_for_torch_on_cpu(headwise: Headwise, trained_run: Path) -> None:
    for option in (("--engine", "ctranslate2"), ("--device", "cuda")):
        code, _, errors = headwise("serve", str(trained_run), "--workers", "2", *option)
        assert (code, "--workers is for torch on CPU" in errors) == (2, True)
