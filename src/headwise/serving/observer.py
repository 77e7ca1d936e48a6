"""What is said of every request, and with every answer: metrics, a line of log, headers."""

import secrets
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwise.serving.clients import TrustedProxies, client_group
from headwise.serving.errors import problem
from headwise.serving.logs import log
from headwise.serving.service import Service

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_QUIET = ("/healthz", "/readyz", "/metrics")
"""What is asked every few seconds, and logged only where it fails."""


class Observer:
    """Count, time and log requests; add headers that keep browsers careful.

    In `scope["state"]`, `facts` is what the log says of a request, and `client` is what limits
    count its work under: an address here, a key's holder once that is known.
    """

    def __init__(self, app: ASGIApp, service: Service, proxies: TrustedProxies) -> None:
        self._app, self._service, self._proxies = app, service, proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            # Answered as GET is; whoever writes it to the connection leaves its body out.
            scope = {**scope, "method": "GET"}
        begin = time.perf_counter()
        facts = self._facts_of(scope)
        scope.setdefault("state", {}).update(facts=facts, client=client_group(facts["client"]))
        status = 0

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                headers["X-Request-Id"] = facts["request"]
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            if self._service.is_accepting or scope["path"] in _QUIET:
                await self._app(scope, receive, watched_send)
            else:
                answer = problem(503, "the server is stopping or starting", {"Retry-After": "5"})
                await answer(scope, receive, watched_send)
        finally:
            self._record(scope, status, time.perf_counter() - begin, facts)

    def _facts_of(self, scope: Scope) -> dict[str, Any]:
        """Name a request, and who sent it: an id from the client could be anything."""
        peer = scope["client"][0] if scope.get("client") else ""
        address = self._proxies.client(peer, Headers(scope=scope).getlist("x-forwarded-for"))
        facts = {"request": secrets.token_hex(8), "client": address}
        return facts if address == peer else {**facts, "proxy": peer}

    def _record(self, scope: Scope, status: int, seconds: float, facts: dict[str, Any]) -> None:
        # The route as it is written in the code, never the path that was asked for.
        route = getattr(scope.get("route"), "path", "none")
        metrics = self._service.metrics
        metrics.requests.labels(route, str(status)).inc()
        metrics.seconds.labels(route).observe(seconds)
        if route not in _QUIET or status >= 400:
            log(
                "request",
                method=scope["method"] if scope["method"] in _METHODS else "other",
                route=route,
                status=status,
                seconds=round(seconds, 4),
                **facts,
            )


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
