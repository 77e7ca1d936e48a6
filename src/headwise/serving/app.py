"""The whole application: routes, and around them the guards."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from headwise import __version__
from headwise.serving import api, errors, libretranslate, pages
from headwise.serving.bodies import BodyGuard
from headwise.serving.clients import TrustedProxies
from headwise.serving.hosts import AllowedHosts
from headwise.serving.keys import BodyKeyGuard, KeyGuard, Keys
from headwise.serving.messages import AttentionRequest, LibreRequest, TranslateRequest
from headwise.serving.observer import Observer
from headwise.serving.origins import OriginGuard
from headwise.serving.service import Service
from headwise.serving.sessions import Sessions
from headwise.serving.turnstile import Turnstile

_KEY_IN_BODY = ("/translate", "/languages")


def make_app(
    service: Service,
    keys: Keys | None = None,
    origins: Sequence[str] = (),
    *,
    hosts: AllowedHosts | None = None,
    proxies: TrustedProxies | None = None,
) -> ASGIApp:
    """Make the application; with `origins`, pages from there may use it too."""
    proxies = proxies or TrustedProxies()
    sessions = None if keys is None else Sessions(keys, proxies)
    guarded = _without_cookies_and_query(make_routes(service, sessions))
    if keys is None or sessions is None:
        guarded = BodyGuard(Turnstile(guarded), service.limits)
    else:

        def key_in(content_type: str, body: bytes) -> object:
            return libretranslate.fields_of(content_type, body, service.limits).get("api_key")

        guarded = BodyKeyGuard(
            guarded, keys, paths=_KEY_IN_BODY, key_in=key_in, refuse=pages.refuse
        )
        guarded = BodyGuard(Turnstile(guarded), service.limits, has_keys=True)
        # Whoever has no key is refused before anything is read; where it is to be read, after.
        guarded = KeyGuard(
            guarded,
            keys,
            session_holder=sessions.holder,
            left_open=(*_KEY_IN_BODY, pages.SIGN_IN),
            refuse=pages.refuse,
        )
    if origins:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    guarded = OriginGuard(
        guarded,
        hosts=hosts or AllowedHosts(),
        origins=origins,
        proxies=proxies,
        pages=pages.PAGES,
    )
    return Observer(guarded, service, proxies)


def make_routes(service: Service, sessions: Sessions | None) -> FastAPI:
    """Make the routes alone; with `sessions`, they are those of a server that asks for keys."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        service.close()

    app = FastAPI(
        title="Headwise",
        version=__version__,
        description="Translation by trained Transformers.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,  # Where to would be up to the request's Host.
        lifespan=lifespan,
    )
    errors.install(app)
    app.include_router(api.routes(service))
    app.include_router(libretranslate.routes(service))
    app.include_router(api.status_routes(service))
    app.include_router(pages.routes(app, sessions))
    _describe(app, has_keys=sessions is not None)
    return app


def _describe(app: FastAPI, *, has_keys: bool) -> None:
    """Complete the OpenAPI description with what FastAPI cannot know."""
    schema = app.openapi()
    components = schema["components"]
    for kind in (TranslateRequest, AttentionRequest, LibreRequest):
        components["schemas"][kind.__name__] = kind.model_json_schema()
    if has_keys:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                if path not in ("/healthz", "/readyz"):
                    operation["security"] = [{"key": []}]


def _without_cookies_and_query(app: ASGIApp) -> ASGIApp:
    """Hide from the routes what only the guards read.

    FastAPI parses both for every route, and the parser of cookies takes seconds for a header full
    of backslashes on some Pythons.
    """

    async def bare(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = [header for header in scope["headers"] if header[0] != b"cookie"]
            # The route is entered into the scope that the Observer has.
            scope.update(headers=headers, query_string=b"")
        await app(scope, receive, send)

    return bare
