"""Answer with server-sent events: what a request is for, as it is made."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwise.errors import RequestError
from headwise.serving.errors import INTERNAL
from headwise.serving.limits import RefusedError
from headwise.serving.service import Service

MEDIA_TYPE = "text/event-stream"
DONE = b"data: [DONE]\n\n"
"""The last event of a stream that is complete, as in OpenAI's API."""

_CLOSED_BY_CLIENT = 499


def event(content: Any) -> bytes:
    """Return an event whose data is JSON."""
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"


class EventStream(Response):
    """A response of events, within the service's limits for a request.

    An error before the first event is an ordinary error response; a later one is the last event.
    """

    def __init__(
        self,
        service: Service,
        request: Request,
        events: AsyncGenerator[bytes, None],
        problem: Callable[[RequestError], Any],
    ) -> None:
        """Send `events`; describe an error that ends them by `problem`, as JSON."""
        super().__init__()
        self._service, self._request = service, request
        self._events, self._problem = events, problem
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end, or the deadline, or the client disconnects."""
        try:
            await self._service.for_client(self._request, self._send_all(send))
        except RequestError as error:
            if not self._has_begun:
                raise
            if isinstance(error, RefusedError) and error.status == _CLOSED_BY_CLIENT:
                return
            await self._send(send, event(self._problem(error)), more=False)
        except Exception:  # A bug, which the server logs.
            if self._has_begun:
                bug = RefusedError(500, INTERNAL)
                await self._send(send, event(self._problem(bug)), more=False)
            raise

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            async for each in events:
                await self._send(send, each)
        await self._send(send, DONE, more=False)

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        if not self._has_begun:
            self._has_begun = True
            headers = {
                "Content-Type": MEDIA_TYPE,
                "Cache-Control": "no-store",
                # nginx would collect the events.
                "X-Accel-Buffering": "no",
            }
            raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": 200, "headers": raw})
        await send({"type": "http.response.body", "body": body, "more_body": more})
