"""What a server bears: crowds, slow and large requests, deadlines, clients that hang up."""

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

from headwise.serving.batching import _MOST_SEARCHES
from headwise.serving.limits import Limits
from headwise.serving.protocol import GuardedProtocol
from headwise.tasks.translation.translator import Translator
from tests.servers import Running, SlowSteps, running, served, start_serve, wait_for
from tests.small_runs import WORDS


@pytest.fixture(scope="module")
def translator(trained_run: Path) -> Translator:
    return Translator.load(trained_run)


@pytest.fixture(scope="module")
def process(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of its own, whose memory can be looked at, and which all clients share."""
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


def body(q: str, **fields: object) -> bytes:
    return json.dumps({"q": q, **fields}).encode()


def post(server: Running, q: str, **fields: object) -> bytes:
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
    """Send many requests at once, again and again; see that all are answered, and rightly."""
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
    # Where two candidates are as good as equal, neighbours may decide.
    assert wrong <= statuses[200] // 100
    assert set(health) == {200}
    # The first rounds fill what is kept: connections, caches, the allocator's room.
    assert max(sizes[rounds // 2 :]) <= sizes[rounds // 2 - 1] + 40, sizes


def test_a_crowd(process: Running, translator: Translator) -> None:
    crowd(process, translator, count=150, rounds=2)


@pytest.mark.slow
def test_a_thousand_at_once_ten_times(process: Running, translator: Translator) -> None:
    crowd(process, translator, count=1000, rounds=10)


def refused_while_sending(server: Running, *, chunked: bool, megabytes: int) -> None:
    """Send a body without end in sight; see it refused soon and in little memory."""
    before = memory(server.pid)
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # The highest begins anew.
    size = {"Transfer_Encoding": "chunked"} if chunked else {"Content_Length": megabytes * 10**6}
    with server.connect() as connection:
        connection.sendall(head(server, Content_Type="application/json", **size))
        piece = b" " * 100_000
        if chunked:
            piece = b"%x\r\n%s\r\n" % (len(piece), piece)

        def send() -> None:
            try:
                for _ in range(megabytes * 10):
                    connection.sendall(piece)
            except OSError:
                pass  # It may hang up once it has answered.

        sender = threading.Thread(target=send)
        begin = time.perf_counter()
        sender.start()
        answer = received(connection)
        seconds = time.perf_counter() - begin
        assert answer.startswith(b"HTTP/1.1 413")
        assert b'{"error":"a body may have 200,000 bytes at most"}' in answer
        assert seconds < 5
        sender.join(60)
        assert not sender.is_alive()
    assert memory(server.pid, "VmHWM") - before <= 5


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_while_it_comes(
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
    """Return an answer in JSON, which may come in pieces."""
    answer = b""
    while not answer.endswith(b"}"):
        piece = connection.recv(10_000)
        assert piece, answer
        answer += piece
    return answer


def is_closed(connection: socket.socket) -> bool:
    """Return whether the server closes a connection, politely or not, before it answers."""
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True


def test_slow_headers_and_bodies_are_ended(trained_run: Path) -> None:
    limits = Limits(read_seconds=1)
    with running([served(trained_run)], limits=limits) as server:
        begin = time.monotonic()
        with server.connect() as nothing, server.connect() as header, server.connect() as slow:
            header.sendall(b"GET /healthz HTTP/1.1\r\n")
            slow.sendall(head(server, Content_Type="application/json", Content_Length=50) + b"{")
            for _ in range(3):  # A byte now and then makes no difference.
                time.sleep(0.1)
                with suppress(ConnectionError):  # It may be ended already, on a busy machine.
                    header.sendall(b"X")
                    slow.sendall(b" ")
            assert received(slow).startswith(b"HTTP/1.1 408")
            for each in (header, nothing):
                assert is_closed(each)
            assert 0.9 < time.monotonic() - begin < 8
        # A second request of a connection is watched like the first.
        with server.connect() as kept:
            for _ in range(2):
                kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert received(kept).startswith(b"HTTP/1.1 200")
            kept.sendall(b"GET /heal")
            assert is_closed(kept)


def slow_crowd(server: Running, count: int, requests: int) -> None:
    """Hold many connections open with half a request; see that good requests do not suffer."""

    def p95() -> float:
        times = []
        for _ in range(requests):
            begin = time.perf_counter()
            server.translate("ban dora kuti")
            times.append(time.perf_counter() - begin)
        return sorted(times)[int(0.95 * (requests - 1))]

    alone = p95()
    connections = [server.connect() for _ in range(count)]
    try:
        for number, connection in enumerate(connections):
            slow_body = head(server, Content_Type="application/json", Content_Length=50) + b"{"
            connection.sendall(slow_body if number % 2 else b"GET /v1/models HTTP/1.1\r\nX:")
        crowded = min(p95() for _ in range(3))  # Whatever else the machine does is no matter.
    finally:
        for connection in connections:
            connection.close()
    # On a busy machine a few milliseconds are noise.
    assert crowded <= 2 * alone + 0.05, (alone, crowded)


def test_slow_connections_are_in_nobodys_way(process: Running) -> None:
    slow_crowd(process, count=60, requests=20)


@pytest.mark.slow
def test_five_hundred_slow_connections_are_in_nobodys_way(process: Running) -> None:
    slow_crowd(process, count=500, requests=60)


def hang_up(server: Running, count: int, steps: SlowSteps) -> None:
    """Let many clients ask and leave; see that the next is answered at once."""
    connections = [server.connect() for _ in range(count)]
    for connection in connections:
        connection.sendall(post(server, "ban dora kuti", min_length=40))
    wait_for(lambda: steps.count > 0)
    for connection in connections:
        connection.close()
    time.sleep(0.1)
    before = steps.count
    server.translate("ban")
    # Those that were left took a step more at the most; forty would have been the full price.
    assert steps.count - before < 30


def test_the_work_of_clients_that_hang_up_is_dropped(trained_run: Path) -> None:
    model = served(trained_run)
    with running([model]) as server, SlowSteps(model.translator, 0.02) as steps:
        hang_up(server, 30, steps)


@pytest.mark.slow
def test_the_work_of_two_hundred_clients_that_hang_up_is_dropped(trained_run: Path) -> None:
    model = served(trained_run)
    with running([model]) as server, SlowSteps(model.translator, 0.02) as steps:
        hang_up(server, 200, steps)


def test_a_deadline_ends_what_is_searched_and_what_waits(trained_run: Path) -> None:
    model = served(trained_run)
    limits = Limits(deadline=0.5)
    with running([model], limits=limits) as server, SlowSteps(model.translator, 0.05) as steps:
        answers = []

        def ask(alpha: float) -> None:
            fields = {"q": "ban dora", "min_length": 45, "alpha": alpha}
            answers.append(server.ask("POST", "/v1/translate", fields)[:2])

        # Each of other settings: only so many of these are searched at once, and the rest waits.
        alphas = [n / 10 for n in range(_MOST_SEARCHES + 2)]
        threads = [threading.Thread(target=ask, args=(alpha,)) for alpha in alphas]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [status for status, _ in answers] == [504] * len(alphas)
        assert answers[0][1]["error"].startswith("this took longer than 0.5 seconds")
        time.sleep(0.2)
        before = steps.count
        assert before < 30, "it would have been 45 for each"
        time.sleep(0.3)
        assert steps.count == before, "nothing goes on"
        _, metrics, _ = server.ask("GET", "/metrics")
        count = float(len(alphas))
        assert b'headwise_given_up_sentences_total{model="run"} %.1f' % count in metrics


def figures(server: Running) -> bytes:
    found: bytes = server.ask("GET", "/metrics")[1]
    return found


def test_a_full_queue_sends_the_rest_away(trained_run: Path) -> None:
    model = served(trained_run)
    with (
        running([model], limits=Limits(queue=3)) as server,
        SlowSteps(model.translator, 0.02) as steps,
    ):
        connections = [server.connect() for _ in range(_MOST_SEARCHES + 1)]
        for number, connection in enumerate(connections[1:]):
            connection.sendall(post(server, "ban", alpha=number, min_length=20))
            wait_for(lambda: b'waiting_sentences{model="run"} 0.0' in figures(server))
        # One more than are searched at once must wait, and is not overtaken.
        connections[0].sendall(post(server, ["ban", "kan", "dora"], alpha=5))  # type: ignore[arg-type]
        wait_for(lambda: b'waiting_sentences{model="run"} 3.0' in figures(server))
        assert steps.count > 0
        status, answer, headers = server.ask("POST", "/v1/translate", {"q": "kun", "alpha": 5})
        assert status == 429
        assert answer["error"].startswith("too many sentences are waiting")
        assert int(headers["retry-after"]) >= 1
        assert server.ask("GET", "/healthz")[0] == 200
        for connection in connections:
            assert received(connection).startswith(b"HTTP/1.1 200")
            connection.close()
        # More than the whole queue has its turn when nothing waits.
        assert len(server.translate(["ban"] * 5)) == 5


def test_logs_are_json_without_what_users_wrote(process: Running) -> None:
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


def test_many_bodies_at_once_have_a_limit_together(trained_run: Path) -> None:
    with running([served(trained_run)], limits=Limits(all_bodies_bytes=95_000)) as server:
        with server.connect() as first:
            first.sendall(head(server, Content_Type="application/json", Content_Length=90_001))
            first.sendall(b" " * 90_000)
            # While there is room, it is looked at, and has too many characters.
            large = {"q": "ban " * 3000}
            wait_for(lambda: server.ask("POST", "/v1/translate", large)[0] != 413)
            status, answer, headers = server.ask("POST", "/v1/translate", large)
            assert (status, headers["retry-after"]) == (503, "1")
            assert answer["error"].startswith("too much is sent at once")
        wait_for(lambda: server.ask("POST", "/v1/translate", {"q": "ban " * 24})[0] == 200)


def test_who_does_not_take_the_answer_is_hung_up_on(trained_run: Path) -> None:
    limits = Limits(read_seconds=0.5)
    with running([served(trained_run)], limits=limits) as server, server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # Answers enough to fill every buffer on the way, none of which is taken.
        request = b"GET /static/explorer.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
        service = server.uvicorn.server_state
        connection.setblocking(False)
        wait_for(lambda: service.connections)

        def is_ended() -> bool:
            with suppress(BlockingIOError, ConnectionResetError, BrokenPipeError):
                connection.send(request * 50)
            return not service.connections

        wait_for(is_ended)


def test_there_are_only_so_many_connections(
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
