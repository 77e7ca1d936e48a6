"""The limits on open connections."""

from headwise.serving.client_limits import OpenConnections
from headwise.serving.clients import TrustedProxies


def connections(
    *, most: int = 100, most_per_client: int = 2, proxies: tuple[str, ...] = ()
) -> OpenConnections:
    return OpenConnections(
        most=most, most_per_client=most_per_client, proxies=TrustedProxies(proxies)
    )


def test_connections_are_limited_per_client() -> None:
    counted = connections()
    assert counted.add("192.0.2.1") is None
    assert counted.add("192.0.2.1") is None
    refusal = counted.add("192.0.2.1")
    assert refusal is not None
    assert refusal.response.startswith(b"HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\n")
    assert counted.add("192.0.2.2") is None
    counted.remove("192.0.2.1")
    counted.remove("192.0.2.1")
    assert counted.add("192.0.2.1") is None
    for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        counted.remove(address)
    assert counted.num_clients == 0


def test_addresses_of_one_ipv6_network_are_one_client() -> None:
    counted = connections()
    refusals = [counted.add(f"2001:db8::{number}") for number in range(3)]
    assert [refusal is None for refusal in refusals] == [True, True, False]


def test_a_trusted_proxy_connects_for_many_clients() -> None:
    counted = connections(most=4, proxies=("192.0.2.1",))
    assert [counted.add("192.0.2.1") for _ in range(4)] == [None] * 4
    refusal = counted.add("192.0.2.1")
    assert refusal is not None
    assert refusal.response.startswith(b"HTTP/1.1 503")
