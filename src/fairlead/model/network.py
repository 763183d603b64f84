"""Which addresses a request of a tenant may go to: public ones, and what the settings allow besides."""

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

from fairlead.model.path import Flaw

Address = IPv4Address | IPv6Address

_HOST = re.compile(
    r"(?=.{1,253}\.?\Z)[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*\.?"
)
_NUMERIC_END = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?")

# Said here rather than left to `is_global`, whose answers differ from one Python to the next.
_NOT_PUBLIC_4 = [
    IPv4Network(one)
    for one in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # where a cloud's machines find their host
        "169.254.0.0/16",  # and their metadata
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
# Within it: protocols of their own (Teredo too), documentation, and 6to4, which leads to any IPv4 address.
_NOT_PUBLIC_6 = [IPv6Network(one) for one in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Whether an address is somebody's on the open network, however it is written."""
    address = _plain(address)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in _GLOBAL_6 and not any(address in network for network in _NOT_PUBLIC_6)


def _plain(address: Address) -> Address:
    """An IPv4 address that is written as an IPv6 one is that IPv4 address."""
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


class Allowed(msgspec.Struct, frozen=True):
    """What may be reached although it is not public: networks, and hosts by their names."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, entries: Iterable[str]) -> "Allowed":
        """Networks such as 10.1.0.0/16, addresses and names of hosts, or a Flaw that says which is none of them."""
        networks, hosts = [], set()
        for entry in entries:
            try:
                networks.append(ip_network(entry))
            except ValueError:
                hosts.add(_name(entry))
        return cls(tuple(networks), frozenset(hosts))

    def permits(self, host: str, address: Address) -> bool:
        """Whether a request for this host may go to this address of it."""
        if is_public(address) or host.removesuffix(".") in self.hosts:
            return True
        plain = _plain(address)
        return any(plain in network for network in self.networks if network.version == plain.version)


def host_of(text: str) -> str:
    """A host as it is resolved and told to the server: a name, or an address in its one usual form; or a Flaw."""
    text = text.lower()
    try:
        return str(ip_address(text))
    except ValueError:
        pass
    # what ends in a number is read as an address by some, in ways that differ
    if _NUMERIC_END.fullmatch(text):
        raise Flaw("must have its address written as four decimal numbers, or as IPv6 in brackets")
    if not _HOST.fullmatch(text):
        raise Flaw("must have a host named with letters, digits, - and dots; one in other letters as xn--…")
    return text


def _name(entry: str) -> str:
    text = entry.lower().removesuffix(".")
    if not _HOST.fullmatch(text) or _NUMERIC_END.fullmatch(text):
        raise Flaw("must be a network such as 10.1.0.0/16, an address, or a name of a host")
    return text
