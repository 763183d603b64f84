"""Allow-lists of addresses: the networks from which a token, or the users and tokens of a tenant, may be used."""

import contextlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

from fairlead.errors import AddressNotAllowed, Fault

MOST_NETWORKS = 100
LONGEST_NETWORK = 50
_MAPPED = IPv6Network("::ffff:0:0/96")

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class AddressList(msgspec.Struct, frozen=True):
    """The networks that a token or a tenant (`owner`) may be used from, as CIDR."""

    owner: str
    networks: tuple[str, ...]

    def admits(self, ip: str | None) -> bool:
        """Whether an address is in one of the networks. An address that is not known is in none."""
        found = _parse_address(ip)
        return found is not None and any(
            found.version == one.version and found in one for one in _parse_networks(self.networks)
        )


def build_lists(
    token: Sequence[str] | None = None, tenant: Sequence[str] | None = None
) -> tuple[AddressList, ...]:
    """The lists that bind a principal: each of them must admit its address."""
    given = (("token", token), ("tenant", tenant))
    return tuple(AddressList(owner, tuple(networks)) for owner, networks in given if networks)


def require_allowed(lists: Iterable[AddressList], ip: str | None) -> None:
    """Raise AddressNotAllowed unless every list admits the address."""
    for one in lists:
        if not one.admits(ip):
            seen = "Your address is not known to the server" if ip is None else f"Your address {ip}"
            tells = "and this" if ip is None else "is not in the allow-list of this"
            has_list = " has an allow-list of addresses" if ip is None else ""
            whom = "an admin of the tenant" if one.owner == "tenant" else "the token's creator"
            advice = "add it" if one.owner == "tenant" else "create a token that allows it"
            raise AddressNotAllowed(
                f"{seen} {tells} {one.owner}{has_list}. Use an allowed network, or ask {whom} to {advice}. If the address "
                "is that of a proxy, name the proxy in FORWARDED_ALLOW_IPS of the server.",
                [Fault("address", f"{ip or 'unknown'} is not allowed")],
            )


def read_networks(
    given: Sequence[str] | None, path: str = "addresses"
) -> tuple[tuple[str, ...] | None, list[Fault]]:
    """The networks in their usual form, each once; None for no list. And what is wrong with them."""
    if not given:
        return None, []
    if len(given) > MOST_NETWORKS:
        return None, [Fault(path, f"must be at most {MOST_NETWORKS} networks")]
    found: dict[str, None] = {}
    faults = []
    for text in given:
        network = _read_network(text)
        if isinstance(network, str):
            faults.append(Fault(path, network))
        else:
            found[str(network)] = None
    return tuple(found), faults


def is_within(inner: Sequence[str], outer: Sequence[str]) -> bool:
    """Whether each network of `inner` is part of one of `outer`."""
    return all(
        any(
            (isinstance(one, IPv4Network) and isinstance(other, IPv4Network) and one.subnet_of(other))
            or (isinstance(one, IPv6Network) and isinstance(other, IPv6Network) and one.subnet_of(other))
            for other in _parse_networks(tuple(outer))
        )
        for one in _parse_networks(tuple(inner))
    )


def _read_network(text: str) -> Network | str:
    """A network, or what is wrong with the text."""
    text = text.strip()
    shown = repr(text[:LONGEST_NETWORK])
    if len(text) > LONGEST_NETWORK or "%" in text:
        return f"{shown} is not an address or network such as 10.0.0.0/8 or 2001:db8::/32 (without a zone)"
    with contextlib.suppress(ValueError):  # said below
        return _unmap_network(ip_network(text))
    try:
        return f"{shown} names a host in a network: write {ip_network(text, strict=False)}"
    except ValueError:
        return f"{shown} is not an address or network such as 10.0.0.0/8 or 2001:db8::/32"


def _unmap_network(network: Network) -> Network:
    """An IPv4-mapped IPv6 network as the IPv4 network that it means."""
    if isinstance(network, IPv4Network) or not network.subnet_of(_MAPPED):
        return network
    return IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - 96))


def _parse_address(ip: str | None) -> Address | None:
    try:
        found = ip_address((ip or "").partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


@lru_cache(maxsize=10_000)
def _parse_networks(networks: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ip_network(one) for one in networks)
