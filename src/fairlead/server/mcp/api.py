"""Requests of tools to the REST API: in this process, or to a server's URL.

So each tool has the API's authentication, roles, row-level security, rate limits, audit log and masked secrets.
"""

from collections.abc import Mapping
from typing import Any, Self

import httpx2
import msgspec
from starlette.types import ASGIApp

from fairlead.errors import InvalidInput, ServerRefused, ServerUnreachable, Unauthenticated
from fairlead.model.request import unknown_tenant
from fairlead.runtime.server_client import KEEP_ALIVE_SECONDS, PREFIX, TEMPORARY_STATUSES, api_url
from fairlead.server.auth import MISSING_CELLS

SECONDS = 30.0
# The host of requests that stay in this process; the API does not look at it.
IN_PROCESS = "http://fairlead.invalid"
TENANT_HEADER = "X-Tenant"


class ApiRefusal(Exception):
    """An error of the API: its status, and its code, detail and faults as the API sent them."""

    def __init__(self, status: int, code: str, detail: str, errors: list[dict[str, str]]) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors

    def as_dict(self) -> dict[str, Any]:
        """The error as a tool returns it."""
        return {"code": self.code, "detail": self.detail, "errors": self.errors}


class RestApi:
    """The REST API of an application in this process, or of the server at a URL."""

    def __init__(self, where: ASGIApp | str) -> None:
        self._app = None if isinstance(where, str) else where
        self._at = api_url(where) if isinstance(where, str) else IN_PROCESS + PREFIX
        self._remote: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        if self._app is None:
            limits = httpx2.Limits(keepalive_expiry=KEEP_ALIVE_SECONDS)
            self._remote = httpx2.AsyncClient(timeout=SECONDS, limits=limits)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._remote is not None:
            await self._remote.aclose()

    async def send(
        self, method: str, path: str, *, client: tuple[str, int] | None, **request: Any
    ) -> httpx2.Response:
        """Send a request; `client` is the address that the API sees if it is in this process."""
        try:
            if self._remote is not None:
                return await self._remote.request(method, self._at + path, **request)
            if self._app is None:
                raise RuntimeError("The API is not open.")
            transport = httpx2.ASGITransport(
                app=self._app, client=client or ("127.0.0.1", 0), raise_app_exceptions=False
            )
            async with httpx2.AsyncClient(transport=transport, trust_env=False, timeout=None) as local:
                return await local.request(method, self._at + path, **request)
        except httpx2.InvalidURL as error:
            raise InvalidInput(f"{self._at} is not a valid URL: {error}. Check --server.") from error
        # anyio raises AttributeError if the server resets a connection while it is being opened
        except (httpx2.RequestError, OSError, AttributeError) as error:
            why = str(error) or type(error).__name__
            raise ServerUnreachable(
                f"{self._at} does not answer: {why}. Check --server, or try again."
            ) from error


class ApiCaller:
    """Calls the API with one token, for one request of an MCP client."""

    def __init__(
        self,
        api: RestApi,
        token: str,
        *,
        client: tuple[str, int] | None = None,
        tenant: str | None = None,
    ) -> None:
        self._api = api
        self._token = token
        self._client = client
        self._tenant = tenant
        # the cells that the API could not reach
        self.missing_cells: list[str] = []

    def choose_tenant(self, tenant: str | None) -> "ApiCaller":
        """The same caller for a tenant, which a super admin names."""
        return ApiCaller(self._api, self._token, client=self._client, tenant=tenant)

    async def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """GET; the decoded answer. Parameters that are None are left out."""
        given = {name: value for name, value in (params or {}).items() if value is not None}
        return await self._request("GET", path, params=given)

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """POST the fields of the body that are not None; the decoded answer."""
        return await self._request("POST", path, content=_encode(body or {}))

    async def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """PATCH; the decoded answer."""
        return await self._request("PATCH", path, content=_encode(body))

    async def _request(self, method: str, path: str, **request: Any) -> Any:
        if not _is_header_text(self._token):
            raise Unauthenticated(
                "This token is unknown, expired or revoked. Create another with: fairlead tokens create"
            )
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if self._tenant is not None:
            if not _is_header_text(self._tenant):
                raise unknown_tenant(self._tenant)
            headers[TENANT_HEADER] = self._tenant
        answer = await self._api.send(method, path, client=self._client, headers=headers, **request)
        if not answer.is_success:
            raise _read_refusal(answer)
        self.missing_cells += [name for name in answer.headers.get(MISSING_CELLS, "").split(", ") if name]
        try:
            return msgspec.json.decode(answer.content)
        except msgspec.DecodeError as error:  # a proxy's page, for example
            raise _not_fairlead(answer) from error


def _encode(body: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({name: value for name, value in body.items() if value is not None})


def _is_header_text(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _read_refusal(answer: httpx2.Response) -> Exception:
    """The error that the API answered with; ServerRefused if another server answered."""
    try:
        told = answer.json()
        errors = [{"path": one["path"], "message": one["message"]} for one in told.get("errors", ())]
        refusal = ApiRefusal(answer.status_code, told["code"], told["detail"], errors)
    except (ValueError, KeyError, TypeError, AttributeError):
        if answer.status_code in TEMPORARY_STATUSES:
            return ServerUnreachable(f"The server answered {answer.status_code}. Try again.")
        return _not_fairlead(answer)
    return _name_arguments(refusal)


def _name_arguments(refusal: ApiRefusal) -> ApiRefusal:
    """The error with the names of a tool's arguments in place of the API's headers."""
    if any(one["path"] == TENANT_HEADER for one in refusal.errors):
        refusal.detail = "Name the tenant that this is for, with the argument tenant: its slug or id."
        refusal.errors = [{"path": "tenant", "message": "is required"}]
    return refusal


def _not_fairlead(answer: httpx2.Response) -> ServerRefused:
    return ServerRefused(
        f"The server answered {answer.status_code} without a Fairlead answer: check that --server is a Fairlead server's URL."
    )
