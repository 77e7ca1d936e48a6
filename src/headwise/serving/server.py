"""Assemble the application, run it with uvicorn, and stop it gracefully."""

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from types import FrameType

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from headwise import __version__
from headwise.errors import ConfigError
from headwise.serving import (
    errors,
    generation_api,
    libretranslate,
    logs,
    openai_api,
    pages,
    task_api,
    translation_api,
)
from headwise.serving.bodies import BodyGuard
from headwise.serving.client_limits import (
    LoopTime,
    LoopTimeMeter,
    OpenConnections,
    RoundRobinGuard,
    UnsentResponses,
)
from headwise.serving.clients import AllowedHosts, OriginGuard, TrustedProxies
from headwise.serving.compute import ComputeThread
from headwise.serving.keys import BodyKeyGuard, KeyGuard, Keys, Sessions
from headwise.serving.limits import Limits
from headwise.serving.logs import log
from headwise.serving.models import GenerationModel, Models, ServedModel
from headwise.serving.observation import Metrics, Observer
from headwise.serving.openai_errors import OpenAIErrors
from headwise.serving.openai_types import CompletionRequest
from headwise.serving.protocol import GuardedProtocol, TlsProtocol
from headwise.serving.service import Service
from headwise.serving.task_api import TaskModel
from headwise.serving.translation import check_recipe
from headwise.signals import StopSignals
from headwise.tasks.language_model.generator import Generator

_KEY_IN_BODY = ("/translate", "/languages")
_REQUESTS = (
    translation_api.TranslateRequest,
    translation_api.AttentionRequest,
    libretranslate.LibreRequest,
)


def make_app(
    service: Service,
    keys: Keys | None = None,
    origins: Sequence[str] = (),
    *,
    others: Sequence[TaskModel] = (),
    hosts: AllowedHosts | None = None,
    proxies: TrustedProxies | None = None,
) -> ASGIApp:
    """Make the application: routes within guards; pages from `origins` may use it, too.

    `others` are models of other tasks than translation.
    """
    proxies = proxies or TrustedProxies()
    sessions = None if keys is None else Sessions(keys, proxies)
    uploads = task_api.upload_paths(others)
    guarded = _without_cookies_and_query(make_routes(service, sessions, list(others)))
    if keys is None or sessions is None:
        guarded = BodyGuard(RoundRobinGuard(guarded), service.limits, uploads=uploads)
    else:

        def key_in(content_type: str, body: bytes) -> object:
            return libretranslate.fields_of(content_type, body, service.limits).get("api_key")

        guarded = BodyKeyGuard(
            guarded, keys, paths=_KEY_IN_BODY, key_in=key_in, refuse=pages.refuse
        )
        guarded = BodyGuard(
            RoundRobinGuard(guarded), service.limits, has_keys=True, uploads=uploads
        )
        # Before any body is read, except where the key may be in the body.
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
    return OpenAIErrors(
        Observer(guarded, service.metrics, proxies, is_accepting=lambda: service.is_accepting)
    )


def make_routes(service: Service, sessions: Sessions | None, others: list[TaskModel]) -> FastAPI:
    """Make the routes alone; with `sessions`, those of a server that requires keys."""

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
        redirect_slashes=False,  # They would use the request's Host.
        lifespan=lifespan,
    )
    errors.install(app)
    app.include_router(translation_api.routes(service))
    app.include_router(libretranslate.routes(service))
    app.include_router(task_api.routes(service, others))
    if service.models.generators:
        app.include_router(generation_api.routes(service))
        app.include_router(openai_api.routes(service))
    app.include_router(pages.status_routes(service))
    app.include_router(pages.routes(app, sessions, translates=bool(service.models.all)))
    requests: set[type[BaseModel]] = {each.served.request for each in others}
    if service.models.generators:
        requests.add(CompletionRequest)
    _describe(app, [*_REQUESTS, *requests], has_keys=sessions is not None)
    return app


def _describe(app: FastAPI, requests: Iterable[type[BaseModel]], *, has_keys: bool) -> None:
    """Add to the OpenAPI description what FastAPI cannot know."""
    schema = app.openapi()
    components = schema["components"]
    for kind in requests:
        described = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        components["schemas"] |= described.pop("$defs", {}) | {kind.__name__: described}
    if has_keys:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                if path not in ("/healthz", "/readyz"):
                    operation["security"] = [{"key": []}]


def _without_cookies_and_query(app: ASGIApp) -> ASGIApp:
    """Hide cookies and query from the routes: only the guards use them.

    FastAPI parses both for every route, and on some Pythons its cookie parser takes seconds for a
    header full of backslashes.
    """

    async def bare(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = [header for header in scope["headers"] if header[0] != b"cookie"]
            # Changed in place: FastAPI adds the route to this scope, for the Observer.
            scope.update(headers=headers, query_string=b"")
        await app(scope, receive, send)

    return bare


_SPARE_FILES = 100
"""Open files that are not connections: libraries, weights, logs."""

_LAST_RESPONSE_SECONDS = 0.5
"""How long responses to cancelled requests may take to be sent."""


class Server(uvicorn.Server):
    """uvicorn's server, which accepts no requests from its first stop signal on."""

    def __init__(self, config: uvicorn.Config, service: Service, *, scheme: str) -> None:
        super().__init__(config)
        self.service, self.scheme = service, scheme
        self._signals = StopSignals()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.on_started: Callable[[], None] = lambda: None
        """Called once requests are accepted."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.stop_accepting()
        is_repeat = self._signals.is_repeat()
        if not self.should_exit:
            super().handle_exit(sig, frame)
            # If another signal came between the two lines above, uvicorn took this one for a
            # second Ctrl-C and would end requests without a response.
            self.force_exit = False
        elif is_repeat and self._loop is not None:
            # uvicorn would end requests without a response.
            self._loop.call_soon_threadsafe(self._cancel_requests)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.stop_accepting()
        log("stopping")
        asyncio.get_running_loop().call_later(
            self.service.limits.stop_seconds, self._cancel_requests
        )
        await super().shutdown(sockets)

    def _cancel_requests(self) -> None:
        """Refuse the requests in progress, then close all connections."""
        self.service.cancel_requests()
        asyncio.get_running_loop().call_later(_LAST_RESPONSE_SECONDS, self._close_connections)

    def _close_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def make_server(
    models: Sequence[ServedModel | TaskModel],
    compute: ComputeThread,
    *,
    limits: Limits | None = None,
    keys: Keys | None = None,
    origins: Sequence[str] = (),
    hosts: AllowedHosts | None = None,
    proxies: TrustedProxies | None = None,
    tls: ssl.SSLContext | None = None,
) -> Server:
    """Make a server; it gets its sockets when it is run."""
    limits = limits or Limits()
    others = [model for model in models if isinstance(model, TaskModel)]
    known = Models(
        [model for model in models if isinstance(model, ServedModel)],
        [
            GenerationModel(name=model.name, generator=model.predictor)
            for model in others
            if isinstance(model.predictor, Generator)
        ],
        others={model.name: model.path for model in others},
    )
    for model in known.all:
        check_recipe(model, limits)
    num_others = len(others) - len(known.generators)
    service = Service(known, limits, Metrics(), compute, num_others=num_others)
    time_of_clients = LoopTime(proxies or TrustedProxies())

    class Protocol(GuardedProtocol):
        read_seconds = service.limits.read_seconds
        answer_seconds = service.limits.answer_seconds
        loop_time = time_of_clients
        unsent_responses = UnsentResponses(service.limits.all_answers_bytes)
        open_connections = OpenConnections(
            most=_raise_file_limit() - _SPARE_FILES,
            most_per_client=service.limits.connections,
            proxies=proxies or TrustedProxies(),
        )

    protocol: type[asyncio.Protocol] = Protocol
    if tls is not None:
        protocol = type("Tls", (TlsProtocol,), {"context": tls, "http": Protocol})
    config = uvicorn.Config(
        LoopTimeMeter(
            make_app(service, keys, origins, others=others, hosts=hosts, proxies=proxies),
            time_of_clients,
        ),
        http=protocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=2048,
        # Longer than proxies keep a connection: else it might be closed just as they use it.
        timeout_keep_alive=65,
        # After requests in progress are cancelled.
        timeout_graceful_shutdown=int(service.limits.stop_seconds) + 2,
        h11_max_incomplete_event_size=32 * 1024,
    )
    return Server(config, service, scheme="http" if tls is None else "https")


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket; port 0 is any free port."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        with contextlib.ExitStack() as stack:
            stack.callback(listener.close)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            stack.pop_all()
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}, port {port}: {error.strerror}") from error
    return listener


def exposure_warnings(listener: socket.socket, *, has_tls: bool, has_keys: bool) -> list[str]:
    """Return warnings about a socket that other machines can reach."""
    host = listener.getsockname()[0]
    if ip_address(host.partition("%")[0]).is_loopback:
        return []
    warnings = []
    if not has_tls:
        warnings.append(
            f"{host} can be reached from other machines, and HTTP is not encrypted: "
            "use --tls-cert and --tls-key, or a proxy that speaks TLS"
        )
    if not has_keys:
        warnings.append(
            f"{host} can be reached from other machines, and everyone may use it: use --keys"
        )
    return warnings


def serve(server: Server, listener: socket.socket, on_ready: Callable[[str], None]) -> None:
    """Serve until stopped by a signal; call `on_ready` with the address once it answers."""
    logs.configure()
    host, port = listener.getsockname()[:2]
    address = f"{server.scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def on_started() -> None:
        log("listening", url=address)
        on_ready(address)

    server.on_started = on_started
    server.run(sockets=[listener])


def _raise_file_limit() -> int:
    """Raise this process's limit of open files as far as allowed; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # More connections than this are more likely an attack.
    most = 16_384 if hard == resource.RLIM_INFINITY else min(hard, 16_384)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return most
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
