"""HTTP connections that cannot be held open by doing nothing.

uvicorn limits how long a connection may idle between two requests, but not how long a header may
take to come or an answer to be taken. `BodyGuard` does the same for bodies.
"""

import asyncio
import time
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from headwise.serving.clients import client_group
from headwise.serving.connections import OpenConnections
from headwise.serving.loop_time import CONNECTION_SECONDS, LoopTime
from headwise.serving.unsent import UnsentAnswers


class _HeldFlow(FlowControl):
    """uvicorn's flow control, which reads nothing while a connection is held."""

    is_held = False

    def resume_reading(self) -> None:
        if self.is_held:
            self.read_paused = False
        else:
            super().resume_reading()


class GuardedProtocol(H11Protocol):
    """uvicorn's own, with limits on slow and on many connections."""

    read_seconds: ClassVar[float] = 10.0
    """From the first sign of a request to the end of its header; between two looks at whether an
    answer is being taken, too."""
    least_taken: ClassVar[int] = 64 * 1024
    """Bytes of an answer that must be taken from one look to the next."""
    answer_seconds: ClassVar[float] = 60.0
    """From the first byte of an answer that is not taken at once to its last byte taken."""
    most_waiting: ClassVar[int] = 64 * 1024
    """Bytes of further requests that may wait on a connection for the one being answered; bytes of
    an answer that may be unsent when the next request comes."""
    drain_seconds: ClassVar[float] = 2.0
    """How long the rest of a body is still read, and forgotten, once its request is refused: a
    connection that is closed under a client who is sending may cost it the answer."""
    flow: _HeldFlow
    open_connections: ClassVar[OpenConnections]
    loop_time: ClassVar[LoopTime]
    unsent_answers: ClassVar[UnsentAnswers]

    wire: asyncio.Transport | None = None
    """The transport below TLS. Bytes wait there that the transport of TLS does not count."""

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
            self._pause_if_greedy()
        elif refusal.seconds:
            self._hold()
            self.loop.call_later(refusal.seconds, self._refuse, refusal.answer)
        else:
            self._refuse(refusal.answer)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._reading, self._writing, self._answering):
            if timer is not None:
                timer.cancel()
        self.unsent_answers.note(self, 0)
        self.open_connections.remove(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._is_refused:
            return
        if self.cycle is not None and self.cycle.response_complete and self._leaves_answers():
            self.transport.close()  # After the unsent bytes are sent.
            return
        before, began = self.cycle, time.perf_counter()
        super().data_received(data)
        self.loop_time.charge(self._address, time.perf_counter() - began)
        self._pause_if_greedy()
        num_waiting = len(self.conn.trailing_data[0])
        if num_waiting > self.most_waiting and not self.transport.is_closing():
            self.abort()
            return
        if self.cycle is not before and self._writing is not None:
            # Whoever asks for more has taken what came before, or is looked at anew.
            self._writing.cancel()
            self._writing = None
            self._watch_writing()
        if self.cycle is not None and not self.cycle.response_complete:
            self._request_is_there()
        elif self.conn.their_state is h11.IDLE:
            self._await_request(self.read_seconds)

    def _refuse(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()

    def _pause_if_greedy(self) -> None:
        """Read nothing for a while from a client that takes too much of the event loop's time."""
        if not self.flow.is_held and (seconds := self.loop_time.pause(self._address)):
            self._hold()
            self.loop.call_later(seconds, self._resume)

    def _hold(self) -> None:
        self.flow.is_held = True
        # A new connection is read from on after this turn of the loop, on some Pythons even if it
        # is paused in this one.
        self.loop.call_soon(self._pause_reading)

    def _pause_reading(self) -> None:
        if self.flow.is_held and not self.transport.is_closing():
            self.transport.pause_reading()

    def _resume(self) -> None:
        self.flow.is_held = False
        if not self.transport.is_closing() and not self.flow.read_paused:
            self.transport.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, as everything else is answered, and hang up."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # The request was refused before its body had come, and the rest of it is not HTTP.
            self.transport.close()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            # The request that the bad bytes belong to is being answered: that would come too late.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
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
        has_next = bool(self.conn.trailing_data[0])
        # The next request is here already: not to read more would not hold it up.
        is_greedy = has_next and self.loop_time.pause(self._address) > 0
        if (is_greedy or (has_next and self._leaves_answers())) and not self.transport.is_closing():
            self.transport.close()
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
            self._reading = self.loop.call_later(seconds, self.abort)

    def _request_is_there(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    @property
    def group(self) -> str:
        """Return the client that this connection belongs to."""
        return client_group(self._address)

    def unsent(self) -> int:
        """Return how many bytes wait in memory for the client to take them."""
        if self.wire is None:
            return self.transport.get_write_buffer_size()
        size = self.wire.get_write_buffer_size()
        if not self.transport.is_closing():  # Its size may not be asked for after close().
            size += self.transport.get_write_buffer_size()
        return size

    def abort(self) -> None:
        """Close the connection at once and drop what is unsent."""
        (self.wire or self.transport).abort()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _leaves_answers(self) -> bool:
        """Return whether the client asks for more without taking what it has asked for."""
        return self.unsent() > self.most_waiting

    def _watch_writing(self) -> None:
        """Look again and again whether what was written is being taken, until all of it is."""
        size = self.unsent()
        self.unsent_answers.note(self, size)
        if not size:
            self._answer_is_taken()
            return
        if self._writing is None:
            self._writing = self.loop.call_later(self.read_seconds, self._look, size)
        if self._answering is None:
            self._answering = self.loop.call_later(self.answer_seconds, self._end_answer)

    def _look(self, before: int) -> None:
        self._writing = None
        if self.unsent() > max(0, before - self.least_taken):
            self.abort()
        else:
            self._watch_writing()

    def _end_answer(self) -> None:
        self._answering = None
        if self.unsent():
            self.abort()
        else:
            self._answer_is_taken()

    def _answer_is_taken(self) -> None:
        for timer in (self._writing, self._answering):
            if timer is not None:
                timer.cancel()
        self._writing = self._answering = None
