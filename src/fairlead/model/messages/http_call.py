"""An HTTP request: its checks, and how a redirect changes it. This module sends nothing."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import msgspec
from msgspec.structs import replace

from fairlead.model.messages.network import parse_host
from fairlead.model.template.path import Flaw

# the key of the built-in definition
KEY = "http.request"
LONGEST_URL = 8000
MAX_HEADERS = 50
MAX_HEADER_BYTES = 16_384
PORTS = {"http": 80, "https": 443}

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_UNSAFE_IN_URL = re.compile(r"[\x00-\x20\x7f\\<>\"^`{|}]")
_SAFE = "/%:@!$&'()*+,;=~?[]"
# The HTTP client sets these; webhook-… is the signature.
_OURS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OURS_BY_PREFIX = ("proxy-", "webhook-")
# The only headers that a redirect to another host keeps: any other may be a credential.
_KEPT_ON_REDIRECT = frozenset({"accept", "accept-language", "content-type", "user-agent"})
_OF_A_BODY = ("content-", "webhook-")


class HttpTarget(msgspec.Struct, frozen=True):
    """The parts of a request's URL."""

    scheme: str
    host: str
    port: int
    # includes the query
    path: str

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The Host header: IPv6 in brackets, and the port unless it is the default."""
        host = bracket_ipv6(self.host)
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    def at(self, address: str) -> str:
        """The URL with an IP address instead of the host name."""
        return f"{self.scheme}://{bracket_ipv6(address)}:{self.port}{self.path}"


class Call(msgspec.Struct, frozen=True):
    """A checked request."""

    method: str
    target: HttpTarget
    headers: Mapping[str, str]
    content: bytes

    def follow_redirect(self, status: int, location: str) -> "Call":
        """The request to send next, without credentials if the host changes; a Flaw if the redirect is not allowed."""
        target = parse_target(_join_url(self.target.url, location))
        if (self.target.scheme, target.scheme) == ("https", "http"):
            raise Flaw("leads from https to http")
        call = replace(self, target=target)
        if status == 303 or (status in (301, 302) and self.method == "POST"):
            kept = {name: value for name, value in self.headers.items() if not name.startswith(_OF_A_BODY)}
            call = replace(call, method="HEAD" if self.method == "HEAD" else "GET", headers=kept, content=b"")
        if call.content and not _is_same_server(self.target, target):
            raise Flaw("leads to another server, which would receive the body")
        if target.origin != self.target.origin:
            kept = {name: value for name, value in call.headers.items() if name in _KEPT_ON_REDIRECT}
            call = replace(call, headers=kept)
        return call


def _is_same_server(one: HttpTarget, other: HttpTarget) -> bool:
    """Whether two targets are the same server; an upgrade from http to https on the default ports counts as the same."""
    is_upgrade = (one.scheme, one.port, other.scheme, other.port) == ("http", 80, "https", 443)
    return one.origin == other.origin or (is_upgrade and one.host == other.host)


def _join_url(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:  # such as an unbalanced bracket
        raise Flaw("is not a URL") from None


def bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse_target(url: str) -> HttpTarget:
    """Parse a URL; the Flaw does not repeat any of it."""
    if len(url) > LONGEST_URL:
        raise Flaw(f"has more than {LONGEST_URL} characters")
    if _UNSAFE_IN_URL.search(url):
        raise Flaw("has spaces, control characters or others that must be percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Flaw("is not a URL") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise Flaw("must begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise Flaw("must not have a user or password: use secret_headers")
    if port == 0:
        raise Flaw("must have a port of 1 to 65535")
    path = quote(parts.path or "/", safe=_SAFE)
    query = "?" + quote(parts.query, safe=_SAFE) if parts.query else ""
    return HttpTarget(parts.scheme, parse_host(parts.hostname), port or PORTS[parts.scheme], path + query)


def check_headers(*given: Mapping[str, str] | None) -> dict[str, str]:
    """The headers by lower-case name; a Flaw for one that is invalid, or that only the HTTP client may set."""
    found: dict[str, str] = {}
    for name, value in ((name, value) for some in given for name, value in (some or {}).items()):
        lower = name.lower()
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Flaw("must have names of letters, digits and -, and values of printable ASCII in one line")
        if lower in _OURS or lower.startswith(_OURS_BY_PREFIX):
            raise Flaw(f"must not have {lower}")
        if lower in found:
            raise Flaw(f"must not have {lower} twice")
        found[lower] = value.strip()
    if len(found) > MAX_HEADERS or sum(map(len, (*found, *found.values()))) > MAX_HEADER_BYTES:
        raise Flaw(f"must have at most {MAX_HEADERS} entries, and {MAX_HEADER_BYTES} bytes together")
    return found


def encode_body(body: Any) -> tuple[bytes, str | None]:
    """The encoded body and its content type: text as it is, null as empty, anything else as JSON."""
    if body is None:
        return b"", None
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return msgspec.json.encode(body), "application/json"
