"""One HTTP exchange, without proxies, redirects or cookies, and with a limit for the answer's size."""

import ssl
from functools import cache
from typing import NamedTuple

import httpx2

CONNECT_SECONDS = 10.0
USER_AGENT = "fairlead"


class HttpAnswer(NamedTuple):
    status: int
    headers: httpx2.Headers
    body: bytes
    # whether the body was longer than the limit
    truncated: bool


class HostUnreachable(Exception):
    """No connection could be opened; nothing was sent."""


class ExchangeBroken(Exception):
    """The connection broke; the server may or may not have processed the request."""


async def exchange(
    method: str,
    url: str,
    *,
    headers: dict[str, str],
    content: bytes,
    max_bytes: int,
    server_name: str | None = None,
    trust: ssl.SSLContext | None = None,
) -> HttpAnswer:
    """Send a request and read its answer. `server_name` is the name for TLS, where the URL has an IP address.

    Does not use a client, which would add headers and log the URL. The caller sets the timeout.
    """
    extensions: dict[str, object] = {"timeout": {"connect": CONNECT_SECONDS}}
    if server_name is not None:
        extensions["sni_hostname"] = server_name
    sent = {"user-agent": USER_AGENT, "accept": "*/*", "accept-encoding": "identity", **headers}
    request = httpx2.Request(method, url, headers=sent, content=content or None, extensions=extensions)
    try:
        async with httpx2.AsyncHTTPTransport(verify=trust or _load_trusted()) as transport:
            response = await transport.handle_async_request(request)
            try:
                return await _read_answer(response, max_bytes)
            finally:
                await response.aclose()
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise HostUnreachable(_describe_error(error)) from None
    except httpx2.RequestError as error:
        raise ExchangeBroken(_describe_error(error)) from None


async def _read_answer(response: httpx2.Response, max_bytes: int) -> HttpAnswer:
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > max_bytes:
            return HttpAnswer(response.status_code, response.headers, bytes(body[:max_bytes]), truncated=True)
    return HttpAnswer(response.status_code, response.headers, bytes(body), truncated=False)


def _describe_error(error: httpx2.RequestError) -> str:
    return str(error) or type(error).__name__


@cache
def _load_trusted() -> ssl.SSLContext:
    """The trusted certificates, cached: loading them costs more than a request."""
    return httpx2.create_ssl_context()
