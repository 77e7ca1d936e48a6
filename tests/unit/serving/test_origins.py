"""Which requests of browsers, and for which hosts, reach the application."""

import asyncio
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Scope

from headwise.serving.clients import AllowedHosts, OriginGuard, TrustedProxies

OURS = "http://127.0.0.1:8000"


def status(
    headers: dict[str, str] | list[tuple[str, str]],
    *,
    method: str = "POST",
    path: str = "/v1/translate",
    origins: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
    proxies: tuple[str, ...] = (),
) -> int:
    """Ask for something behind the guard; without a Host, that of a local server is sent."""
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not any(name == "host" for name, _ in pairs):
        pairs = [("host", "127.0.0.1:8000"), *pairs]
    scope: Scope = {
        "type": "http",
        "method": method,
        "path": path,
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs],
    }
    guard = OriginGuard(
        PlainTextResponse("passed"),
        hosts=AllowedHosts(hosts),
        origins=origins,
        proxies=TrustedProxies(proxies),
        pages=("/", "/docs"),
    )
    sent: list[Message] = []

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(guard(scope, receive, send))
    found: int = sent[0]["status"]
    return found


def test_programs_pass() -> None:
    assert status({}) == 200
    assert status({"accept": "*/*", "user-agent": "curl/8"}) == 200


@pytest.mark.parametrize("path", ["/", "/v1/translate", "/static/page.js", "/healthz/"])
def test_another_host_is_refused(path: str) -> None:
    assert status({"host": "evil.example:8000"}, method="GET", path=path) == 421


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_checks_pass_for_every_host(path: str) -> None:
    assert status({"host": "10-0-0-7.pod.cluster.internal"}, method="GET", path=path) == 200


def test_an_allowed_host_passes() -> None:
    assert status({"host": "translate.example"}, hosts=("translate.example",)) == 200


def test_malformed_and_several_hosts_are_refused() -> None:
    assert status({"host": "localhost@evil.example"}) == 400
    assert status({"host": ""}) == 400
    assert status([("host", "localhost"), ("host", "localhost")]) == 400


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize("site", ["cross-site", "same-site", "unheard-of"])
def test_pages_of_other_sites_are_refused(method: str, site: str) -> None:
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "cors", "origin": "https://evil.example"}
    assert status(headers, method=method) == 403
    del headers["origin"]
    assert status(headers, method=method) == 403


def test_an_attacker_cannot_hide_among_several_headers() -> None:
    headers = [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")]
    assert status(headers) == 403
    assert status([("origin", OURS), ("origin", "https://evil.example")]) == 403


def test_pages_that_cors_allows_pass() -> None:
    headers = {"sec-fetch-site": "cross-site", "origin": "https://friend.example"}
    assert status(headers, origins=("https://friend.example",)) == 200
    assert status(headers, origins=("https://other.example",)) == 403
    assert status(headers, origins=("*",)) == 200
    # Older browsers send the origin alone.
    assert status({"origin": "https://friend.example"}, origins=("https://friend.example",)) == 200


def test_our_own_page_and_the_address_bar_pass() -> None:
    for site in ("same-origin", "none"):
        assert status({"sec-fetch-site": site, "origin": OURS}) == 200


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (OURS, 200),
        ("http://127.0.0.1", 403),
        ("http://127.0.0.1:8001", 403),
        ("https://127.0.0.1:8000", 403),
        ("http://localhost:8000", 403),
        ("http://evil.example", 403),
        ("http://127.0.0.1:8000@evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_without_fetch_metadata_the_origin_decides(origin: str, expected: int) -> None:
    assert status({"origin": origin}) == expected
    # A page of another site may ask, but CORS keeps the answer from it.
    assert status({"origin": origin}, method="GET") == 200


def test_the_origins_default_port_follows_from_the_scheme() -> None:
    assert status({"host": "127.0.0.1", "origin": "http://127.0.0.1:80"}) == 200
    assert status({"host": "127.0.0.1:80", "origin": "http://127.0.0.1"}) == 200


def test_behind_a_trusted_proxy_the_scheme_is_that_of_the_client() -> None:
    headers = {
        "host": "translate.example",
        "origin": "https://translate.example",
        "x-forwarded-proto": "https",
    }
    assert status(headers, hosts=("translate.example",), proxies=("127.0.0.1",)) == 200
    assert status(headers, hosts=("translate.example",)) == 403


def test_other_sites_may_link_to_the_pages() -> None:
    link = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    assert status(link, method="GET", path="/") == 200
    assert status(link, method="GET", path="/docs") == 200
    assert status(link, method="GET", path="/v1/models") == 403
    assert status(link, method="POST", path="/") == 403
    assert status({**link, "sec-fetch-dest": "iframe"}, method="GET", path="/") == 403
    assert status({**link, "sec-fetch-mode": "no-cors"}, method="GET", path="/") == 403
