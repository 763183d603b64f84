"""Each request has an owner, and owners take turns at the database connections."""

from uuid import UUID

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.db.turns import owner_of_task
from fairlead.server.client_addresses import address_group, client_address


class RequestOwner:
    """Middleware before all routes: until a request is authenticated, its owner is its client's address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        before = owner_of_task.set(f"address {address_group(client_address(HTTPConnection(scope)))}")
        try:
            await self._app(scope, receive, send)
        finally:
            owner_of_task.reset(before)


def own_request(tenant_id: UUID | None) -> None:
    """From now on the tenant owns this request. Requests for all tenants (None) have a share of their own."""
    owner_of_task.set("all tenants" if tenant_id is None else f"tenant {tenant_id}")
