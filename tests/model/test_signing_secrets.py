"""A signing secret signs for the tenants and the urls that it is bound to, and for no others."""

from typing import Any

import pytest

from fairlead.errors import SettingInvalid
from fairlead.model.messages.http_call import parse_target
from fairlead.model.secrets.signing import read_signing_secrets
from tests.tables import each_case

URL = "https://hooks.example/orders"


def may(secret: Any, tenant: str = "acme", url: str = URL, owner: str | None = None) -> bool:
    """Whether a tenant may sign a request with a secret, of [http.secrets] or of a tenant's own."""
    said = {"secrets": {"s": secret}}
    found = read_signing_secrets({"http": said if owner is None else {"tenants": {owner: said}}})
    return found[owner, "s"].why_not(tenant, parse_target(url)) is None


def test_a_secret_that_is_bound_to_nothing_signs_for_no_tenant() -> None:
    assert not may("env:A")
    assert not may({"source": "env:A"})
    assert may("env:A", tenant="global")


def test_a_secret_of_a_tenant_signs_for_it() -> None:
    assert may("env:A", owner="acme")
    assert may({"source": "env:A", "urls": [URL]}, owner="acme")
    assert not may({"source": "env:A", "urls": [URL]}, owner="acme", url="https://other.example/")


def test_a_secret_that_is_bound_to_tenants_signs_for_these() -> None:
    bound = {"source": "env:A", "tenants": ["acme", "umbrella"]}
    assert may(bound)
    assert not may(bound, tenant="initech")
    assert not may(bound, tenant="global")


@each_case(
    ("url", "fits"),
    [
        (URL, True),
        (URL + "/7", True),
        (URL + "?n=1", True),
        ("https://HOOKS.example:443/orders/", True),
        ("https://hooks.example/orders-of-others", False),
        ("https://hooks.example/", False),
        ("https://hooks.example/orders/../admin", False),
        ("https://hooks.example/orders/%2e%2e/admin", False),
        ("http://hooks.example/orders", False),
        ("https://hooks.example:8443/orders", False),
        ("https://hooks.example.evil.example/orders", False),
    ],
)
def test_a_secret_that_is_bound_to_urls_signs_what_goes_there(url: str, fits: bool) -> None:  # noqa: FBT001
    assert may({"source": "env:A", "urls": [URL]}, url=url) is fits
    assert may({"source": "env:A", "urls": ["https://hooks.example/"]}) is True


@each_case(
    "secret",
    [
        {"tenants": ["acme"]},
        {"source": "env:A", "tenants": "acme"},
        {"source": "env:A", "urls": ["hooks.example"]},
        {"source": "env:A", "url": URL},
        {"source": "whsec_AAAA"},
    ],
)
def test_what_cannot_be_a_secret_is_refused_by_its_name(secret: Any) -> None:
    with pytest.raises(SettingInvalid, match=r"http\.secrets\.s") as refused:
        may(secret)
    assert "whsec" not in str(refused.value)


def test_a_secret_of_a_tenant_is_bound_to_no_others() -> None:
    with pytest.raises(SettingInvalid, match="leave tenants out"):
        may({"source": "env:A", "tenants": ["umbrella"]}, owner="acme")
