from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from headwise.errors import ConfigError
from headwise.serving.clients import TrustedProxies, client_group


def test_without_trusted_proxies_the_header_is_ignored() -> None:
    assert TrustedProxies().client("192.0.2.1", ["198.51.100.7"]) == "192.0.2.1"


def test_a_trusted_proxy_names_the_client() -> None:
    proxies = TrustedProxies(["10.0.0.0/8", "::1"])
    assert proxies.client("10.0.0.1", ["198.51.100.7"]) == "198.51.100.7"
    assert proxies.client("::1", ["198.51.100.7, 10.3.0.1"]) == "198.51.100.7"
    assert proxies.client("10.0.0.1", ["198.51.100.7", "10.3.0.1"]) == "198.51.100.7"
    assert proxies.client("::ffff:10.0.0.1", ["198.51.100.7"]) == "198.51.100.7"


def test_addresses_that_a_client_sends_are_not_trusted() -> None:
    proxies = TrustedProxies(["10.0.0.1"])
    assert proxies.client("10.0.0.1", ["203.0.113.5, 198.51.100.7"]) == "198.51.100.7"
    assert proxies.client("10.0.0.1", ["not an address"]) == "10.0.0.1"
    assert proxies.client("10.0.0.1", []) == "10.0.0.1"
    assert proxies.client("192.0.2.1", ["203.0.113.5"]) == "192.0.2.1"


def test_only_the_last_addresses_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse(address: str) -> IPv4Address | IPv6Address:
        parsed.append(address)
        return ip_address(address)

    monkeypatch.setattr("headwise.serving.clients.ip_address", parse)
    proxies = TrustedProxies(["10.0.0.0/8"])
    assert proxies.client("10.0.0.1", ["192.0.2.7", "10.0.0.2," * 10_000 + "10.0.0.2"]) == (
        "10.0.0.2"
    )
    assert len(parsed) < 100
    assert proxies.client("10.0.0.1", ["192.0.2.7", *["10.0.0.2"] * 19]) == "192.0.2.7"


def test_ipv6_clients_are_counted_by_network() -> None:
    assert client_group("2001:db8::1") == client_group("2001:db8::ffff:2")
    assert client_group("2001:db8::1") != client_group("2001:db8:0:1::1")
    assert client_group("::ffff:192.0.2.1") == "192.0.2.1"
    assert client_group("192.0.2.1") == "192.0.2.1"
    assert client_group("") == ""


def test_a_proxy_must_be_an_address_or_network() -> None:
    with pytest.raises(ConfigError, match="an address or a network"):
        TrustedProxies(["example.org"])
