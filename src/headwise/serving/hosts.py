"""Host names that a server answers for, and the scheme that a client used."""

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import Scope

from headwise.errors import ConfigError
from headwise.serving.clients import TrustedProxies

_HOST = re.compile(
    r"(?:\[(?P<six>[0-9a-f:.]+)(?:%[\w.-]+)?\]|(?P<name>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?)"
    r"(?::(?P<port>\d{0,5}))?",
    re.IGNORECASE | re.ASCII,
)
_NAME = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", re.ASCII)
_LONGEST = 300
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Host(NamedTuple):
    """A name or address in lower case, and a port."""

    name: str
    port: int


def parse_host(value: str, scheme: str) -> Host | None:
    """Return what a Host header, or an origin after its scheme, names; None if it is malformed."""
    found = _HOST.fullmatch(value) if len(value) <= _LONGEST else None
    if found is None:
        return None
    name = (found["six"] or found["name"]).lower()
    port = int(found["port"]) if found["port"] else _DEFAULT_PORTS.get(scheme, 0)
    return None if found["six"] and not is_address(name) else Host(name, port)


def is_address(name: str) -> bool:
    """Return whether a name is an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def scheme_of(scope: Scope, proxies: TrustedProxies) -> str:
    """Return the scheme that the client used: the connection's, or what a trusted proxy says."""
    peer = scope.get("client")
    forwarded = Headers(scope=scope).getlist("x-forwarded-proto")
    if peer and forwarded and proxies.trusts(peer[0]):
        # A proxy that adds to what came before it adds at the end.
        scheme = forwarded[-1].rpartition(",")[2].strip().lower()
        if scheme in _DEFAULT_PORTS:
            return scheme
    return str(scope["scheme"])


class AllowedHosts:
    """The names that a server answers for.

    A page on any site can give its own name the address of this server, or of the loopback
    interface, and so become the same origin to a browser (DNS rebinding). Its requests then name
    that site as their Host.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        """Allow names, and with "*.example.org" all names below one, beside the local ones."""
        self._names = set()
        self._suffixes = [".localhost"]
        for given in names:
            name = given.lower().removesuffix(".")
            if not is_address(name) and not _NAME.fullmatch(name):
                raise ConfigError(
                    f"{given!r} is not a host name: give one as example.org or *.example.org is, "
                    "without a scheme or a port"
                )
            if name.startswith("*."):
                self._suffixes.append(name[1:])
            else:
                self._names.add(name)

    def allows(self, name: str) -> bool:
        """Return whether a server answers for a name; addresses cannot be rebound."""
        return (
            name == "localhost"
            or name in self._names
            or name.endswith(tuple(self._suffixes))
            or is_address(name)
        )
