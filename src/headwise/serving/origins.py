"""A guard against requests that a browser makes for a page of another site."""

from collections.abc import Collection, Sequence

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headwise.serving.clients import TrustedProxies
from headwise.serving.errors import problem
from headwise.serving.hosts import AllowedHosts, Host, parse_host, scheme_of
from headwise.serving.keys import OPEN

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class OriginGuard:
    """Refuse requests for another host, and those of pages on other sites.

    Programs send neither Origin nor Sec-Fetch-Site, and pass. Health checks pass always, whatever
    name a container or load balancer uses for them.
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
        """Let pages from `origins` ask for anything, and other sites link to `pages`."""
        self._app, self._hosts, self._proxies = app, hosts, proxies
        self._origins, self._pages = origins, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] == "http" and scope["path"] not in OPEN:
            refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        scheme = scheme_of(scope, self._proxies)
        given = headers.getlist("host")
        hosts = [parse_host(value, scheme) for value in given]
        # HTTP/1.0 has no Host, and no browser speaks it.
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
                "a page of another site asks for this: "
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
            # "none" is a person: an address typed in, or a bookmark.
            if all(site in ("same-origin", "none") for site in sites):
                return False
            return not self._is_link(scope, headers)
        # Older browsers, and all of them over plain HTTP to another machine.
        if scope["method"] in _SAFE_METHODS or not origins:
            return False
        return not all(_is_origin_of(origin, scheme, host) for origin in origins)

    def _is_link(self, scope: Scope, headers: Headers) -> bool:
        """Return whether a person follows a link to a page, in a top-level window."""
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
