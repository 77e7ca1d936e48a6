"""Identify who sends a request: its client, its host, and the page it comes from."""

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headwise.errors import ConfigError
from headwise.serving.errors import problem

HEALTH_CHECKS = ("/healthz", "/readyz")
"""Paths that are answered for every host and origin, and without a key."""

_MOST_HOPS = 20
"""Most proxies between a client and this server: a header may have thousands of addresses."""
_LONGEST_ADDRESS = 100
"""Longer strings are neither parsed nor cached: a header may have 16 kB."""


class TrustedProxies:
    """Reverse proxies whose X-Forwarded-For and X-Forwarded-Proto headers are trusted."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        """Take addresses (10.0.0.1) or networks (10.0.0.0/8)."""
        try:
            self._networks = [ip_network(network, strict=False) for network in networks]
        except ValueError as error:
            raise ConfigError(f"a trusted proxy is an address or a network: {error}") from error

    def trusts(self, address: str) -> bool:
        """Return whether an address belongs to a trusted proxy."""
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def client(self, peer: str, forwarded: Iterable[str]) -> str:
        """Return the client's address: the peer's, or the one that trusted proxies forward.

        `forwarded` are the values of all X-Forwarded-For headers, in order. Each proxy appends the
        address it was called from, so the last one that is not itself a trusted proxy is the
        client; entries before it were sent by the client and prove nothing.
        """
        address = peer
        hops = [hop.strip() for hop in ",".join(forwarded).rsplit(",", _MOST_HOPS)[-_MOST_HOPS:]]
        while hops and self.trusts(address):
            parsed = _parsed(hops.pop())
            if parsed is None:
                break
            address = str(parsed)
        return address


def client_group(address: str) -> str:
    """Return the unit that limits count as one client: an IPv4 address, or an IPv6 /64 network.

    A single IPv6 subscriber has at least a /64 of addresses to choose from.
    """
    if len(address) > _LONGEST_ADDRESS:
        return address
    return _group(address)


@lru_cache(4096)
def _group(address: str) -> str:
    parsed = _parse(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network((parsed, 64), strict=False))
    return address if parsed is None else str(parsed)


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    return None if len(address) > _LONGEST_ADDRESS else _parse(address)


@lru_cache(4096)
def _parse(address: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return mapped or parsed


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
    """Parse a Host header, or an origin without its scheme; return None if it is malformed."""
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
    """Return the scheme that the client used: the connection's, or a trusted proxy's header."""
    peer = scope.get("client")
    forwarded = Headers(scope=scope).getlist("x-forwarded-proto")
    if peer and forwarded and proxies.trusts(peer[0]):
        # A proxy appends its value to the ones before.
        scheme = forwarded[-1].rpartition(",")[2].strip().lower()
        if scheme in _DEFAULT_PORTS:
            return scheme
    return str(scope["scheme"])


class AllowedHosts:
    """The host names that a server answers for.

    A site can point its own name at the address of this server, or of the loopback interface, so
    that a browser treats both as the same origin (DNS rebinding). Requests of its pages then have
    that site's name in their Host header.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        """Allow names, with "*.example.org" all subdomains, and always the local names."""
        self._names = set()
        self._suffixes = [".localhost"]
        for given in names:
            name = given.lower().removesuffix(".")
            if not is_address(name) and not _NAME.fullmatch(name):
                raise ConfigError(
                    f"{given!r} is not a host name: give one such as example.org or *.example.org, "
                    "without a scheme or a port"
                )
            if name.startswith("*."):
                self._suffixes.append(name[1:])
            else:
                self._names.add(name)

    def allows(self, name: str) -> bool:
        """Return whether the server answers for a name; IP addresses cannot be rebound."""
        return (
            name == "localhost"
            or name in self._names
            or name.endswith(tuple(self._suffixes))
            or is_address(name)
        )


_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class OriginGuard:
    """Refuse requests for other hosts, and requests that browsers make for pages of other sites.

    Programs send neither Origin nor Sec-Fetch-Site, and pass. Health checks always pass: containers
    and load balancers use any name for them.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: AllowedHosts,
        origins: Sequence[str],
        proxies: TrustedProxies,
        pages: Collection[str],
    ) -> None:
        """Allow all requests of pages from `origins`, and links from other sites to `pages`."""
        self._app, self._hosts, self._proxies = app, hosts, proxies
        self._origins, self._pages = origins, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] == "http" and scope["path"] not in HEALTH_CHECKS:
            refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        scheme = scheme_of(scope, self._proxies)
        given = headers.getlist("host")
        hosts = [parse_host(value, scheme) for value in given]
        # HTTP/1.0 has no Host header, and browsers do not use it.
        host = hosts[0] if hosts else None
        if len(hosts) > 1 or (hosts and host is None):
            return problem(400, "the Host header is not a host name and a port")
        if host is not None and not self._hosts.allows(host.name):
            return problem(
                421,
                f"this server does not answer for the host {host.name}: "
                f"its operator may add --allowed-host {host.name}",
            )
        if self._is_cross_site(scope, headers, scheme, host):
            return problem(
                403,
                "this request comes from a page of another site: "
                "the server's operator may allow its origin with --cors",
            )
        return None

    def _is_cross_site(
        self, scope: Scope, headers: Headers, scheme: str, host: Host | None
    ) -> bool:
        origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
        if "*" in self._origins or (len(origins) == 1 and origins[0] in self._origins):
            return False
        if sites:
            # "none": the user typed the address or opened a bookmark.
            if all(site in ("same-origin", "none") for site in sites):
                return False
            return not self._is_link(scope, headers)
        # Older browsers, and all browsers over plain HTTP to another machine.
        if scope["method"] in _SAFE_METHODS or not origins:
            return False
        return not all(_is_origin_of(origin, scheme, host) for origin in origins)

    def _is_link(self, scope: Scope, headers: Headers) -> bool:
        """Return whether the user follows a link to a page, in a top-level window."""
        return (
            scope["method"] == "GET"
            and scope["path"] in self._pages
            and headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest", "document") == "document"
        )


def _is_origin_of(origin: str, scheme: str, host: Host | None) -> bool:
    given_scheme, separator, rest = origin.partition("://")
    if not separator or given_scheme.lower() != scheme or host is None:
        return False
    return parse_host(rest, scheme) == host
