"""Speak HTTP and TLS over connections that a slow or idle client cannot hold open.

uvicorn limits how long a connection may idle between two requests, but not how long a header may
take to arrive or a response to be received. `BodyGuard` limits how long a body may take.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from headwise.errors import ConfigError
from headwise.serving.client_limits import (
    CONNECTION_SECONDS,
    LoopTime,
    OpenConnections,
    UnsentResponses,
)
from headwise.serving.clients import client_group


class _HeldFlow(FlowControl):
    """uvicorn's flow control, which does not resume reading while a connection is held."""

    is_held = False

    def resume_reading(self) -> None:
        if self.is_held:
            self.read_paused = False
        else:
            super().resume_reading()


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol, with limits on slow and on many connections."""

    read_seconds: ClassVar[float] = 10.0
    """From the first byte of a request to the end of its header; also the interval of checks that
    a response makes progress."""
    least_sent: ClassVar[int] = 64 * 1024
    """Bytes of a response that a client must receive between two checks."""
    answer_seconds: ClassVar[float] = 60.0
    """Seconds within which a client must receive a whole response."""
    most_waiting: ClassVar[int] = 64 * 1024
    """Most bytes of pipelined requests behind the current one; most unsent bytes of a response when
    the next request arrives."""
    drain_seconds: ClassVar[float] = 2.0
    """How long the rest of a body is read and discarded once its request is refused: if the
    connection is closed while a client is sending, it may not see the response."""
    flow: _HeldFlow
    open_connections: ClassVar[OpenConnections]
    loop_time: ClassVar[LoopTime]
    unsent_responses: ClassVar[UnsentResponses]

    wire: asyncio.Transport | None = None
    """The transport below TLS. Its buffered bytes are not counted by the TLS transport."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._answering: asyncio.TimerHandle | None = None
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _HeldFlow(transport)
        self.loop_time.charge(self._address, CONNECTION_SECONDS)
        refusal = self.open_connections.add(self._address)
        self._is_refused = refusal is not None
        if refusal is None:
            self._await_request(self.read_seconds)
            self.pause_above_fair_share()
        elif refusal.seconds:
            self._hold()
            self.loop.call_later(refusal.seconds, self._refuse, refusal.response)
        else:
            self._refuse(refusal.response)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._reading, self._writing, self._answering):
            if timer is not None:
                timer.cancel()
        self.unsent_responses.record(self, 0)
        self.open_connections.remove(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._is_refused:
            return
        if self.cycle is not None and self.cycle.response_complete and self._is_not_receiving():
            self.transport.close()  # After the unsent bytes are sent.
            return
        before, began = self.cycle, time.perf_counter()
        super().data_received(data)
        self.loop_time.charge(self._address, time.perf_counter() - began)
        self.pause_above_fair_share()
        num_waiting = len(self.conn.trailing_data[0])
        if num_waiting > self.most_waiting and not self.transport.is_closing():
            self.abort()
            return
        if self.cycle is not before and self._writing is not None:
            # A new response: restart the checks of its progress.
            self._writing.cancel()
            self._writing = None
            self._watch_writing()
        if self.cycle is not None and not self.cycle.response_complete:
            self._request_arrived()
        elif self.conn.their_state is h11.IDLE:
            self._await_request(self.read_seconds)

    def _refuse(self, response: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(response)
            self.transport.close()

    def pause_above_fair_share(self) -> None:
        """Stop reading for a while if the client is above its fair share of event loop time."""
        if not self.flow.is_held and (seconds := self.loop_time.pause(self._address)):
            self._hold()
            self.loop.call_later(seconds, self._resume)

    def _hold(self) -> None:
        self.flow.is_held = True
        # On some Pythons, a new connection starts reading after this iteration of the loop even if
        # it is paused in this one.
        self.loop.call_soon(self._pause_reading)

    def _pause_reading(self) -> None:
        if self.flow.is_held and not self.transport.is_closing():
            self.transport.pause_reading()

    def _resume(self) -> None:
        self.flow.is_held = False
        if not self.transport.is_closing() and not self.flow.read_paused:
            self.transport.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP with an error in our format, and close the connection."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # The request was refused before its body had arrived, and the rest is not HTTP.
            self.transport.close()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            # The request with the malformed bytes is being handled: cancel it.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        content = b'{"error":"malformed HTTP request"}'
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            "Connection": "close",
        }
        for event in (
            h11.Response(status_code=400, headers=list(headers.items()), reason=b"Bad Request"),
            h11.Data(data=content),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def on_response_complete(self) -> None:
        self._request_arrived()
        # The next request is in the buffer already: pausing would not delay it.
        if (
            self.conn.trailing_data[0]
            and (self.loop_time.pause(self._address) > 0 or self._is_not_receiving())
            and not self.transport.is_closing()
        ):
            self.transport.close()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._await_request(self.drain_seconds)
        self._watch_writing()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def _await_request(self, seconds: float) -> None:
        """Close the connection unless a whole request header arrives in time."""
        if self._reading is None:
            self._reading = self.loop.call_later(seconds, self.abort)

    def _request_arrived(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    @property
    def group(self) -> str:
        """The client that this connection belongs to."""
        return client_group(self._address)

    def unsent(self) -> int:
        """Return how many bytes of responses wait in memory to be sent."""
        if self.wire is None:
            return self.transport.get_write_buffer_size()
        size = self.wire.get_write_buffer_size()
        if not self.transport.is_closing():  # A closed transport has no size.
            size += self.transport.get_write_buffer_size()
        return size

    def abort(self) -> None:
        """Close the connection at once and discard unsent bytes."""
        (self.wire or self.transport).abort()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _is_not_receiving(self) -> bool:
        """Return whether the client sends requests without receiving the responses."""
        return self.unsent() > self.most_waiting

    def _watch_writing(self) -> None:
        """Check periodically that the response makes progress, until all of it is sent."""
        size = self.unsent()
        self.unsent_responses.record(self, size)
        if not size:
            self._response_sent()
            return
        if self._writing is None:
            self._writing = self.loop.call_later(self.read_seconds, self._check_progress, size)
        if self._answering is None:
            self._answering = self.loop.call_later(self.answer_seconds, self._response_timeout)

    def _check_progress(self, before: int) -> None:
        self._writing = None
        if self.unsent() > max(0, before - self.least_sent):
            self.abort()
        else:
            self._watch_writing()

    def _response_timeout(self) -> None:
        self._answering = None
        if self.unsent():
            self.abort()
        else:
            self._response_sent()

    def _response_sent(self) -> None:
        for timer in (self._writing, self._answering):
            if timer is not None:
                timer.cancel()
        self._writing = self._answering = None


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and later, with a certificate chain and its key in PEM files."""
    for path in (certificate, key):
        try:
            path.open("rb").close()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error

    def refuse_encrypted() -> NoReturn:
        raise ConfigError(
            f"{key}: the key is encrypted: decrypt it with `openssl pkey -in {key} -out FILE`"
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a callback, OpenSSL would ask for a password on the terminal.
        context.load_cert_chain(certificate, key, refuse_encrypted)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            message = f"{key}: this is not the key of the certificate {certificate}"
        else:
            message = (
                f"{certificate}, {key}: not a certificate and its key in PEM: "
                f"{error.reason or error.strerror}"
            )
        raise ConfigError(message) from error
    return context


_HANDSHAKE_SECONDS = 0.002
"""About what a handshake costs the event loop."""


class TlsProtocol(asyncio.Protocol):
    """Complete the TLS handshake of a connection, then switch to HTTP.

    uvicorn supports TLS, too, but allows a handshake 60 seconds and counts a connection only after
    it: a client could open any number of them.
    """

    context: ClassVar[ssl.SSLContext]
    http: ClassVar[type[GuardedProtocol]]

    transport: asyncio.Transport

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Keep uvicorn's arguments for the HTTP protocol."""
        self._make_http: Callable[[], GuardedProtocol] = lambda: self.http(*arguments, **options)
        self._connections = options["server_state"].connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the handshake, unless there are too many connections already."""
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        # Before the handshake there is no HTTP response: the connection is just closed.
        if self.http.open_connections.add(self._address) is not None:
            self.http.open_connections.remove(self._address)
            transport.abort()
            return
        self._connections.add(self)
        self._task = asyncio.get_running_loop().create_task(self._start_http())

    def shutdown(self) -> None:
        """Close the connection; uvicorn calls this when it stops."""
        self.transport.abort()

    async def _start_http(self) -> None:
        early = _EarlyData()
        self.http.loop_time.charge(self._address, _HANDSHAKE_SECONDS)
        try:
            transport = await asyncio.get_running_loop().start_tls(
                self.transport,
                early,
                self.context,
                server_side=True,
                ssl_handshake_timeout=self.http.read_seconds,
                # Includes the time to send the rest of a response.
                ssl_shutdown_timeout=self.http.answer_seconds,
            )
        except OSError:  # Not TLS, no common version or cipher, timeout, or disconnected.
            self.transport.abort()
            return
        finally:
            self._connections.discard(self)
            self.http.open_connections.remove(self._address)
        if transport is None:  # The client has disconnected.
            return
        protocol = self._make_http()
        protocol.wire = self.transport
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if early.data:
            protocol.data_received(bytes(early.data))


class _EarlyData(asyncio.Protocol):
    """Keep the bytes that arrive with the last message of the handshake."""

    def __init__(self) -> None:
        self.data = bytearray()

    def data_received(self, data: bytes) -> None:
        self.data += data
