from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.messages.network import Address, Allowed, is_public, parse_host
from fairlead.model.template.path import Flaw
from tests.tables import each_case


@each_case("text", ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "64:ff9b::101:101", "::ffff:8.8.8.8"])
def test_an_address_of_the_open_network_is_public(text: str) -> None:
    assert is_public(ip_address(text))


@given(st.ip_addresses(v=4))
def test_nothing_that_python_calls_private_is_public_in_any_of_its_forms(address: IPv4Address) -> None:
    forms: list[Address] = [address, IPv6Address(f"::ffff:{address}"), IPv6Address(f"64:ff9b::{address}")]
    private = not address.is_global or address.is_multicast or address.is_reserved

    assert not (private and any(is_public(one) for one in forms))
    assert len({is_public(one) for one in forms}) == 1


@given(st.ip_addresses(v=6))
def test_nothing_that_python_calls_private_is_public_in_ipv6(address: IPv6Address) -> None:
    assert address.is_global or not is_public(address)


def test_what_is_allowed_is_allowed_in_every_form_and_nothing_else_is() -> None:
    allowed = Allowed.of(["10.1.0.0/16", "Hooks.Internal", "fd00::1"])

    assert allowed.permits("a", ip_address("10.1.2.3"))
    assert allowed.permits("a", ip_address("::ffff:10.1.2.3"))
    assert allowed.permits("a", ip_address("fd00::1"))
    assert allowed.permits("hooks.internal", ip_address("192.168.0.1"))
    assert allowed.permits("hooks.internal.", ip_address("192.168.0.1"))
    assert not allowed.permits("a", ip_address("10.2.0.1"))
    assert not allowed.permits("a.hooks.internal", ip_address("192.168.0.1"))
    assert not allowed.permits("a", ip_address("fd00::2"))


@each_case("entry", ["", "10.0.0.1/8", "300.1.1.1", "http://x", "a b", "*.internal", "-x"])
def test_what_is_neither_a_network_nor_a_host_is_refused(entry: str) -> None:
    with pytest.raises(Flaw):
        Allowed.of([entry])


@each_case("text", ["2130706433", "0x7f000001", "127.1", "0177.0.0.1", "1.2.3.4.5", "a.0x1", "1.2.3.4."])
def test_an_address_in_an_unusual_spelling_is_no_host(text: str) -> None:
    with pytest.raises(Flaw):
        parse_host(text)


def test_a_host_has_one_form() -> None:
    assert [parse_host(one) for one in ("Example.COM", "0:0:0:0:0:0:0:1", "a_b.c.")] == [
        "example.com",
        "::1",
        "a_b.c.",
    ]
