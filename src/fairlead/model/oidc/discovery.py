"""The discovery document of an identity provider: the parts that we use, and what is wrong with it. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.model.oidc.settings import OidcProvider, is_safe_url

WELL_KNOWN = "/.well-known/openid-configuration"
_REQUIRED = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_END_SESSION = "end_session_endpoint"


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a discovery document that we use."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str | None
    posts_secret: bool
    # RFC 9207: the answer to the browser names the issuer
    names_issuer: bool


class InvalidDiscovery(Exception):
    """What is wrong with a discovery document."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class OtherIssuer(InvalidDiscovery):
    """The document is of another issuer, which it names."""

    def __init__(self, issuer: str) -> None:
        super().__init__("its discovery document is of another issuer")
        self.issuer = issuer


def discovery_url(provider: OidcProvider) -> str:
    """Where the document is."""
    return provider.issuer.rstrip("/") + WELL_KNOWN


def read_discovery(provider: OidcProvider, document: Mapping[str, Any]) -> Discovery:
    """The endpoints of a provider; InvalidDiscovery says what is wrong."""
    if document.get("issuer") != provider.issuer:
        raise OtherIssuer(str(document.get("issuer"))[:200])
    for name in (*_REQUIRED, _END_SESSION):
        is_there = name != _END_SESSION or document.get(name) is not None
        if is_there and not _may_use(provider, document.get(name)):
            raise InvalidDiscovery(f"its {name} is not a URL that begins with https://")
    methods = document.get("token_endpoint_auth_methods_supported")
    listed = methods if isinstance(methods, list) else ["client_secret_basic"]
    return Discovery(
        authorization_endpoint=document["authorization_endpoint"],
        token_endpoint=document["token_endpoint"],
        jwks_uri=document["jwks_uri"],
        end_session_endpoint=document.get(_END_SESSION),
        posts_secret="client_secret_post" in listed and "client_secret_basic" not in listed,
        names_issuer=document.get("authorization_response_iss_parameter_supported") is True,
    )


def list_texts(document: Mapping[str, Any], name: str) -> list[str] | None:
    """A list of a discovery document, such as its algorithms; None if it does not say."""
    found = document.get(name)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else None


def _may_use(provider: OidcProvider, url: object) -> bool:
    """Whether an endpoint is safe: a provider elsewhere must not send us to services of this machine without TLS."""
    is_local = provider.issuer.startswith("http://")
    return is_safe_url(url) and (is_local or str(url).startswith("https://"))
