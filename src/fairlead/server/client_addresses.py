"""IP addresses of clients."""

from ipaddress import ip_address, ip_network

from starlette.requests import HTTPConnection


def client_address(connection: HTTPConnection) -> str | None:
    """The client's IP address, or None. Behind a proxy uvicorn takes it from the headers (--forwarded-allow-ips)."""
    return _parse_address(connection.client.host) if connection.client else None


def _parse_address(text: str) -> str | None:
    """The IP address without port, zone and brackets; None for other text, such as the `unknown` that some proxies send."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:  # an IPv6 address has at least two
        text = text.partition(":")[0]
    try:
        return str(ip_address(text.partition("%")[0]))
    except ValueError:
        return None


def address_group(ip: str | None) -> str | None:
    """The key that limits count by: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        parsed = ip_address(ip or "")
    except ValueError:
        return ip
    return ip if parsed.version == 4 else str(ip_network((parsed, 64), strict=False))
