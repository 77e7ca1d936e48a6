"""The whole application: routes, and around them the guards."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from headwise import __version__
from headwise.serving import api, errors, libretranslate, pages
from headwise.serving.bodies import BodyGuard
from headwise.serving.keys import BodyKeyGuard, KeyGuard, Keys
from headwise.serving.limits import RefusedError
from headwise.serving.messages import LibreRequest
from headwise.serving.observer import Observer
from headwise.serving.service import Service

_KEY_IN_BODY = ("/translate", "/languages")


def make_app(service: Service, keys: Keys | None = None, origins: Sequence[str] = ()) -> ASGIApp:
    """Make the application; with `origins`, pages from there may use it too."""
    guarded: ASGIApp = make_routes(service, keys)
    if keys is None:
        guarded = BodyGuard(guarded, service.limits)
    else:
        guarded = BodyKeyGuard(
            guarded, keys, paths=_KEY_IN_BODY, key_in=_key_in, refuse=pages.refuse
        )
        guarded = BodyGuard(guarded, service.limits)
        # Whoever has no key is refused before anything is read; where it is to be read, after.
        guarded = KeyGuard(
            guarded, keys, left_open=(*_KEY_IN_BODY, pages.SIGN_IN), refuse=pages.refuse
        )
    if origins:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return Observer(guarded, service)


def make_routes(service: Service, keys: Keys | None) -> FastAPI:
    """Make the routes alone."""

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
    app.include_router(pages.routes(app, keys))
    _describe(app, has_keys=keys is not None)
    return app


def _describe(app: FastAPI, *, has_keys: bool) -> None:
    """Complete the OpenAPI description with what FastAPI cannot know."""
    schema = app.openapi()
    components = schema["components"]
    libre = LibreRequest.model_json_schema()
    components["schemas"]["LibreRequest"] = libre
    if has_keys:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                if path not in ("/healthz", "/readyz"):
                    operation["security"] = [{"key": []}]


def _key_in(content_type: str, body: bytes) -> object:
    try:
        return libretranslate.fields_of(content_type, body).get("api_key")
    except RefusedError:
        return None
