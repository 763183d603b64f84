"""The addresses that a tenant's request may go to: public ones, and those that the settings allow."""

import re
from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

import msgspec

from fairlead.model.template.path import Flaw

Address = IPv4Address | IPv6Address

_HOST = re.compile(
    r"(?=.{1,253}\.?\Z)[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*\.?"
)
_NUMERIC_END = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?")

# Listed here, since the results of `is_global` differ between Python versions.
_NOT_PUBLIC_4 = [
    IPv4Network(one)
    for one in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's host services
        "169.254.0.0/16",  # link-local: cloud metadata
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
]
_GLOBAL_6 = IPv6Network("2000::/3")
# Not public within it: IETF protocols (Teredo), documentation, and 6to4, which can reach any IPv4 address.
_NOT_PUBLIC_6 = [IPv6Network(one) for one in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Whether an address is public, also when it is an IPv4 address in IPv6 form."""
    address = _unmap_ipv4(address)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in _GLOBAL_6 and not any(address in network for network in _NOT_PUBLIC_6)


def _unmap_ipv4(address: Address) -> Address:
    """The IPv4 address in an IPv4-mapped IPv6 address; any other address as it is."""
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


class Allowed(msgspec.Struct, frozen=True):
    """Networks and host names that requests may reach although they are not public."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, entries: Iterable[str]) -> "Allowed":
        """Read networks such as 10.1.0.0/16, addresses and host names; a Flaw if an entry is none of these."""
        networks, hosts = [], set()
        for entry in entries:
            try:
                networks.append(ip_network(entry))
            except ValueError:
                hosts.add(_read_host_name(entry))
        return cls(tuple(networks), frozenset(hosts))

    def permits(self, host: str, address: Address) -> bool:
        """Whether a request for this host may go to this address of it."""
        if is_public(address) or host.removesuffix(".") in self.hosts:
            return True
        plain = _unmap_ipv4(address)
        return any(plain in network for network in self.networks if network.version == plain.version)


def parse_host(text: str) -> str:
    """Normalize a host: a lower-case name, or an address in its canonical form; or a Flaw."""
    text = text.lower()
    try:
        return str(ip_address(text))
    except ValueError:
        pass
    # resolvers read a name that ends in a number as an address, and differ in how
    if _NUMERIC_END.fullmatch(text):
        raise Flaw("must have its address written as four decimal numbers, or as IPv6 in brackets")
    if not _HOST.fullmatch(text):
        raise Flaw("must have a host named with letters, digits, - and dots; one in other letters as xn--…")
    return text


def _read_host_name(entry: str) -> str:
    text = entry.lower().removesuffix(".")
    if not _HOST.fullmatch(text) or _NUMERIC_END.fullmatch(text):
        raise Flaw("must be a network such as 10.1.0.0/16, an address, or a name of a host")
    return text
