"""TLS: the certificate, and the handshake that comes before HTTP."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from headwise.errors import ConfigError
from headwise.serving.protocol import GuardedProtocol


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and later, with a certificate chain and its key in PEM files."""
    for path in (certificate, key):
        try:
            path.open("rb").close()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error

    def refuse_encrypted() -> NoReturn:
        raise ConfigError(
            f"{key}: the key is encrypted: decrypt it with `openssl pkey -in {key} -out FILE`"
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a function, OpenSSL would ask for a password on the terminal.
        context.load_cert_chain(certificate, key, refuse_encrypted)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            message = f"{key}: this is not the key of the certificate {certificate}"
        else:
            message = (
                f"{certificate}, {key}: not a certificate and its key in PEM: "
                f"{error.reason or error.strerror}"
            )
        raise ConfigError(message) from error
    return context


_HANDSHAKE_SECONDS = 0.002
"""What a handshake costs the event loop, about."""


class TlsProtocol(asyncio.Protocol):
    """Completes the TLS handshake of a connection, then hands it to HTTP.

    uvicorn can do TLS, too, but gives a handshake 60 seconds and sees a connection only after it:
    a client could open any number of them.
    """

    context: ClassVar[ssl.SSLContext]
    http: ClassVar[type[GuardedProtocol]]

    transport: asyncio.Transport

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Take what uvicorn gives its protocols."""
        self._make_http: Callable[[], GuardedProtocol] = lambda: self.http(*arguments, **options)
        self._connections = options["server_state"].connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the handshake, unless there are too many connections already."""
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        # HTTP cannot be spoken yet: the connection is closed without an answer.
        if self.http.open_connections.add(self._address) is not None:
            self.http.open_connections.remove(self._address)
            transport.abort()
            return
        self._connections.add(self)
        self._task = asyncio.get_running_loop().create_task(self._start_http())

    def shutdown(self) -> None:
        """Close the connection; uvicorn calls this when it stops."""
        self.transport.abort()

    async def _start_http(self) -> None:
        early = _EarlyData()
        self.http.loop_time.charge(self._address, _HANDSHAKE_SECONDS)
        try:
            transport = await asyncio.get_running_loop().start_tls(
                self.transport,
                early,
                self.context,
                server_side=True,
                ssl_handshake_timeout=self.http.read_seconds,
                # Its time includes that of an answer which is still being taken.
                ssl_shutdown_timeout=self.http.answer_seconds,
            )
        except OSError:  # Not TLS, no version or cipher in common, too slow, or gone.
            self.transport.abort()
            return
        finally:
            self._connections.discard(self)
            self.http.open_connections.remove(self._address)
        if transport is None:  # The client is gone.
            return
        protocol = self._make_http()
        protocol.wire = self.transport
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if early.data:
            protocol.data_received(bytes(early.data))


class _EarlyData(asyncio.Protocol):
    """Keeps what arrives with the last message of the handshake."""

    def __init__(self) -> None:
        self.data = bytearray()

    def data_received(self, data: bytes) -> None:
        self.data += data
