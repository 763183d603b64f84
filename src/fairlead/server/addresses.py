"""Where requests come from."""

from ipaddress import ip_address, ip_network

from starlette.requests import HTTPConnection


def address(connection: HTTPConnection) -> str | None:
    """Where a request came from, if that is known. Behind a proxy the server is told (uvicorn's --forwarded-allow-ips)."""
    return _address_in(connection.client.host) if connection.client else None


def _address_in(text: str) -> str | None:
    """The address that a proxy wrote: with a port, a zone, or brackets. Some say `unknown`, which no column could hold."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:  # in one of the newer kind there are more
        text = text.partition(":")[0]
    try:
        return str(ip_address(text.partition("%")[0]))
    except ValueError:
        return None


def place(ip: str | None) -> str | None:
    """Whose address it is: of the newer kind everybody has more than could ever be counted, in one network."""
    try:
        parsed = ip_address(ip or "")
    except ValueError:
        return ip
    return ip if parsed.version == 4 else str(ip_network((parsed, 64), strict=False))
