"""Read request bodies within limits, and parse them as JSON.

Clients that have not sent a key yet can send them. So parsing takes time and memory linear in a
body's size.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwise.serving.errors import problem, refused
from headwise.serving.forms import FORMS, media_type, text_of
from headwise.serving.limits import Limits, RefusedError

_LEAST_BYTES_PER_SECOND = 100_000
"""How fast the body of a request must come, after its first seconds."""


class _Budget:
    """Bytes of bodies that are in memory at a time: of all clients, and perhaps of each."""

    def __init__(self, most: int, *, of_client: int | None = None) -> None:
        self._most, self._of_client = most, of_client
        self.held = 0
        self._by_client: Counter[str] = Counter()

    def add(self, size: int, client: str) -> None:
        """Count bytes of a client; RefusedError if they are too many, counted all the same."""
        self.held += size
        self._by_client[client] += size
        if self._of_client is not None and self._by_client[client] > self._of_client:
            megabytes = f"{self._of_client / 1e6:g} MB"
            raise RefusedError(
                429,
                f"more than {megabytes} of uploads at once from this client: send one after the "
                "other",
                retry_after=1,
            )
        if self.held > self._most:
            raise RefusedError(503, "too many request bodies at once: try again", retry_after=1)

    def release(self, size: int, client: str) -> None:
        """Count bytes no more."""
        self.held -= size
        self._by_client[client] -= size
        if not self._by_client[client]:
            del self._by_client[client]


class _Held(NamedTuple):
    """The part of a budget that one body takes."""

    budget: _Budget
    client: str
    most: int
    """Bytes of the body."""

    def add(self, size: int) -> None:
        self.budget.add(size, self.client)

    def release(self, size: int) -> None:
        self.budget.release(size, self.client)


class BodyGuard:
    """Read every body, within limits of size and time, before its request is handled.

    The application finds the body in `scope["state"]["body"]`, or receives it as usual.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        *,
        has_keys: bool = False,
        uploads: Collection[str] = (),
    ) -> None:
        """With keys in use, limit the bodies of clients that have not sent one more strictly.

        `uploads` are the paths that take files.
        """
        self._app, self._limits, self._has_keys = app, limits, has_keys
        self._uploads = frozenset(uploads)
        self.bodies = _Budget(limits.all_bodies_bytes)
        """Of all bodies whose requests are not answered yet, but for those with files."""
        self.uploads = _Budget(limits.all_uploads_bytes, of_client=limits.upload_bytes)
        """Of bodies with files."""
        self.keyless_bytes = 0
        """Bytes of all bodies that are being read to find a key in them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # A proxy might use the other header (request smuggling): close the connection.
            message = "a request may not have both Content-Length and Transfer-Encoding"
            response = problem(400, message, {"Connection": "close"})
            await response(scope, receive, send)
            return
        body = bytearray()
        has_key = not self._has_keys or "key" in scope["state"]["facts"]
        held = self._held(scope)
        try:
            if not await self._read(scope, receive, body, has_key, held):
                held.release(len(body))
                return
        except RefusedError as refusal:
            held.release(len(body))
            await refused(refusal)(scope, receive, send)
            return
        size, scope["state"]["body"] = len(body), bytes(body)
        body.clear()
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
            held.release(size)

    def _held(self, scope: Scope) -> "_Held":
        """Return the budget of a request's body: bodies with files have one of their own."""
        types = [value for name, value in scope["headers"] if name == b"content-type"]
        is_form = [media_type(each.decode("latin-1")) for each in types] == [FORMS[1]]
        client: str = scope["state"].get("client", "")
        if is_form and scope.get("path") in self._uploads:
            return _Held(self.uploads, client, self._limits.upload_bytes)
        return _Held(self.bodies, client, self._limits.body_bytes)

    async def _read(
        self, scope: Scope, receive: Receive, body: bytearray, has_key: bool, held: "_Held"
    ) -> bool:
        """Read a body; return False if the client disconnects before its end."""
        limits = self._limits
        too_large = RefusedError(413, f"a body may have {held.most:,} bytes at most")
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > held.most:
                raise too_large
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(limits.read_seconds) as timeout:
                more = True
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        return False
                    piece = message.get("body", b"")
                    body += piece
                    held.add(len(piece))
                    if not has_key:
                        self.keyless_bytes += len(piece)
                    if len(body) > held.most:
                        raise too_large
                    if not has_key and self.keyless_bytes > limits.keyless_bodies_bytes:
                        raise RefusedError(
                            503,
                            "too many request bodies without a key at once: try again, or send the "
                            "key as 'Authorization: Bearer KEY'",
                            retry_after=1,
                        )
                    # What is large may take longer, as long as it keeps coming.
                    seconds = limits.read_seconds + len(body) / _LEAST_BYTES_PER_SECOND
                    timeout.reschedule(began + seconds)
                    more = message.get("more_body", False)
        except TimeoutError as error:
            raise RefusedError(
                408,
                f"the body did not arrive within {limits.read_seconds:g} seconds, and another for "
                f"each {_LEAST_BYTES_PER_SECOND:,} bytes",
            ) from error
        finally:
            if not has_key:
                # Next, a guard finds the key in the body, or refuses the request.
                self.keyless_bytes -= len(body)
        return True


R = TypeVar("R", bound=BaseModel)

_NEXT_VALUE = re.compile(rb'(?:[^"\[{,]++|"(?:[^"\\]++|\\.)*+"?)*+[\[{,]', re.DOTALL)
"""Everything up to and including the next character that a value may follow, strings skipped.

All quantifiers are possessive: the time is linear, and no positions to return to are kept.
"""
_LONGEST_NAME = 60
_OTHER_VALUES = 100
"""Most values of a body besides its texts: more than any request has fields."""


def is_json(content_type: str) -> bool:
    """Return whether a Content-Type is JSON."""
    kind = media_type(content_type)
    return kind == "application/json" or kind.endswith("+json")


async def json_request(request: Request, kind: type[R], limits: Limits) -> R:
    """Parse a body that must be JSON and declared as JSON.

    Browsers let pages of other sites send text/plain, forms and bodies without a type to this
    server without a preflight request, but not JSON.
    """
    return checked(kind, await json_fields(request, limits))


async def json_fields(request: Request, limits: Limits) -> dict[str, Any]:
    """Return the fields of a body that must be JSON and declared as JSON."""
    if not is_json(request.headers.get("content-type", "")):
        raise RefusedError(415, "send JSON, with the header 'Content-Type: application/json'")
    return read_json(await request.body(), limits)


def read_json(body: bytes, limits: Limits) -> dict[str, Any]:
    """Return the fields of a JSON object, of which a request can need only so many values.

    `json.loads` turns 1 MB of `{},{},` into 20 MB, and pydantic makes an error for every wrong
    entry of a list. So the values are counted before any of them is made.
    """
    if _has_more_values(body, limits.texts + _OTHER_VALUES):
        raise RefusedError(
            413, f"the body has too many values: send at most {limits.texts:,} texts in one request"
        )
    # Decoded here, as json.loads also accepts UTF-16 and UTF-32.
    text = text_of(body)
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise RefusedError(
            400, f"the body is not JSON: see line {error.lineno}, column {error.colno}"
        ) from error
    except RecursionError as error:
        raise RefusedError(400, "the body has too many nested lists or objects") from error
    except ValueError as error:
        raise RefusedError(400, "the body has a number with too many digits") from error
    if not isinstance(fields, dict):
        raise RefusedError(400, "the body must be a JSON object: {...}")
    return fields


def checked(kind: type[R], fields: Mapping[str, Any]) -> R:
    """Return fields as a request, or raise RefusedError naming the first wrong one."""
    known = {name: fields[name] for name in kind.model_fields if name in fields}
    if kind.model_config.get("extra") == "forbid" and len(known) < len(fields):
        unknown = next(name for name in fields if name not in known)
        name = unknown[:_LONGEST_NAME]
        raise RefusedError(400, f"{name}: there is no such field", field=name)
    try:
        return kind.model_validate(known)
    except ValidationError as error:
        raise _first_error(error) from error


def _first_error(error: ValidationError) -> RefusedError:
    """Describe the first wrong field; quote only its name."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"]))
    message = first["msg"]
    sentence = f"{field}: {message[:1].lower()}{message[1:]}"
    return RefusedError(400, sentence, field=str(first["loc"][0]) if first["loc"] else None)


def _has_more_values(body: bytes, most: int) -> bool:
    end = 0
    for _ in range(most):
        found = _NEXT_VALUE.match(body, end)
        if found is None:
            return False
        end = found.end()
    return True
