"""A guard on what is read: bodies that are too large or too slow are refused while they come."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwise.serving.errors import problem, refused
from headwise.serving.limits import Limits, RefusedError


class BodyGuard:
    """Read every body, within its limits, before anything is done about its request.

    Whoever comes after it finds the body in `scope["state"]["body"]`, or receives it as usual.
    """

    def __init__(self, app: ASGIApp, limits: Limits, *, has_keys: bool = False) -> None:
        """With keys in use, let clients that have not shown one hold only a little in all."""
        self._app, self._limits, self._has_keys = app, limits, has_keys
        self._held = 0  # Bytes of all bodies whose requests are not answered yet.
        self._held_without_key = 0  # Bytes of those that are being read to find a key in them.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # A proxy might have believed the other one: nothing more of this connection is read.
            answer = problem(400, "the length of the body is said twice", {"Connection": "close"})
            await answer(scope, receive, send)
            return
        body = bytearray()
        has_shown_key = not self._has_keys or "key" in scope["state"]["facts"]
        try:
            if not await self._read(scope, receive, body, has_shown_key):
                return
        except RefusedError as refusal:
            self._held -= len(body)
            await refused(refusal)(scope, receive, send)
            return
        scope["state"]["body"] = bytes(body)
        given = False

        async def receive_again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": scope["state"]["body"], "more_body": False}

        try:
            await self._app(scope, receive_again, send)
        finally:
            self._held -= len(body)

    async def _read(
        self, scope: Scope, receive: Receive, body: bytearray, has_shown_key: bool
    ) -> bool:
        """Read a body; return whether it has come whole, and not lost its client half-way."""
        limits = self._limits
        too_large = RefusedError(413, f"a body may have {limits.body_bytes:,} bytes at most")
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > limits.body_bytes:
                raise too_large
        try:
            async with asyncio.timeout(limits.read_seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        self._held -= len(body)
                        return False
                    piece = message.get("body", b"")
                    body += piece
                    self._held += len(piece)
                    if not has_shown_key:
                        self._held_without_key += len(piece)
                    if len(body) > limits.body_bytes:
                        raise too_large
                    if self._held > limits.all_bodies_bytes:
                        raise RefusedError(503, "too much is sent at once: wait", retry_after=1)
                    if not has_shown_key and self._held_without_key > limits.keyless_bodies_bytes:
                        raise RefusedError(
                            503,
                            "too much is sent at once without a key: wait, or send the key "
                            "as 'Authorization: Bearer KEY'",
                            retry_after=1,
                        )
                    more = message.get("more_body", False)
        except TimeoutError as error:
            raise RefusedError(
                408, f"the body did not come within {limits.read_seconds:g} seconds"
            ) from error
        finally:
            if not has_shown_key:
                # A key in the body is looked for at once; from here on it has one, or is refused.
                self._held_without_key -= len(body)
        return True
