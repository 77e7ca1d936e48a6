"""Load and limits: many, slow and large requests, deadlines, clients that disconnect."""

import asyncio
import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from headwise.serving.batching import MOST_SEARCHES
from headwise.serving.limits import Limits
from headwise.serving.protocol import GuardedProtocol
from headwise.tasks.translation.translator import Translator
from tests.servers import (
    PausedSteps,
    Running,
    SlowSteps,
    running,
    served,
    start_serve,
    wait_for,
)
from tests.small_runs import WORDS


@pytest.fixture(scope="module")
def translator(trained_run: Path) -> Translator:
    return Translator.load(trained_run)


@pytest.fixture(scope="module")
def process(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server in its own process, whose memory can be measured, shared by all tests."""
    directory = tmp_path_factory.mktemp("serve")
    options = ("--trusted-proxy", "127.0.0.0/8", "--max-requests", "2000")
    with start_serve(trained_run, directory, *options) as server:
        yield server


def memory(process: int, what: str = "VmRSS") -> int:
    """Return a process's memory in MB, or its highest with VmHWM."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) // 1024
    raise AssertionError(what)


def head(server: Running, path: str = "/v1/translate", **headers: object) -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def body(q: str | list[str], **fields: object) -> bytes:
    return json.dumps({"q": q, **fields}).encode()


def post(server: Running, q: str | list[str], **fields: object) -> bytes:
    content = body(q, **fields)
    sent = head(server, Content_Type="application/json", Content_Length=len(content))
    return sent + content


async def talk(server: Running, request: bytes) -> tuple[int, dict[str, str], Any]:
    """Make one request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        first, _, rest = request.partition(b"\r\n")
        writer.write(b"\r\n".join((first, b"Connection: close", rest)))
        head, _, content = (await asyncio.wait_for(reader.read(), 120)).partition(b"\r\n\r\n")
    finally:
        writer.close()
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, json.loads(content)


def crowd(server: Running, translator: Translator, count: int, rounds: int) -> None:
    """Send many requests at once, repeatedly; check that all are answered correctly."""
    generator = random.Random(1)
    texts = [" ".join(generator.choices(WORDS, k=generator.randint(1, 6))) for _ in range(50)]
    expected = [each.text for each in translator.translate(texts)]
    statuses: Counter[int] = Counter()
    wrong = 0
    health: list[int] = []

    async def one(number: int) -> None:
        nonlocal wrong
        status, headers, answer = await talk(server, post(server, texts[number % 50]))
        statuses[status] += 1
        if status == 200:
            wrong += answer["translations"][0]["text"] != expected[number % 50]
        else:
            assert int(headers["retry-after"]) >= 1
            assert answer["error"]

    async def watch() -> None:
        while True:
            status, _, _ = await talk(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            health.append(status)
            await asyncio.sleep(0.1)

    async def all_rounds() -> list[int]:
        watcher = asyncio.create_task(watch())
        found = []
        for _ in range(rounds):
            await asyncio.gather(*(one(number) for number in range(count)))
            found.append(memory(server.pid))
        assert not watcher.done(), watcher.exception()
        watcher.cancel()
        return found

    sizes = asyncio.run(all_rounds())
    assert statuses.total() == count * rounds
    assert set(statuses) <= {200, 429, 503}
    assert statuses[200] >= min(count, 100)
    # Of two candidates with almost equal scores, the batch may decide.
    assert wrong <= statuses[200] // 100
    assert set(health) == {200}
    # The first rounds fill caches and the allocator's pools.
    assert max(sizes[rounds // 2 :]) <= sizes[rounds // 2 - 1] + 40, sizes


def test_a_crowd(process: Running, translator: Translator) -> None:
    crowd(process, translator, count=150, rounds=2)


@pytest.mark.slow
def test_a_thousand_at_once_ten_times(process: Running, translator: Translator) -> None:
    crowd(process, translator, count=1000, rounds=10)


def refused_while_sending(server: Running, *, chunked: bool, megabytes: int) -> None:
    """Send a large body; check that it is refused before its end and in little memory."""
    before = memory(server.pid)
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # Resets the peak.
    size = {"Transfer_Encoding": "chunked"} if chunked else {"Content_Length": megabytes * 10**6}
    with server.connect() as connection:
        connection.sendall(head(server, Content_Type="application/json", **size))
        piece = b" " * 100_000
        if chunked:
            piece = b"%x\r\n%s\r\n" % (len(piece), piece)

        for _ in range(3):
            connection.sendall(piece)
        answer = received(connection)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b'{"error":"a body may have 200,000 bytes at most"}' in answer
        with suppress(OSError):  # It may close the connection after its response.
            for _ in range(megabytes * 10 - 3):
                connection.sendall(piece)
    assert memory(server.pid, "VmHWM") - before <= 5


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_before_its_end(
    process: Running, chunked: bool
) -> None:
    refused_while_sending(process, chunked=chunked, megabytes=200)
    assert process.translate("ban")


def test_a_bad_chunk_after_a_refusal_leaves_no_traceback(
    trained_run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(body_bytes=10)
    with running([served(trained_run)], limits=limits) as server, server.connect() as connection:
        kind = {"Content_Type": "application/json", "Transfer_Encoding": "chunked"}
        connection.sendall(head(server, **kind) + b"14\r\n" + b" " * 20 + b"\r\n")
        assert received(connection).startswith(b"HTTP/1.1 413")
        connection.sendall(b"no chunk\r\n")
        assert is_closed(connection)
        assert server.ask("GET", "/healthz")[0] == 200
    assert [record for record in caplog.records if record.exc_info] == []


def received(connection: socket.socket) -> bytes:
    """Receive a whole JSON response."""
    answer = b""
    while not answer.endswith(b"}"):
        piece = connection.recv(10_000)
        assert piece, answer
        answer += piece
    return answer


def is_closed(connection: socket.socket) -> bool:
    """Return whether the server closes a connection without a response."""
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True


def test_slow_headers_and_bodies_time_out(trained_run: Path) -> None:
    limits = Limits(read_seconds=1)
    with running([served(trained_run)], limits=limits) as server:
        with server.connect() as nothing, server.connect() as header, server.connect() as slow:
            header.sendall(b"GET /healthz HTTP/1.1\r\n")
            slow.sendall(head(server, Content_Type="application/json", Content_Length=50) + b"{")
            for _ in range(3):  # Single bytes do not extend the time.
                time.sleep(0.1)
                with suppress(ConnectionError):  # It may be closed already.
                    header.sendall(b"X")
                    slow.sendall(b" ")
            assert received(slow).startswith(b"HTTP/1.1 408")
            for each in (header, nothing):
                assert is_closed(each)
        # The second request of a connection has the same limit.
        with server.connect() as kept:
            for _ in range(2):
                kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert received(kept).startswith(b"HTTP/1.1 200")
            kept.sendall(b"GET /heal")
            assert is_closed(kept)


def slow_crowd(server: Running, count: int, requests: int) -> None:
    """Hold many connections open with half a request; check that other requests are answered."""
    expected = server.translate("ban dora kuti")
    connections = [server.connect() for _ in range(count)]
    try:
        for number, connection in enumerate(connections):
            slow_body = head(server, Content_Type="application/json", Content_Length=50) + b"{"
            connection.sendall(slow_body if number % 2 else b"GET /v1/models HTTP/1.1\r\nX:")
        for _ in range(requests):
            assert server.translate("ban dora kuti") == expected
    finally:
        for connection in connections:
            connection.close()


def test_slow_connections_do_not_block_others(process: Running) -> None:
    slow_crowd(process, count=60, requests=20)


@pytest.mark.slow
def test_five_hundred_slow_connections_do_not_block_others(process: Running) -> None:
    slow_crowd(process, count=500, requests=60)


def num_searches(server: Running) -> int:
    service = server.uvicorn.service
    return service.batcher(service.models.all[0]).num_searches


def disconnect(server: Running, count: int, steps: PausedSteps) -> None:
    """Let many clients send requests and disconnect; check that their searches end."""
    connections = [server.connect() for _ in range(count)]
    for connection in connections:
        connection.sendall(post(server, "ban dora kuti", min_length=40))
    wait_for(lambda: steps.count > 0 and server.uvicorn.service.num_pending == count)
    for connection in connections:
        connection.close()
    wait_for(lambda: server.metric("headwise_given_up_sentences_total") == count)
    steps.release()
    wait_for(lambda: num_searches(server) == 0)
    assert steps.count == 1, "no further step is taken"
    assert server.translate("ban")


def test_the_work_of_disconnected_clients_is_dropped(trained_run: Path) -> None:
    model = served(trained_run)
    with running([model]) as server, PausedSteps(model.translator) as steps:
        disconnect(server, 30, steps)


@pytest.mark.slow
def test_the_work_of_two_hundred_disconnected_clients_is_dropped(trained_run: Path) -> None:
    model = served(trained_run)
    with running([model]) as server, PausedSteps(model.translator) as steps:
        disconnect(server, 200, steps)


def test_a_deadline_ends_requests_in_progress_and_waiting(trained_run: Path) -> None:
    model = served(trained_run)
    limits = Limits(deadline=0.5)
    with running([model], limits=limits) as server, PausedSteps(model.translator) as steps:
        answers = []

        def ask(alpha: float) -> None:
            fields = {"q": "ban dora", "min_length": 45, "alpha": alpha}
            answers.append(server.ask("POST", "/v1/translate", fields)[:2])

        # All with different settings: only some are searched at once, and the rest waits.
        alphas = [n / 10 for n in range(MOST_SEARCHES + 2)]
        threads = [threading.Thread(target=ask, args=(alpha,)) for alpha in alphas]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [status for status, _ in answers] == [504] * len(alphas)
        assert answers[0][1]["error"].startswith("this took longer than 0.5 seconds")
        assert server.metric("headwise_given_up_sentences_total") == len(alphas)
        steps.release()
        wait_for(lambda: num_searches(server) == 0)
        assert steps.count == 1, "no further step is taken"


def metrics(server: Running) -> bytes:
    found: bytes = server.ask("GET", "/metrics")[1]
    return found


def test_a_full_queue_refuses_more(trained_run: Path) -> None:
    model = served(trained_run)
    with (
        running([model], limits=Limits(queue=3)) as server,
        SlowSteps(model.translator, 0.02) as steps,
    ):
        connections = [server.connect() for _ in range(MOST_SEARCHES + 1)]
        for number, connection in enumerate(connections[1:]):
            connection.sendall(post(server, "ban", alpha=number, min_length=20))
            wait_for(lambda: b'waiting_sentences{model="run"} 0.0' in metrics(server))
        # One more than are searched at once must wait.
        connections[0].sendall(post(server, ["ban", "kan", "dora"], alpha=5))
        wait_for(lambda: b'waiting_sentences{model="run"} 3.0' in metrics(server))
        assert steps.count > 0
        status, answer, headers = server.ask("POST", "/v1/translate", {"q": "kun", "alpha": 5})
        assert status == 429
        assert answer["error"].startswith("too many sentences are waiting")
        assert int(headers["retry-after"]) >= 1
        assert server.ask("GET", "/healthz")[0] == 200
        for connection in connections:
            assert received(connection).startswith(b"HTTP/1.1 200")
            connection.close()
        # A request larger than the queue is accepted when nothing waits.
        assert len(server.translate(["ban"] * 5)) == 5


def test_logs_are_json_without_users_texts(process: Running) -> None:
    process.translate("geheimnis")
    process.ask("POST", "/v1/translate", {"q": "geheimnis", "model": "geheimnis"})
    _, _, headers = process.ask(
        "GET", "/geheimnis?geheimnis=geheimnis", headers={"X-Forwarded-For": "203.0.113.9"}
    )
    process.ask("POST", "/translate", {"q": "geheimnis\0", "source": "geheimnis", "target": "y"})
    log = process.log.read_text()
    assert "geheimnis" not in log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    requests = [line for line in lines if line["event"] == "request"]
    fields = {"time", "level", "method", "route", "status", "seconds", "request", "client"}
    assert fields <= set(requests[-1])
    assert any(line.get("characters") == 9 and line["status"] == 200 for line in requests)
    (forwarded,) = [line for line in requests if line["client"] == "203.0.113.9"]
    assert (forwarded["route"], forwarded["status"]) == ("none", 404)
    assert forwarded["proxy"] == "127.0.0.1"
    assert forwarded["request"] == headers["x-request-id"]


def test_all_bodies_together_are_limited(trained_run: Path) -> None:
    with running([served(trained_run)], limits=Limits(all_bodies_bytes=95_000)) as server:
        with server.connect() as first:
            first.sendall(head(server, Content_Type="application/json", Content_Length=90_001))
            first.sendall(b" " * 90_000)
            # While there is room, it is parsed, and refused for its characters.
            large = {"q": "ban " * 3000}
            wait_for(lambda: server.ask("POST", "/v1/translate", large)[0] != 413)
            status, answer, headers = server.ask("POST", "/v1/translate", large)
            assert (status, headers["retry-after"]) == (503, "1")
            assert answer["error"].startswith("too many request bodies at once")
        wait_for(lambda: server.ask("POST", "/v1/translate", {"q": "ban " * 24})[0] == 200)


def test_a_client_that_does_not_receive_responses_is_disconnected(trained_run: Path) -> None:
    limits = Limits(read_seconds=0.5)
    with running([served(trained_run)], limits=limits) as server, server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # Enough responses to fill every buffer, none of which is received.
        request = b"GET /static/explorer.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
        service = server.uvicorn.server_state
        connection.setblocking(False)
        wait_for(lambda: service.connections)

        def is_ended() -> bool:
            with suppress(BlockingIOError, ConnectionResetError, BrokenPipeError):
                connection.send(request * 50)
            return not service.connections

        wait_for(is_ended)


def test_the_number_of_connections_is_limited(
    trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running([served(trained_run)]) as server:
        protocol = cast("type[GuardedProtocol]", server.uvicorn.config.http_protocol_class)
        monkeypatch.setattr(protocol.open_connections, "most", 3)
        connections = [server.connect() for _ in range(3)]
        wait_for(lambda: len(server.uvicorn.server_state.connections) == 3)
        status, answer, headers = server.ask("GET", "/healthz")
        assert (status, headers["retry-after"]) == (503, "1")
        assert answer["error"].startswith("too many connections")
        for connection in connections:
            connection.close()
        wait_for(lambda: server.ask("GET", "/healthz")[0] == 200)
