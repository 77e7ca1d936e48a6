"""Stopping a server: requests in progress finish, no new ones start, no process is left."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import uvicorn

from headwise.serving.limits import Limits
from headwise.signals import SAME_SECONDS
from tests.conftest import Headwise
from tests.servers import COMPUTE, PausedSteps, Running, running, served, start_serve, wait_for

DISCONNECTED = (
    ConnectionRefusedError,
    ConnectionResetError,
    BrokenPipeError,
    http.client.RemoteDisconnected,
)


def test_stopped_under_load_it_finishes_requests_in_progress(
    trained_run: Path, tmp_path: Path
) -> None:
    with start_serve(trained_run, tmp_path) as server:
        statuses: list[int | str] = []
        texts = ["ban dora kuti bun kan bara " * 5] * 8

        def ask() -> None:
            fields = {"q": texts, "min_length": 50, "beam": 8}
            try:
                statuses.append(server.ask("POST", "/v1/translate", fields)[0])
            except OSError as error:
                statuses.append(type(error).__name__)

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        wait_for(lambda: server.metric("headwise_waiting_sentences") > 100)
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: refuses(server))
        assert server.process.poll() is None, "requests are in progress"
        assert server.process.wait(60) == 143
        for thread in threads:
            thread.join()
        # More than 100 sentences waited, and 128 were in progress: at least eight requests.
        assert statuses.count(200) >= 8
        # Later ones got an error response or no connection.
        disconnected = {each.__name__ for each in DISCONNECTED}
        assert set(statuses) <= {200, 503} | disconnected
        assert children_left(server) == []
        lines = [
            json.loads(each) for each in server.log.read_text().splitlines() if each.startswith("{")
        ]
        assert [line["event"] for line in lines if line["event"] != "request"] == [
            "listening",
            "stopping",
        ]


def refuses(server: Running) -> bool:
    """Return whether the server no longer listens."""
    try:
        server.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def children_left(server: Running) -> list[str]:
    """Return the child processes of the server."""
    found = subprocess.run(
        ["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True
    ).stdout
    return [line for line in found.splitlines() if line.split()[1] == str(server.pid)]


def test_requests_that_take_too_long_are_cancelled_when_stopping(trained_run: Path) -> None:
    model = served(trained_run)
    found: list[tuple[int, object]] = []
    with PausedSteps(model.translator) as steps:
        with running([model], limits=Limits(stop_seconds=0.5)) as server:
            kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
            kept.request("GET", "/readyz")
            assert kept.getresponse().read() == b'{"status":"ready"}'

            def ask() -> None:
                fields = {"q": "ban dora", "min_length": 45}
                found.append(server.ask("POST", "/v1/translate", fields)[:2])

            thread = threading.Thread(target=ask)
            thread.start()
            wait_for(lambda: steps.count == 1)
        thread.join()
        kept.close()
    assert found == [(503, {"error": "the server is stopping: try again in a moment"})]
    COMPUTE.call(lambda: None)  # After the step in progress.
    assert steps.count == 1


def test_a_signal_during_the_handler_of_another_does_not_drop_requests(
    trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle_exit = uvicorn.Server.handle_exit

    def interrupted(server: uvicorn.Server, number: int, frame: None) -> None:
        handle_exit(server, signal.SIGTERM, frame)
        handle_exit(server, number, frame)

    monkeypatch.setattr(uvicorn.Server, "handle_exit", interrupted)
    with running([served(trained_run)]) as server:
        server.uvicorn.handle_exit(signal.SIGINT, None)
        assert server.uvicorn.should_exit
        assert not server.uvicorn.force_exit


def test_signals_at_once_count_as_one_and_a_later_one_cancels_requests(
    trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = served(trained_run)
    found: list[tuple[int, object]] = []
    with PausedSteps(model.translator) as steps, running([model]) as server:
        signal_handler = server.uvicorn.handle_exit

        def ask() -> None:
            fields = {"q": "ban dora", "min_length": 45}
            found.append(server.ask("POST", "/v1/translate", fields)[:2])

        thread = threading.Thread(target=ask)
        thread.start()
        half = server.connect()
        half.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        wait_for(lambda: steps.count == 1)
        with monkeypatch.context() as at_once:
            at_once.setattr("headwise.signals.SAME_SECONDS", 1000.0)
            signal_handler(signal.SIGTERM, None)
            signal_handler(signal.SIGINT, None)
        wait_for(lambda: refuses(server))
        assert found == [], "the request is in progress"
        monkeypatch.setattr("headwise.signals.SAME_SECONDS", -1.0)
        signal_handler(signal.SIGINT, None)
        thread.join()
        assert found == [(503, {"error": "the server is stopping: try again in a moment"})]
        half.settimeout(5)
        with suppress(ConnectionResetError):
            assert half.recv(1) == b"", "the server does not wait for a slow client"
        half.close()


_COMPUTES_FOR_LONG = """
import torch
from headwise.model import Transformer
def step(*_):
    x = torch.ones(200, 200)
    while True:
        x @ x
Transformer.step = step
from headwise.cli import main
main()
"""


def test_the_process_exits_though_a_step_does_not_end(trained_run: Path) -> None:
    command = [sys.executable, "-c", _COMPUTES_FOR_LONG, "serve", str(trained_run), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        server = Running(int(process.stdout.readline().rpartition(":")[2]))
        found: list[int] = []
        thread = threading.Thread(
            target=lambda: found.append(server.ask("POST", "/v1/translate", {"q": "ban"})[0])
        )
        thread.start()
        wait_for(lambda: server.metric("headwise_source_tokens_total") > 0)
        process.send_signal(signal.SIGTERM)
        time.sleep(SAME_SECONDS + 0.1)
        process.send_signal(signal.SIGTERM)
        thread.join()
        assert (found, process.wait(60)) == ([503], 143)
        errors = process.stderr.read()
        assert all(line.startswith("{") for line in errors.splitlines()[1:]), errors


def test_it_is_not_ready_once_it_is_stopping(trained_run: Path) -> None:
    with running([served(trained_run)]) as server:
        server.uvicorn.service.stop_accepting()  # As the signal handler does.
        assert server.ask("GET", "/readyz")[0] == 503
        status, answer, headers = server.ask("GET", "/v1/models")
        assert (status, headers["retry-after"]) == (503, "5")
        assert answer["error"] == "the server is stopping or starting"
        assert server.ask("GET", "/healthz")[0] == 200


def test_what_cannot_be_served_is_a_one_line_error(headwise: Headwise, trained_run: Path) -> None:
    code, _, errors = headwise("serve")
    assert (code, "Missing argument 'RUN...'" in errors) == (2, True)
    code, _, errors = headwise("serve", "nothing")
    assert (code, "nothing does not exist" in errors) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, errors = headwise("serve", str(trained_run), "--port", port)
    assert (code, "Address already in use" in errors) == (2, True)
    for origin in ("https://example.org/", "example.org", "https://a b"):
        code, _, errors = headwise("serve", str(trained_run), "--cors", origin)
        assert (code, f"{origin!r} is not an origin" in errors) == (2, True)
    code, _, errors = headwise("serve", str(trained_run), "--trusted-proxy", "proxy.example")
    assert (code, "a trusted proxy is an address or a network" in errors) == (2, True)
    code, _, errors = headwise("serve", str(trained_run), str(trained_run), "--port", "0")
    assert (code, "two runs are called 'run'" in errors) == (2, True)


def test_a_missing_extra_is_named(trained_run: Path) -> None:
    code = (
        "import sys, importlib.util as u; find = u.find_spec;"
        "u.find_spec = lambda name, *rest: None if name == 'fastapi' else find(name, *rest);"
        "sys.argv = ['headwise', 'serve', 'x']; from headwise.cli import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 2
    assert result.stderr == (
        "headwise: serving needs fastapi: install with pip install 'headwise[serve]'\n"
    )
