"""The MCP server over HTTP (streamable HTTP, without sessions): each request has its own token."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any, cast

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.errors import FairleadError, Fault, InvalidInput, MethodNotAllowed, NotFound, Unauthenticated
from fairlead.server.auth import read_single_header
from fairlead.server.mcp.api import ApiCaller, ApiRefusal, RestApi
from fairlead.server.mcp.protocol import Context, create_mcp_server
from fairlead.server.mcp.tools import ToolBox
from fairlead.server.problems import MEDIA_TYPE, problem_response

PATH = "/mcp"
# Scope key: the caller that was authenticated.
CALLER = "fairlead.mcp_caller"
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def find_names(host: str, allowed: Sequence[str]) -> list[str]:
    """The host names under which clients may reach a server that listens on `host`: others could be a DNS rebinding attack."""
    if _is_loopback(host):
        return [*LOOPBACK_NAMES, *allowed]
    if not allowed:
        raise InvalidInput(
            f"--host {host} can be reached from other machines: name the host by which clients reach it, such as "
            "--allowed-host mcp.example.com.",
            [Fault("allowed-host", "is required")],
        )
    return list(allowed)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@asynccontextmanager
async def mcp_application(
    api: RestApi, toolbox: ToolBox, *, names: Sequence[str], origins: Sequence[str], most_bytes: int
) -> AsyncIterator[ASGIApp]:
    """The ASGI application at /mcp, for as long as it is served."""
    hosts = [one for name in names for one in (name, f"{name}:*")]
    pages = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    manager = StreamableHTTPSessionManager(
        create_mcp_server(toolbox, _find_caller),
        # no sessions: a request's token is its only identity, and any server can answer it
        stateless=True,
        json_response=True,
        security_settings=TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[*pages, *origins]),
        max_request_body_size=most_bytes,
    )
    async with manager.run():
        yield TokenGuard(manager.handle_request, api)


def _find_caller(context: Context) -> ApiCaller:
    request: Request = cast("Any", context.request)
    caller: ApiCaller = request.scope[CALLER]
    return caller


class TokenGuard:
    """Authenticates each request by its bearer token, as the API does, before the SDK reads it."""

    def __init__(self, app: ASGIApp, api: RestApi) -> None:
        self._app = app
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            caller = await self._authenticate(Request(scope))
        except FairleadError as error:
            await problem_response(error, _allow(error))(scope, receive, send)
            return
        except ApiRefusal as refusal:
            await _relay(refusal)(scope, receive, send)
            return
        await self._app({**scope, CALLER: caller}, receive, send)

    async def _authenticate(self, request: Request) -> ApiCaller:
        if request.url.path.rstrip("/") != PATH:
            raise NotFound(f"There is nothing at this address. MCP is at {PATH}.")
        if request.method != "POST":  # without sessions there is no stream to open and none to end
            raise MethodNotAllowed(f"Send MCP requests with POST to {PATH}.")
        scheme, _, token = (read_single_header(request, "authorization") or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthenticated("Send a token: Authorization: Bearer <token>.")
        client = request.client
        caller = ApiCaller(
            self._api, token.strip(), client=None if client is None else (client.host, client.port)
        )
        await caller.get("/me")
        return caller


def _allow(error: FairleadError) -> dict[str, str] | None:
    return {"Allow": "POST"} if isinstance(error, MethodNotAllowed) else None


def _relay(refusal: ApiRefusal) -> JSONResponse:
    """The API's refusal of a token as a response."""
    headers = {"Cache-Control": "no-store"}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = {"status": refusal.status, **refusal.as_dict()}
    return JSONResponse(body, status_code=refusal.status, headers=headers, media_type=MEDIA_TYPE)
