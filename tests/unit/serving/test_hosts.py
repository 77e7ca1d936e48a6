"""Host headers, allowed names, and schemes."""

import pytest

from headwise.errors import ConfigError
from headwise.serving.clients import AllowedHosts, Host, TrustedProxies, parse_host, scheme_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("localhost", Host("localhost", 80)),
        ("LocalHost:8000", Host("localhost", 8000)),
        ("example.org.", Host("example.org", 80)),
        ("example.org.:8000", Host("example.org", 8000)),
        ("example.org:", Host("example.org", 80)),
        ("127.0.0.1:8000", Host("127.0.0.1", 8000)),
        ("[::1]", Host("::1", 80)),
        ("[::1]:8000", Host("::1", 8000)),
        ("[fe80::1%eth0]:8000", Host("fe80::1", 8000)),
        ("my_host", Host("my_host", 80)),
        ("", None),
        (".", None),
        ("a..b", None),
        ("example.org..", None),
        (":8000", None),
        ("localhost:x", None),
        ("localhost:123456", None),
        ("localhost:80:80", None),
        ("user@localhost", None),
        ("localhost@evil.example", None),
        ("localhost/evil.example", None),
        ("localhost#", None),
        ("evil.example localhost", None),
        ("evil.example, localhost", None),
        ("evil.example\nlocalhost", None),
        ("localhost\n", None),
        ("localhost\x00", None),
        ("::1", None),
        ("[::1", None),
        ("[::1]x", None),
        ("[localhost]", None),
        ("[:::::]", None),
        ("xn--mller-kva.example", Host("xn--mller-kva.example", 80)),
        ("m\xfcller.example", None),
        ("\u0661.0.0.1", None),
        ("a" * 400, None),
    ],
)
def test_a_host_is_a_name_or_address_and_a_port(value: str, expected: Host | None) -> None:
    assert parse_host(value, "http") == expected


def test_the_default_port_follows_from_the_scheme() -> None:
    assert parse_host("example.org", "https") == Host("example.org", 443)


def test_local_names_and_addresses_are_allowed() -> None:
    hosts = AllowedHosts()
    for name in ("localhost", "app.localhost", "127.0.0.1", "127.8.9.1", "::1", "192.0.2.1"):
        assert hosts.allows(name)
    for name in (
        "evil.example",
        "localhost.evil.example",
        "notlocalhost",
        "127.0.0.1.evil.example",
    ):
        assert not hosts.allows(name)


def test_names_are_allowed_exactly_or_with_subdomains() -> None:
    hosts = AllowedHosts(["Translate.Example.org.", "*.internal.example", "0.0.0.0", "::"])
    for name in ("translate.example.org", "a.internal.example", "a.b.internal.example"):
        assert hosts.allows(name)
    for name in ("example.org", "x.translate.example.org", "internal.example", "xinternal.example"):
        assert not hosts.allows(name)


@pytest.mark.parametrize(
    "name", ["", "*", "*.", "a.*", "*example.org", "https://a.example", "a.example:80", "a b"]
)
def test_allowed_hosts_must_be_host_names(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a host name"):
        AllowedHosts([name])


def test_a_trusted_proxy_forwards_the_clients_scheme() -> None:
    proxies = TrustedProxies(["192.0.2.1"])

    def scheme(peer: str, *values: bytes) -> str:
        headers = [(b"x-forwarded-proto", value) for value in values]
        return scheme_of(
            {"type": "http", "scheme": "http", "client": (peer, 1), "headers": headers}, proxies
        )

    assert scheme("192.0.2.1", b"https") == "https"
    assert scheme("192.0.2.1", b"http, HTTPS") == "https"
    assert scheme("192.0.2.1", b"https", b"http") == "http"
    assert scheme("192.0.2.1", b"gopher") == "http"
    assert scheme("192.0.2.1") == "http"
    assert scheme("192.0.2.7", b"https") == "http", "it is not trusted"
