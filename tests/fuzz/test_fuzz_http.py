"""HTTP framing: pieces of requests, whole and broken, on several connections of one server."""

import contextlib
import json
import logging
import re
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from headwise.config import Config, DataConfig, DecodeConfig, Vocab
from headwise.data import Subwords
from headwise.model import Transformer
from headwise.serving.limits import Limits
from headwise.serving.models import ServedModel
from headwise.tasks.translation.torch_engine import TorchEngine
from headwise.tasks.translation.translator import Translator
from tests.conftest import model_config
from tests.fuzz.conftest import Fuzz, FuzzMachine
from tests.fuzz.mutations import EXTREMES, mutated, mutated_json
from tests.servers import Running, running
from tests.small_runs import WORDS

STATUSES = {100, 200, 400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 421, 429, 431, 503}
"""What a request may be answered with; a 500 is a bug."""

_STATUS_LINE = re.compile(rb"HTTP/1\.1 (\d{3}) [\x20-\x7e]*")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9a-zA-Z-]+): ?([\t\x20-\x7e\x80-\xff]*)")

PATHS = [
    b"/v1/translate",
    b"/translate",
    b"/healthz",
    b"/v1/models",
    b"/metrics",
    b"/",
    b"/nothing",
]

BODY = {"q": "ban dora", "nbest": 1, "beam": 1}
CONTENT = json.dumps(BODY).encode()
REQUEST = (
    b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(CONTENT), CONTENT)
)

CHUNKED_HEAD = (
    b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LAST_REQUEST = REQUEST.replace(b"Host:", b"Connection: close\r\nHost:")

request_lines = st.one_of(
    st.tuples(st.sampled_from([b"GET", b"POST", b"PUT"]), st.sampled_from(PATHS)).map(
        lambda parts: b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n" % parts
    ),
    st.sampled_from(
        [
            *(b"GET / HTTP/1.0\r\n", b"GET / HTTP/2\r\n", b"GET /\r\n", b"GET  / HTTP/1.1\r\n"),
            *(b"GET http://x/ HTTP/1.1\r\n", b"OPTIONS * HTTP/1.1\r\n", b"CONNECT x HTTP/1.1\r\n"),
            *(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\r\n\r\n", b"\n"),
            *(b"GET /%00%ff%zz HTTP/1.1\r\n", b"GET /?" + b"q=" * 5000 + b" HTTP/1.1\r\n"),
        ]
    ),
)  # fmt: skip

numbers = st.sampled_from(EXTREMES).map(lambda number: b"%d" % number)
headers = st.one_of(
    numbers.map(b"Content-Length: %s\r\n".__mod__),
    st.sampled_from(
        [
            *(b"Content-Length: 5\r\n", b"Content-Length: 5, 5\r\n", b"Content-Length: +5\r\n"),
            *(b"Content-Length: \r\n", b"Content-Length : 5\r\n", b"Content-Length: 0x5\r\n"),
            *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n"),
            *(b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding:\x0bchunked\r\n"),
            *(b"Content-Type: application/json\r\n", b"Content-Type: multipart/form-data\r\n"),
            *(b"Host: 127.0.0.1\r\n", b"Host: \r\n", b"Host: [::1\r\n", b"Host: a@b:x\r\n"),
            *(b"Connection: close\r\n", b"Connection: upgrade\r\nUpgrade: websocket\r\n"),
            *(b"Expect: 100-continue\r\n", b" folded\r\n", b"no colon\r\n", b": empty\r\n"),
            *(b"X: " + b"x" * 40_000 + b"\r\n", b"X: y\r\n" * 200, b"X: \xff\x00\r\n"),
            *(b"Cookie: " + b'"\\' * 2000 + b"\r\n", b"X-Forwarded-For: " + b"1," * 500 + b"\r\n"),
            *(b"Authorization: Bearer x\r\n", b"Origin: null\r\n", b"Accept: text/html\r\n"),
        ]
    ),
)  # fmt: skip

bodies = st.one_of(
    st.just(CONTENT),
    mutated_json(BODY),
    st.sampled_from(
        [
            *(b"5\r\nhello\r\n", b"0\r\n\r\n", b"0\r\nTrailer: x\r\n\r\n", b"-1\r\n", b"G\r\n"),
            *(b"200\r\n" + b"x" * 512 + b"\r\n", b"x" * 500, b'{"q": "', b"no chunk\r\n"),
            *(b"5;x=y\r\nhello\r\n", b"f" * 16 + b"\r\n", b"f" * 40 + b"\r\n", b"5\r\nhellooo\r\n"),
        ]
    ),
    st.binary(max_size=50),
)  # fmt: skip


def responses(received: bytes) -> list[int]:
    """Return the status of each response; the last may be cut off by the end of its connection."""
    statuses = []
    while received:
        head, end, rest = received.partition(b"\r\n\r\n")
        if not end:
            assert b"HTTP/1.1 ".startswith(head[:9]) or head.startswith(b"HTTP/1.1 ")
            break
        status_line, *lines = head.split(b"\r\n")
        status = _STATUS_LINE.fullmatch(status_line)
        assert status is not None, status_line
        statuses.append(int(status[1]))
        fields = {}
        for line in lines:
            field = _HEADER.fullmatch(line)
            assert field is not None, line
            fields[field[1].lower()] = field[2]
        received = rest if statuses[-1] == 100 else _after_body(rest, fields)
    return statuses


def _after_body(rest: bytes, fields: dict[bytes, bytes]) -> bytes:
    if fields.get(b"transfer-encoding") == b"chunked":
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            rest = rest[int(size, 16) + 2 :]
            if int(size, 16) == 0:
                return rest
        return rest
    return rest[int(fields[b"content-length"]) :]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    subwords = Subwords.learn([" ".join(WORDS)] * 50, DataConfig(vocab_size=290))
    vocab = Vocab.shared(len(subwords))
    translator = Translator(
        TorchEngine(Transformer(model_config(num_layers=1), vocab).eval()),
        subwords,
        subwords,
        Config(
            data=DataConfig(source_language="xx", target_language="yy"),
            decode=DecodeConfig(max_extra_tokens=2),
        ),
        longest_source=100,
        name="random weights",
    )
    # Small ones, so that requests of a few bytes exceed them.
    limits = Limits(body_bytes=400, characters=100, texts=5, candidates=4, cost=2000)
    with running([ServedModel(name="run", translator=translator)], limits=limits) as server:
        yield server


class Tracebacks(logging.Handler):
    """The exceptions that were logged."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))


@pytest.fixture
def tracebacks() -> Iterator[Tracebacks]:
    """Listen at the loggers themselves: what they hand on depends on how logs were configured."""
    handler = Tracebacks()
    loggers = [logging.getLogger(name) for name in ("headwise.serving", "uvicorn", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler
    for logger in loggers:
        logger.removeHandler(handler)


def machine_for(server: Running, tracebacks: Tracebacks) -> type[RuleBasedStateMachine]:
    """Make the machine whose connections go to this server."""

    class Framing(RuleBasedStateMachine):
        connections = Bundle("connections")

        def __init__(self) -> None:
            super().__init__()
            tracebacks.found.clear()
            self._open: list[socket.socket] = []

        @initialize(target=connections)
        def begin(self) -> socket.socket:
            self._open.append(server.connect())
            return self._open[-1]

        @precondition(lambda self: len(self._open) < 2)
        @rule(target=connections)
        def connect(self) -> socket.socket:
            self._open.append(server.connect())
            return self._open[-1]

        @rule(connection=connections, line=request_lines)
        def start_request(self, connection: socket.socket, line: bytes) -> None:
            send(connection, line)

        @rule(connection=connections, line=request_lines, lines=st.lists(headers, max_size=3))
        def send_head(self, connection: socket.socket, line: bytes, lines: list[bytes]) -> None:
            send(connection, line + b"".join(lines) + b"\r\n")

        @rule(connection=connections, pieces=st.lists(bodies, max_size=2))
        def send_chunked(self, connection: socket.socket, pieces: list[bytes]) -> None:
            send(connection, CHUNKED_HEAD + b"".join(pieces))

        @rule(connection=connections, header=headers)
        def send_header(self, connection: socket.socket, header: bytes) -> None:
            send(connection, header)

        @rule(connection=connections)
        def end_headers(self, connection: socket.socket) -> None:
            send(connection, b"\r\n")

        @rule(connection=connections, body=bodies)
        def send_body(self, connection: socket.socket, body: bytes) -> None:
            send(connection, body)

        @rule(connection=connections, content=mutated(REQUEST))
        def send_damaged(self, connection: socket.socket, content: bytes) -> None:
            send(connection, content)

        @rule(connection=connections, count=st.integers(1, 5))
        def send_pipelined(self, connection: socket.socket, count: int) -> None:
            send(connection, REQUEST * count)

        @rule(connection=consumes(connections))
        def end(self, connection: socket.socket) -> None:
            self._open.remove(connection)
            send(connection, b"", end=True)
            read_to_the_end(connection)

        @rule(connection=consumes(connections))
        def reset(self, connection: socket.socket) -> None:
            self._open.remove(connection)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

        @rule(count=st.integers(1, 4))
        def ask_in_a_pipeline(self, count: int) -> None:
            connection = server.connect()
            send(connection, REQUEST * count + LAST_REQUEST)
            assert read_to_the_end(connection) == [200] * (count + 1)

        @invariant()
        def the_server_answers_others(self) -> None:
            assert server.ask("GET", "/healthz")[0] == 200
            assert not tracebacks.found

        def teardown(self) -> None:
            for connection in self._open:
                send(connection, b"", end=True)
                read_to_the_end(connection)

    return Framing


def send(connection: socket.socket, content: bytes, *, end: bool = False) -> None:
    """Send what the server takes: it closes a connection on what is not HTTP."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(content)
    if end:
        with contextlib.suppress(OSError):  # Not connected any more.
            connection.shutdown(socket.SHUT_WR)


def read_to_the_end(connection: socket.socket) -> list[int]:
    """Read until the server closes the connection, and check each answer's framing and status."""
    received = b""
    with connection, contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            received += piece
    statuses = responses(received)
    assert set(statuses) <= STATUSES, statuses
    return statuses


def test_framing(fuzz_machine: FuzzMachine, server: Running, tracebacks: Tracebacks) -> None:
    fuzz_machine(machine_for(server, tracebacks), examples=20)
    assert not tracebacks.found
    assert server.translate("ban dora", beam=1)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/translate", {"q": ["ban dora", "ku"], "nbest": 2, "beam": 2, "token_scores": True}),
        ("/v1/attention", {"q": "ban dora", "model": "run"}),
        ("/translate", {"q": ["ban"], "source": "auto", "target": "yy", "alternatives": 1}),
    ],
)
def test_json_over_http(
    path: str, fields: dict[str, object], server: Running, fuzz: Fuzz, tracebacks: Tracebacks
) -> None:
    """What a body asks for goes through search and into an answer, not only through a parser."""

    def ask(body: bytes) -> None:
        status, answer, _ = server.ask(
            "POST", path, body, {"Content-Type": "application/json"}, timeout=60
        )
        assert status in STATUSES
        assert status == 200 or set(answer) == {"error"}
        assert not tracebacks.found

    assert server.ask("POST", path, fields)[0] == 200
    fuzz(mutated_json(fields), ask)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(
            CHUNKED_HEAD + b"200\r\n" + b"x" * 512 + b"\r\nno chunk\r\n",
            id="a body that is too large, then a bad chunk",
        ),
        pytest.param(
            CHUNKED_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n") + b"no chunk\r\n",
            id="two lengths, then a bad chunk",
        ),
    ],
)
def test_found_framing(content: bytes, server: Running, tracebacks: Tracebacks) -> None:
    connection = server.connect()
    send(connection, content)
    assert read_to_the_end(connection) == [400]
    assert server.ask("GET", "/healthz")[0] == 200
    assert not tracebacks.found
