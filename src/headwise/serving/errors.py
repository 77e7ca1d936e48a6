"""Answer errors as JSON: {"error": "a sentence"}, the format of LibreTranslate."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from headwise.errors import RequestError
from headwise.serving.limits import RefusedError


class Problem(BaseModel):
    """What is wrong, as a sentence."""

    error: str


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Problem, "description": "The request is wrong, or sent too often."},
    "5XX": {"model": Problem, "description": "The server is stopping, or took too long."},
}
"""The error responses of every route, for OpenAPI."""

INTERNAL = "internal error: the server has logged it"
"""What clients are told of a bug."""


def problem(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error as a response."""
    # Quoted parts of a request may hold surrogates, which UTF-8 cannot encode.
    printable = sentence.encode("utf-8", "replace").decode()
    return JSONResponse({"error": printable}, status, headers)


def refused(refusal: RefusedError) -> JSONResponse:
    """Return a refusal as a response."""
    headers = {}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(refusal.retry_after)
    return problem(refusal.status, str(refusal), headers)


def install(app: FastAPI) -> None:
    """Make an app answer every error in this format."""

    @app.exception_handler(RequestError)
    async def on_request_error(request: Request, error: RequestError) -> JSONResponse:
        if not isinstance(error, RefusedError):
            return problem(400, str(error))
        # For the routes whose errors name it in a field of their own.
        request.scope["state"]["wrong_field"] = error.field
        return refused(error)

    @app.exception_handler(HTTPException)
    async def on_http(_: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers) if error.headers else None
        return problem(error.status_code, _HTTP.get(error.status_code, str(error.detail)), headers)

    @app.exception_handler(Exception)
    async def on_bug(_: Request, __: Exception) -> JSONResponse:
        return problem(500, INTERNAL)


_HTTP = {
    400: "the body cannot be read",
    404: "no such route: /docs lists all routes",
    405: "this route does not support this method",
}
