"""Observe requests: Prometheus metrics, a log line and response headers for each."""

import secrets
import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwise.serving.clients import TrustedProxies, client_group
from headwise.serving.errors import problem
from headwise.serving.logs import log

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """What the server counts, in a registry of its own. No label depends on text of users."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "headwise_requests_total",
            "Requests answered.",
            ("route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "headwise_request_seconds",
            "Seconds from a request's header to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.waiting = Gauge(
            "headwise_waiting_sentences",
            "Sentences that wait for a model.",
            ("model",),
            registry=self.registry,
        )
        self.batches = Histogram(
            "headwise_batch_sentences",
            "Sentences in progress together, at each step or result.",
            ("model",),
            buckets=_SENTENCES,
            registry=self.registry,
        )
        self.search_seconds = Counter(
            "headwise_search_seconds_total",
            "Seconds in which a model had sentences in progress.",
            ("model",),
            registry=self.registry,
        )
        self.source_tokens = Counter(
            "headwise_source_tokens_total",
            "Source tokens searched, or prompt tokens read and tokens to generate at most.",
            ("model",),
            registry=self.registry,
        )
        self.generated_tokens = Counter(
            "headwise_generated_tokens_total",
            "Tokens that language models have drawn for continuations.",
            ("model",),
            registry=self.registry,
        )
        self.close_draws = Counter(
            "headwise_close_draws_total",
            "Tokens whose draw was within 1e-5 of a boundary, which other requests may decide.",
            ("model",),
            registry=self.registry,
        )
        self.dropped = Counter(
            "headwise_given_up_sentences_total",
            "Sentences dropped before they were done.",
            ("model",),
            registry=self.registry,
        )
        self.failed_turns = Counter(
            "headwise_failed_turns_total",
            "Turns that failed because of a bug, with all requests of that model.",
            ("model",),
            registry=self.registry,
        )
        self.ready = Gauge(
            "headwise_ready", "Whether requests are accepted: 1 or 0.", registry=self.registry
        )

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)


_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self)",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_QUIET = ("/healthz", "/readyz", "/metrics")
"""Paths that monitoring polls: logged only on failure."""


class Observer:
    """Count, time and log requests; add security headers to responses.

    In `scope["state"]`, `facts` holds the request's fields for the log, and `client` names whom
    limits count it for: an address here, a key's holder once that is known.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        proxies: TrustedProxies,
        *,
        is_accepting: Callable[[], bool],
    ) -> None:
        """Answer requests with 503 unless the server `is_accepting` them."""
        self._app, self._metrics, self._proxies = app, metrics, proxies
        self._is_accepting = is_accepting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            # Handled as GET; the HTTP protocol omits the body.
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
            if self._is_accepting() or scope["path"] in _QUIET:
                await self._app(scope, receive, watched_send)
            else:
                answer = problem(503, "the server is stopping or starting", {"Retry-After": "5"})
                await answer(scope, receive, watched_send)
        finally:
            self._record(scope, status, time.perf_counter() - begin, facts)

    def _facts_of(self, scope: Scope) -> dict[str, Any]:
        """Return a new request id and the client's address: ids from clients are not trusted."""
        peer = scope["client"][0] if scope.get("client") else ""
        address = self._proxies.client(peer, Headers(scope=scope).getlist("x-forwarded-for"))
        facts = {"request": secrets.token_hex(8), "client": address}
        return facts if address == peer else {**facts, "proxy": peer}

    def _record(self, scope: Scope, status: int, seconds: float, facts: dict[str, Any]) -> None:
        # The route's template, never the requested path.
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
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
