"""Answer errors on the routes of OpenAI's API as that does: {"error": {"message", ...}}."""

import json
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_CODES = {
    401: "invalid_api_key",
    403: "invalid_api_key",
    429: "rate_limit_exceeded",
}


def is_openai(path: str) -> bool:
    """Return whether a path belongs to OpenAI's API alone; /v1/models is our own, too."""
    return path == "/v1/completions" or path.startswith("/v1/models/")


def error_object(status: int, message: str, field: str | None = None) -> dict[str, Any]:
    """Return an error's object, which names the field of the request that is wrong."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    code = "model_not_found" if (status, field) == (404, "model") else _CODES.get(status)
    return {
        "message": message,
        "type": _TYPES.get(status, kind),
        "param": field,
        "code": code,
    }


class OpenAIErrors:
    """Turn the errors of all guards and routes on these paths into OpenAI's objects."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_openai(scope["path"]):
            await self._app(scope, receive, send)
            return
        held: Message | None = None

        async def converted_send(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and _is_error(message):
                held = message  # Its length is that of the new body.
                return
            if held is not None:
                assert not message.get("more_body"), "an error has one body"
                field = scope.get("state", {}).get("wrong_field")
                body = _converted(held["status"], message["body"], field)
                MutableHeaders(raw=held["headers"])["Content-Length"] = str(len(body))
                await send(held)
                message, held = {**message, "body": body}, None
            await send(message)

        await self._app(scope, receive, converted_send)


def _is_error(message: Message) -> bool:
    kind = Headers(raw=message.get("headers", [])).get("content-type", "")
    return message["status"] >= 400 and kind == "application/json"


def _converted(status: int, body: bytes, field: str | None) -> bytes:
    sentence = json.loads(body)["error"]
    return json.dumps({"error": error_object(status, sentence, field)}).encode()
