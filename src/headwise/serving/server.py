"""A socket, uvicorn, and an end in good order."""

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from types import FrameType

import uvicorn

from headwise.errors import ConfigError
from headwise.serving import logs
from headwise.serving.app import make_app
from headwise.serving.clients import TrustedProxies
from headwise.serving.connections import OpenConnections
from headwise.serving.hosts import AllowedHosts
from headwise.serving.keys import Keys
from headwise.serving.limits import Limits
from headwise.serving.logs import log
from headwise.serving.loop_time import LoopTime, Metered
from headwise.serving.metrics import Metrics
from headwise.serving.models import Models, ServedModel
from headwise.serving.protocol import GuardedProtocol
from headwise.serving.service import Service
from headwise.serving.tls import TlsProtocol
from headwise.serving.unsent import UnsentAnswers
from headwise.signals import StopWishes

_SPARE_FILES = 100
"""Open files that are not connections: libraries, weights, logs."""

_LAST_ANSWER_SECONDS = 0.5
"""How long answers to requests that were given up have to leave."""


class Server(uvicorn.Server):
    """uvicorn's server, which is not ready from the moment that it is told to stop."""

    def __init__(self, config: uvicorn.Config, service: Service, *, scheme: str) -> None:
        super().__init__(config)
        self._service, self.scheme = service, scheme
        self._wishes = StopWishes()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.on_started: Callable[[], None] = lambda: None
        """Is called once requests are answered."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.stop_accepting()
        insists = self._wishes.insists()
        if not self.should_exit:
            super().handle_exit(sig, frame)
        elif insists and self._loop is not None:
            # Not uvicorn's way, which ends requests without an answer.
            self._loop.call_soon_threadsafe(self._give_up)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stop_accepting()
        log("stopping")
        asyncio.get_running_loop().call_later(self._service.limits.stop_seconds, self._give_up)
        await super().shutdown(sockets)

    def _give_up(self) -> None:
        """Answer the requests that are still here that they are given up, and hang up."""
        self._service.give_up()
        asyncio.get_running_loop().call_later(_LAST_ANSWER_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def make_server(
    models: Sequence[ServedModel],
    *,
    limits: Limits | None = None,
    keys: Keys | None = None,
    origins: Sequence[str] = (),
    hosts: AllowedHosts | None = None,
    proxies: TrustedProxies | None = None,
    tls: ssl.SSLContext | None = None,
) -> Server:
    """Make a server that is told its sockets when it is run."""
    service = Service(Models(models), limits or Limits(), Metrics())
    time_of_clients = LoopTime(proxies or TrustedProxies())

    class Protocol(GuardedProtocol):
        read_seconds = service.limits.read_seconds
        answer_seconds = service.limits.answer_seconds
        loop_time = time_of_clients
        unsent_answers = UnsentAnswers(service.limits.all_answers_bytes)
        open_connections = OpenConnections(
            most=_raise_file_limit() - _SPARE_FILES,
            most_per_client=service.limits.connections,
            proxies=proxies or TrustedProxies(),
        )

    protocol: type[asyncio.Protocol] = Protocol
    if tls is not None:
        protocol = type("Tls", (TlsProtocol,), {"context": tls, "http": Protocol})
    config = uvicorn.Config(
        Metered(make_app(service, keys, origins, hosts=hosts, proxies=proxies), time_of_clients),
        http=protocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=2048,
        # Longer than proxies keep a connection, or one would be closed just as they use it.
        timeout_keep_alive=65,
        # After its requests were given up, which takes a moment.
        timeout_graceful_shutdown=int(service.limits.stop_seconds) + 2,
        h11_max_incomplete_event_size=32 * 1024,
    )
    return Server(config, service, scheme="http" if tls is None else "https")


def listen(host: str, port: int) -> socket.socket:
    """Open the socket that requests come to; port 0 is any that is free."""
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
    """Return what is risky about a socket that other machines can reach."""
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
    """Serve until told to stop; `on_ready` is told the address as soon as it answers."""
    logs.configure()
    host, port = listener.getsockname()[:2]
    address = f"{server.scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def on_started() -> None:
        log("listening", url=address)
        on_ready(address)

    server.on_started = on_started
    server.run(sockets=[listener])


def _raise_file_limit() -> int:
    """Let this process have as many files open as it may; return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # More connections than this would rather be an attack than a need.
    most = 16_384 if hard == resource.RLIM_INFINITY else min(hard, 16_384)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return most
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
