"""Each request has an owner, and owners take turns at the event loop and at the database connections."""

from functools import partial
from uuid import UUID

import structlog
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.server.client_addresses import address_group, client_address
from fairlead.server.problems import route_of
from fairlead.turns.loop import LoopTurns
from fairlead.turns.owner import Owner, owner_of_task

log = structlog.get_logger(__name__)


class RequestTurns:
    """The outermost middleware: until a request is authenticated, its owner is its client's address."""

    def __init__(self, app: ASGIApp, turns: LoopTurns) -> None:
        self._app = app
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        address = address_group(client_address(HTTPConnection(scope)))
        before = owner_of_task.set(Owner(f"address {address}", is_address=True))
        try:
            await self._turns.run(self._app(scope, receive, send), partial(_report_long_step, scope))
        finally:
            owner_of_task.reset(before)


def _report_long_step(scope: Scope, seconds: float) -> None:
    """Log a request that held the event loop for long: all others waited."""
    log.warning("loop_held", route=route_of(scope), milliseconds=round(seconds * 1000))


def own_request(tenant_id: UUID | None, weight: float = 1.0) -> None:
    """From now on the tenant owns this request. Requests for all tenants (None) have a share of their own."""
    owner_of_task.set(Owner("all tenants" if tenant_id is None else f"tenant {tenant_id}", weight))
