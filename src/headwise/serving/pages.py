"""The pages for people: files of the package, by their names, and a place to give a key."""

import base64
import hashlib
from html import escape
from importlib import resources

from fastapi import APIRouter, FastAPI, Request
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from headwise.inspect.explorer_files import explorer_script, explorer_style
from headwise.serving.errors import problem
from headwise.serving.forms import form_fields
from headwise.serving.sessions import Sessions

SIGN_IN = "/session"
PAGES = ("/", "/docs")
"""What other sites may link to."""

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


def routes(app: FastAPI, sessions: Sessions | None) -> APIRouter:
    """Make the routes of the pages."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def page() -> Response:
        return _file("index.html")

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
            return problem(404, "this server asks for no key")
        answer = RedirectResponse("/", 303)
        if not sessions.sign_in(request.scope, key, answer):
            return key_page(wrong=bool(key))
        return answer

    return router


def refuse(scope: Scope, wrong: bool) -> Response:
    """Answer somebody without a key: a person with a page to give it, a program with a sentence."""
    if scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", ""):
        return key_page(wrong=wrong)
    if wrong:
        return problem(403, "this API key is not known here")
    return problem(
        401,
        "an API key is needed: send it as 'Authorization: Bearer KEY'",
        {"WWW-Authenticate": "Bearer"},
    )


def key_page(*, wrong: bool) -> Response:
    """Return the page that asks for a key."""
    message = "This key is not known here." if wrong else ""
    digest = base64.b64encode(hashlib.sha256(_KEY_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'"
    return Response(
        _KEY_PAGE.replace("MESSAGE", escape(message)),
        403 if wrong else 401,
        {
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            # With no-referrer, browsers send the form with "Origin: null", as other sites could.
            "Referrer-Policy": "same-origin",
        },
        "text/html; charset=utf-8",
    )


def _file(name: str) -> Response:
    if name not in _FILES:
        return problem(404, "there is no such file")
    kind = _TYPES[name[name.rindex(".") :]]
    return Response(_FILES[name], headers={"Cache-Control": "no-cache"}, media_type=kind)
