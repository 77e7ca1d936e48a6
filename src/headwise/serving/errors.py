"""Errors as answers: {"error": "a sentence"}, as LibreTranslate's clients expect them."""

from typing import Any

from fastapi import FastAPI
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from headwise.errors import RequestError
from headwise.serving.limits import RefusedError
from headwise.serving.messages import Problem

ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Problem, "description": "The request is wrong, or comes too often."},
    "5XX": {"model": Problem, "description": "The server is stopping, or took too long."},
}
"""What every route may answer beside what it is for."""

_LONGEST_NAME = 60


def problem(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error as an answer."""
    # What is quoted of a request may hold what no UTF-8 can.
    printable = sentence.encode("utf-8", "replace").decode()
    return JSONResponse({"error": printable}, status, headers)


def refused(refusal: RefusedError) -> JSONResponse:
    """Return a refusal as an answer."""
    headers = {}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(refusal.retry_after)
    return problem(refusal.status, str(refusal), headers)


def sentence_of(error: ValidationError) -> str:
    """Say what is wrong with the first wrong field; quote nothing but its name."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    message = first["msg"]
    return f"{place}: {message[:1].lower()}{message[1:]}"


def unknown_field(name: str) -> str:
    """Say that a request has a field which its route does not know."""
    return f"{name[:_LONGEST_NAME]}: there is no such field"


def install(app: FastAPI) -> None:
    """Let an app answer every error in this way."""

    @app.exception_handler(RequestError)
    async def on_request_error(_: Request, error: RequestError) -> JSONResponse:
        return refused(error) if isinstance(error, RefusedError) else problem(400, str(error))

    @app.exception_handler(HTTPException)
    async def on_http(_: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers) if error.headers else None
        return problem(error.status_code, _HTTP.get(error.status_code, str(error.detail)), headers)

    @app.exception_handler(Exception)
    async def on_bug(_: Request, __: Exception) -> JSONResponse:
        return problem(500, "something went wrong in the server, and was logged")


_HTTP = {
    400: "the body cannot be read",
    404: "there is nothing here: /docs lists what there is",
    405: "this cannot be asked for with this method",
}
