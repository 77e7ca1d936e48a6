"""The routes that belong to no task: the web page and its files, sign-in, health and metrics."""

import base64
import hashlib
from html import escape
from importlib import resources

from fastapi import APIRouter, FastAPI, Request
from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import Scope

from headwise.inspect.explorer_files import explorer_script, explorer_style
from headwise.serving.errors import ERRORS, problem
from headwise.serving.forms import form_fields
from headwise.serving.keys import Sessions
from headwise.serving.service import Service

SIGN_IN = "/session"
PAGES = ("/", "/docs", "/tasks")
"""Pages that other sites may link to."""

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FILES = {
    file.name: file.read_bytes()
    for file in (resources.files("headwise.serving") / "static").iterdir()
    if file.name.endswith(tuple(_TYPES))
}
_FILES["explorer.js"] = explorer_script().encode()
_FILES["explorer.css"] = explorer_style().encode()
_KEY_STYLE = _FILES.pop("key.css").decode()
_KEY_PAGE = _FILES.pop("key.html").decode().replace("STYLE", _KEY_STYLE)


class Status(BaseModel):
    """The state of the server."""

    status: str
    broken: dict[str, str] | None = Field(
        None, description="The models that cannot answer now, with the reasons."
    )


def routes(app: FastAPI, sessions: Sessions | None, *, translates: bool) -> APIRouter:
    """Make the routes of the pages; without translation models, the first is that of tasks."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def page() -> Response:
        return _file("index.html" if translates else "tasks.html")

    @router.get("/tasks")
    async def tasks() -> Response:
        return _file("tasks.html")

    @router.get("/docs")
    async def docs() -> Response:
        return _file("docs.html")

    @router.get("/openapi.json")
    async def openapi() -> dict[str, object]:
        return app.openapi()

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        return _file(name)

    @router.post(SIGN_IN)
    async def sign_in(request: Request) -> Response:
        fields = form_fields(request.headers.get("content-type", ""), await request.body())
        key = fields.get("api_key", [""])[0]
        if sessions is None:
            return problem(404, "this server needs no key")
        answer = RedirectResponse("/", 303)
        if not sessions.sign_in(request.scope, key, answer):
            return key_page(wrong=bool(key))
        return answer

    return router


def status_routes(service: Service) -> APIRouter:
    """Make the routes for operators: health and metrics."""
    router = APIRouter(tags=["Status"])

    @router.get(
        "/healthz", summary="Whether the server works", response_model=Status, responses=ERRORS
    )
    async def health() -> Response:
        if service.is_healthy:
            return JSONResponse({"status": "alive"})
        return problem(503, f"the server hangs or has crashed: {_reasons(service)}")

    @router.get(
        "/readyz", summary="Whether requests are accepted", response_model=Status, responses=ERRORS
    )
    async def ready() -> Response:
        if not service.is_ready or not service.is_healthy:
            return problem(503, f"not ready: {_reasons(service)}")
        broken = service.broken()
        return JSONResponse({"status": "ready"} | ({"broken": broken} if broken else {}))

    @router.get(
        "/metrics",
        summary="Metrics for Prometheus",
        response_class=PlainTextResponse,
        responses=ERRORS,
    )
    async def metrics() -> Response:
        return PlainTextResponse(service.metrics.render(), media_type=_PROMETHEUS)

    return router


def _reasons(service: Service) -> str:
    """Return what is wrong, for operators."""
    if not service.is_accepting:
        return "starting or stopping"
    broken = [f"{name} {reason}" for name, reason in service.broken().items()]
    return ", ".join(broken) or "the compute thread"


def refuse(scope: Scope, wrong: bool) -> Response:
    """Answer a request without a valid key: with the sign-in page for browsers, else with JSON."""
    if scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", ""):
        return key_page(wrong=wrong)
    if wrong:
        return problem(403, "unknown API key")
    return problem(
        401,
        "an API key is needed: send it as 'Authorization: Bearer KEY'",
        {"WWW-Authenticate": "Bearer"},
    )


def key_page(*, wrong: bool) -> Response:
    """Return the sign-in page."""
    message = "This key is not known here." if wrong else ""
    digest = base64.b64encode(hashlib.sha256(_KEY_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'"
    return Response(
        _KEY_PAGE.replace("MESSAGE", escape(message)),
        403 if wrong else 401,
        {
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            # With no-referrer, browsers send the form with "Origin: null", like other sites.
            "Referrer-Policy": "same-origin",
        },
        "text/html; charset=utf-8",
    )


def _file(name: str) -> Response:
    if name not in _FILES:
        return problem(404, "there is no such file")
    kind = _TYPES[name[name.rindex(".") :]]
    return Response(_FILES[name], headers={"Cache-Control": "no-cache"}, media_type=kind)
