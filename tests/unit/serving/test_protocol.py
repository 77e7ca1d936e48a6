"""When connections are closed or paused: unsent responses, pipelined requests, busy clients."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from headwise.serving.client_limits import LoopTime, OpenConnections, UnsentResponses
from headwise.serving.clients import TrustedProxies
from headwise.serving.protocol import GuardedProtocol

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Timer:
    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self.seconds, self.call, self.is_cancelled = seconds, call, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """A loop's timers, which a test fires."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, call: Callable[..., None], *arguments: Any) -> Timer:
        self.timers.append(Timer(seconds, lambda: call(*arguments)))
        return self.timers[-1]

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        call(*arguments)

    def waiting(self, seconds: float) -> list[Timer]:
        return [each for each in self.timers if each.seconds == seconds and not each.is_cancelled]

    def fire(self, seconds: float) -> None:
        """Fire the last timer of so many seconds."""
        timer = self.waiting(seconds)[-1]
        self.timers.remove(timer)
        timer.call()


class Transport:
    """A transport whose client receives as much as a test says."""

    def __init__(self, unsent: int = 0) -> None:
        self.unsent, self.is_aborted, self.is_closed = unsent, False, False
        self.is_read = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("192.0.2.1", 50_000) if name == "peername" else default

    def write(self, data: bytes) -> None:
        self.unsent += len(data)

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


async def never(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


def connect(loop: object, wire: Transport | None = None) -> tuple[GuardedProtocol, Transport]:
    class Protocol(GuardedProtocol):
        open_connections = OpenConnections(most=10, most_per_client=10, proxies=TrustedProxies())
        unsent_responses = UnsentResponses(10_000_000)
        loop_time = LoopTime(TrustedProxies())

    config = uvicorn.Config(never, http=Protocol, ws="none", log_config=None, lifespan="off")
    protocol = Protocol(config, ServerState(), {}, cast("asyncio.AbstractEventLoop", loop))
    protocol.wire = cast("asyncio.Transport | None", wire)
    transport = Transport()
    protocol.connection_made(cast("asyncio.Transport", transport))
    return protocol, transport


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_receiving_slowly_does_not_extend_a_responses_deadline(clock: Clock) -> None:
    protocol, transport = connect(clock)
    transport.unsent = 1_000_000
    protocol.pause_writing()
    for _ in range(3):
        transport.unsent -= 100_000
        clock.fire(protocol.read_seconds)
        assert not transport.is_aborted, "it receives enough between two checks"
    clock.fire(protocol.answer_seconds)
    assert transport.is_aborted


def test_a_response_received_in_time_closes_nothing(clock: Clock) -> None:
    protocol, transport = connect(clock)
    transport.unsent = 1_000_000
    protocol.pause_writing()
    transport.unsent = 0
    clock.fire(protocol.answer_seconds)
    assert not transport.is_aborted
    # The next response has the whole time.
    transport.unsent = 1_000_000
    protocol.pause_writing()
    assert len(clock.waiting(protocol.answer_seconds)) == 1


def test_the_deadline_is_cancelled_once_a_response_is_received(clock: Clock) -> None:
    protocol, transport = connect(clock)
    transport.unsent = 1_000_000
    protocol.pause_writing()
    transport.unsent = 0
    clock.fire(protocol.read_seconds)
    assert not clock.waiting(protocol.answer_seconds)


def test_bytes_buffered_below_tls_count_as_unsent(clock: Clock) -> None:
    wire = Transport()
    protocol, transport = connect(clock, wire)
    wire.unsent, transport.unsent = 1_000_000, 0
    protocol.on_response_complete()
    assert protocol.unsent() == 1_000_000
    clock.fire(protocol.answer_seconds)
    assert wire.is_aborted


def test_a_lost_connection_is_no_longer_counted(clock: Clock) -> None:
    protocol, transport = connect(clock)
    transport.unsent = 1_000_000
    protocol.pause_writing()
    protocol.connection_lost(None)
    assert not clock.waiting(protocol.answer_seconds)
    assert protocol.unsent_responses.total == 0


def test_pipelined_requests_are_limited() -> None:
    async def send(waiting: int) -> bool:
        protocol, transport = connect(asyncio.get_running_loop())
        protocol.data_received(REQUEST)
        protocol.data_received(b"x" * waiting)
        protocol.connection_lost(None)
        for task in protocol.tasks:
            task.cancel()
        return transport.is_aborted

    assert asyncio.run(send(waiting=GuardedProtocol.most_waiting)) is False
    assert asyncio.run(send(waiting=GuardedProtocol.most_waiting + 1)) is True


def test_reading_is_paused_for_a_client_above_its_fair_share(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoopTime, "pause", lambda *_: 0.25)
    protocol, transport = connect(clock)
    assert not transport.is_read, "a new connection, too"
    protocol.flow.read_paused = True
    protocol.flow.resume_reading()
    assert not transport.is_read, "uvicorn's flow control does not resume it"
    clock.fire(0.25)
    assert transport.is_read
    protocol.flow.pause_reading()
    assert not transport.is_read
    protocol.pause_above_fair_share()
    clock.fire(0.25)
    assert not transport.is_read, "the application has not read the body yet"


def test_a_connection_beyond_the_limit_is_refused_after_a_delay(clock: Clock) -> None:
    protocol, _ = connect(clock)
    transport = Transport()
    protocol.open_connections.most_per_client = 1
    protocol.connection_made(cast("asyncio.Transport", transport))
    assert (transport.is_read, transport.unsent, transport.is_closed) == (False, 0, False)
    protocol.data_received(REQUEST)
    assert protocol.cycle is None, "nothing of it is read"
    clock.fire(1.0)
    assert transport.unsent > 0
    assert transport.is_closed
