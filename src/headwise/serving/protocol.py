"""HTTP connections that cannot be held open by doing nothing.

uvicorn limits how long a connection may idle between two requests, but not how long a header may
take to come or an answer to be taken. `BodyGuard` does the same for bodies.
"""

import asyncio
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Type: application/json\r\nContent-Length: 51\r\n\r\n"
    b'{"error": "too many connections: try again later."}'
)


class GuardedProtocol(H11Protocol):
    """uvicorn's own, with limits on slow and on many connections."""

    read_seconds: ClassVar[float] = 10.0
    """From the first sign of a request to the end of its header; between two looks at whether an
    answer is being taken, too."""
    least_taken: ClassVar[int] = 64 * 1024
    """Bytes of an answer that must be taken from one look to the next."""
    drain_seconds: ClassVar[float] = 2.0
    """How long the rest of a body is still read, and forgotten, once its request is refused: a
    connection that is closed under a client who is sending may cost it the answer."""
    most_connections: ClassVar[int] = 1000

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            transport.write(_BUSY)
            transport.close()
        else:
            self._await_request(self.read_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._reading, self._writing):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before and self._writing is not None:
            # Whoever asks for more has taken what came before, or is looked at anew.
            self._writing.cancel()
            self._writing = None
            self._watch_writing()
        if self.cycle is not None and not self.cycle.response_complete:
            self._request_is_there()
        elif self.conn.their_state is h11.IDLE:
            self._await_request(self.read_seconds)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, as everything else is answered, and hang up."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # The request was refused before its body had come, and the rest of it is not HTTP.
            self.transport.close()
            return
        content = b'{"error":"this is not a request that HTTP knows"}'
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
        self._request_is_there()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._await_request(self.drain_seconds)
        self._watch_writing()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def _await_request(self, seconds: float) -> None:
        """End the connection unless the request that is coming is there in time."""
        if self._reading is None:
            self._reading = self.loop.call_later(seconds, self.transport.abort)

    def _request_is_there(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _watch_writing(self) -> None:
        """Look again and again whether what was written is being taken, until all of it is."""
        if self._writing is None and (size := self.transport.get_write_buffer_size()):
            self._writing = self.loop.call_later(self.read_seconds, self._look, size)

    def _look(self, before: int) -> None:
        self._writing = None
        if self.transport.get_write_buffer_size() > max(0, before - self.least_taken):
            self.transport.abort()
        else:
            self._watch_writing()
