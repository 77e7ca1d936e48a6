"""What a server refuses: other hosts and sites, too many and too slow connections; and TLS."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from headwise.serving import pages
from headwise.serving.clients import AllowedHosts, TrustedProxies
from headwise.serving.keys import Keys, add_key
from headwise.serving.limits import Limits
from headwise.serving.server import exposure_warnings
from tests.servers import CERTIFICATE, PRIVATE_KEY, Running, running, served, start_serve, wait_for

LARGE = b"GET /static/large.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE_BYTES = 30_000_000
"""20 MB more than the kernel buffers for a client that reads nothing."""


@pytest.fixture
def _large_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pages._FILES, "large.js", b" " * LARGE_BYTES)


def read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(1_000_000), b""))


@contextmanager
def connected(server: Running) -> Iterator[socket.socket]:
    """Connect to a server, with TLS if it has TLS."""
    with server.connect() as connection:
        if server.tls is None:
            yield connection
        else:
            with server.tls.wrap_socket(connection, server_hostname="localhost") as wrapped:
                yield wrapped


def is_ended_early(connection: socket.socket) -> bool:
    """Return whether the server ends a connection before a large answer is complete."""
    try:
        return len(read_all(connection)) < LARGE_BYTES
    except (ConnectionResetError, ssl.SSLEOFError):
        return True


def ask_raw(server: Running, request: bytes) -> bytes:
    with server.connect() as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def test_other_hosts_are_refused_with_advice(trained_run: Path) -> None:
    hosts = AllowedHosts(["translate.example"])
    with running([served(trained_run)], hosts=hosts) as server:
        status, answer, _ = server.ask("GET", "/v1/models", headers={"Host": "Evil.example:80"})
        assert status == 421
        assert answer["error"] == (
            "this server does not answer for the host evil.example: "
            "its operator may add --allowed-host evil.example"
        )
        assert server.ask("GET", "/healthz", headers={"Host": "evil.example"})[0] == 200
        assert server.ask("GET", "/v1/models", headers={"Host": "translate.example"})[0] == 200
        old = ask_raw(server, b"GET /v1/models HTTP/1.0\r\n\r\n")
        assert old.startswith(b"HTTP/1.1 200"), "HTTP/1.0 has no Host"
        for hosts_sent in (b"", b"Host: localhost\r\nHost: localhost\r\n", b"Host: a@b\r\n"):
            answered = ask_raw(server, b"GET / HTTP/1.1\r\n" + hosts_sent + b"\r\n")
            assert answered.startswith(b"HTTP/1.1 400"), hosts_sent


def test_pages_of_other_sites_are_refused_unless_cors_allows_them(trained_run: Path) -> None:
    friend, evil = "https://friend.example", "https://evil.example"
    with running([served(trained_run)], origins=(friend,)) as server:
        for origin, expected in ((friend, 200), (evil, 403)):
            headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
            status, _, found = server.ask("POST", "/v1/translate", {"q": "ban"}, headers)
            assert status == expected
            assert found["access-control-allow-origin"] == (origin if expected == 200 else None)
            headers["Access-Control-Request-Method"] = "POST"
            assert server.ask("OPTIONS", "/v1/translate", headers=headers)[0] == expected
        headers = {"Origin": server.url}
        assert server.ask("POST", "/v1/translate", {"q": "ban"}, headers)[0] == 200


def test_the_connections_of_an_address_are_limited(trained_run: Path) -> None:
    limits = Limits(connections=3)
    with running([served(trained_run)], limits=limits) as server, ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in range(3)]
        wait_for(lambda: len(server.uvicorn.server_state.connections) == 3)
        status, answer, headers = server.ask("GET", "/healthz")
        assert (status, headers["retry-after"]) == (429, "1")
        assert answer["error"].startswith("too many connections from your address")
        with socket.create_connection(("127.0.0.1", server.port), 30, ("127.0.0.2", 0)) as other:
            other.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert read_all(other).startswith(b"HTTP/1.1 200"), "other clients have their own"
        connections[0].close()
        wait_for(lambda: server.ask("GET", "/healthz")[0] == 200)


def test_a_trusted_proxy_may_have_more_connections(trained_run: Path) -> None:
    limits, proxies = Limits(connections=3), TrustedProxies(["127.0.0.1"])
    with (
        running([served(trained_run)], limits=limits, proxies=proxies) as server,
        ExitStack() as stack,
    ):
        for _ in range(5):
            stack.enter_context(server.connect())
        wait_for(lambda: len(server.uvicorn.server_state.connections) == 5)
        assert server.ask("GET", "/healthz")[0] == 200


@pytest.mark.usefixtures("_large_file")
@pytest.mark.parametrize("has_tls", [False, True])
def test_a_response_must_be_received_by_its_deadline(trained_run: Path, has_tls: bool) -> None:
    # Progress is checked only once a minute: the deadline closes the connection.
    limits = Limits(read_seconds=60, answer_seconds=0.2)
    with (
        running([served(trained_run)], limits=limits, has_tls=has_tls) as server,
        connected(server) as slow,
    ):
        slow.sendall(LARGE)
        state = server.uvicorn.server_state
        wait_for(lambda: state.total_requests == 1)
        wait_for(lambda: not state.connections)


@pytest.mark.usefixtures("_large_file")
@pytest.mark.parametrize("has_tls", [False, True])
def test_all_unsent_responses_have_a_budget(trained_run: Path, has_tls: bool) -> None:
    limits = Limits(all_answers_bytes=35_000_000)
    with (
        running([served(trained_run)], limits=limits, has_tls=has_tls) as server,
        connected(server) as first,
        connected(server) as second,
    ):
        state = server.uvicorn.server_state
        first.sendall(LARGE)
        wait_for(lambda: state.total_requests == 1)
        second.sendall(LARGE)
        wait_for(lambda: len(state.connections) == 1)
        assert is_ended_early(first), "it has waited longest"
        taken = 0
        while taken < LARGE_BYTES:
            taken += len(second.recv(1_000_000))


@pytest.mark.usefixtures("_large_file")
def test_the_next_request_is_not_answered_before_a_response_is_received(trained_run: Path) -> None:
    with running([served(trained_run)]) as server, server.connect() as connection:
        connection.sendall(LARGE + LARGE)
        wait_for(lambda: server.uvicorn.server_state.total_requests == 1)
        answer = read_all(connection)
        assert answer.count(b"HTTP/1.1 200") == 1
        assert len(answer.partition(b"\r\n\r\n")[2]) == LARGE_BYTES


def test_bodies_without_a_key_do_not_block_those_with_one(
    trained_run: Path, tmp_path: Path
) -> None:
    key = add_key(tmp_path / "keys", "alice")
    limits = Limits(keyless_bodies_bytes=1000)
    with (
        running([served(trained_run)], limits=limits, keys=Keys(tmp_path / "keys")) as server,
        server.connect() as hoarder,
    ):
        hoarder.sendall(
            b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 2000\r\n\r\n" + b" " * 990
        )
        fields = {"q": "ban", "source": "xx", "target": "yy"}
        in_body = {**fields, "api_key": key}
        wait_for(lambda: server.ask("POST", "/translate", in_body)[0] == 503)
        header = {"Authorization": f"Bearer {key}"}
        assert server.ask("POST", "/translate", fields, header)[0] == 200
        hoarder.close()
        wait_for(lambda: server.ask("POST", "/translate", in_body)[0] == 200)


def test_tls_from_the_command_line(trained_run: Path, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys", "alice")
    options = ("--tls-cert", str(CERTIFICATE), "--tls-key", str(PRIVATE_KEY))
    keys = ("--keys", str(tmp_path / "keys"), "--allowed-host", "translate.example")
    with start_serve(trained_run, tmp_path, *options, *keys) as server:
        assert server.url.startswith("https:")
        for host, expected in (("translate.example", 401), ("evil.example", 421)):
            assert server.ask("GET", "/v1/models", headers={"Host": host})[0] == expected
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        status, _, headers = server.ask("POST", "/session", f"api_key={key}".encode(), form)
        assert status == 303
        cookie = headers["set-cookie"]
        assert cookie.startswith(f"__Host-headwise_session_{server.port}=")
        assert "Secure" in cookie
        session = {"Cookie": cookie.partition(";")[0], "Origin": server.url}
        assert server.ask("POST", "/v1/translate", {"q": "ban"}, session)[0] == 200
        # Plain HTTP fails the handshake; the server keeps running.
        with server.connect() as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with suppress(ConnectionResetError):
                assert b"HTTP" not in read_all(plain)
        assert server.ask("GET", "/healthz")[0] == 200
        assert "Traceback" not in server.log.read_text()


def test_a_handshake_has_a_time_limit_and_counts_as_a_connection(trained_run: Path) -> None:
    limits = Limits(read_seconds=1, connections=2)
    with (
        running([served(trained_run)], limits=limits, has_tls=True) as server,
        ExitStack() as stack,
    ):
        silent = [stack.enter_context(server.connect()) for _ in range(2)]
        silent[1].sendall(b"\x16\x03\x01")  # The beginning of a handshake.
        wait_for(lambda: len(server.uvicorn.server_state.connections) == 2)
        with pytest.raises(OSError, match=r"reset|EOF|closed|Broken pipe"):
            server.ask("GET", "/healthz")
        for each in silent:
            with suppress(ConnectionResetError):
                assert each.recv(100) == b""
        wait_for(lambda: not server.uvicorn.server_state.connections)
        assert server.ask("GET", "/healthz")[0] == 200


def test_a_request_sent_with_the_end_of_the_handshake_is_answered(trained_run: Path) -> None:
    with running([served(trained_run)], has_tls=True) as server, server.connect() as connection:
        assert server.tls is not None
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = server.tls.wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(100_000))
        tls.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.sendall(outgoing.read())
        answer = b""
        while b"}" not in answer:
            try:
                answer += tls.read(10_000)
            except ssl.SSLWantReadError:
                piece = connection.recv(100_000)
                assert piece, "the server closed the connection"
                incoming.write(piece)
        assert answer.startswith(b"HTTP/1.1 200")


def test_a_server_that_stops_does_not_wait_for_handshakes(trained_run: Path) -> None:
    # It would wait for a quarter of an hour.
    limits = Limits(read_seconds=1000, stop_seconds=1000)
    with ExitStack() as stack:
        with running([served(trained_run)], limits=limits, has_tls=True) as server:
            silent = stack.enter_context(server.connect())
            wait_for(lambda: len(server.uvicorn.server_state.connections) == 1)
        with suppress(ConnectionResetError):
            assert silent.recv(100) == b""


@pytest.mark.parametrize(
    ("host", "has_tls", "has_keys", "named"),
    [
        ("127.0.0.1", False, False, []),
        ("0.0.0.0", False, False, ["--tls-cert", "--keys"]),
        ("0.0.0.0", True, False, ["--keys"]),
        ("0.0.0.0", False, True, ["--tls-cert"]),
        ("0.0.0.0", True, True, []),
    ],
)
def test_warnings_about_sockets_that_other_machines_can_reach(
    host: str, has_tls: bool, has_keys: bool, named: list[str]
) -> None:
    with socket.create_server((host, 0)) as listener:
        warnings = exposure_warnings(listener, has_tls=has_tls, has_keys=has_keys)
    assert len(warnings) == len(named)
    for warning, option in zip(warnings, named, strict=True):
        assert f"use {option}" in warning
