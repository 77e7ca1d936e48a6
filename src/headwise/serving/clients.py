"""Which client a request comes from: the address that limits and logs go by."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from headwise.errors import ConfigError

_MOST_HOPS = 20
"""Proxies between a client and this server: a header may have thousands of addresses."""
_LONGEST_ADDRESS = 100
"""Longer strings are not parsed, nor kept in a cache: a header may have 16 kB."""


class TrustedProxies:
    """Reverse proxies whose X-Forwarded-For header is believed."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        """Take addresses (10.0.0.1) or networks (10.0.0.0/8)."""
        try:
            self._networks = [ip_network(network, strict=False) for network in networks]
        except ValueError as error:
            raise ConfigError(f"a trusted proxy is an address or a network: {error}") from error

    def trusts(self, address: str) -> bool:
        """Return whether an address is a trusted proxy's."""
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def client(self, peer: str, forwarded: Iterable[str]) -> str:
        """Return the client's address: the peer's, or what trusted proxies say it is.

        `forwarded` are the values of all X-Forwarded-For headers, in order. Each proxy appends the
        address it was called from, so the last one that is not itself a trusted proxy is the
        client; what stands before it was sent by the client and proves nothing.
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
    """Return what is counted as one client: an IPv4 address, or an IPv6 network of 64 bits.

    A single IPv6 subscriber has at least that many addresses to choose from.
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
