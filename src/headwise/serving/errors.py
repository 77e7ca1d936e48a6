"""Errors as answers: {"error": "a sentence"}, as LibreTranslate's clients expect them."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
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


def sentence_of(errors: Sequence[Any]) -> str:
    """Say what is wrong with the first of the fields that are; quote nothing but its name."""
    error = errors[0]
    if error["type"] in ("json_invalid", "model_attributes_type"):
        return "the body is not a JSON object, or not said to be one by its Content-Type"
    # Of a field that may be one of two things, pydantic names which of them it means.
    place = ".".join(str(part) for part in error["loc"] if part not in ("body", "str", "list[str]"))
    message = str(error["msg"])
    message = message[:1].lower() + message[1:]
    return f"{place[:_LONGEST_NAME]}: {message}" if place else f"the body: {message}"


def install(app: FastAPI) -> None:
    """Let an app answer every error in this way."""

    @app.exception_handler(RequestError)
    async def on_request_error(_: Request, error: RequestError) -> JSONResponse:
        return refused(error) if isinstance(error, RefusedError) else problem(400, str(error))

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem(400, sentence_of(error.errors()))

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
