"""Live updates: tickets, and the WebSocket that they open."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import structlog
from fastapi import APIRouter, Depends, Request, WebSocket

from fairlead.actions import access, live
from fairlead.db.database_errors import translate_error
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.errors import (
    AddressNotAllowed,
    CrossSite,
    FairleadError,
    Fault,
    InvalidInput,
    TooManyRequests,
    Unauthenticated,
)
from fairlead.model.access import Permission, Principal, missing_permission_error
from fairlead.model.address_list import AddressList, require_allowed
from fairlead.model.secrets.generated import generate_secret, hash_secret
from fairlead.server.auth import Caller, Gatekeeper, GuardedRoute, Requires, is_same_site, session_secret
from fairlead.server.client_addresses import client_address
from fairlead.server.concurrency_limits import ConcurrencyLimit
from fairlead.server.handover import find_handover, note_refusal
from fairlead.server.live_sockets import MOST_SOCKETS, LiveFeeds, SocketCredential
from fairlead.server.problems import PREFIX, problem_response
from fairlead.server.request_turns import own_request
from fairlead.server.views import View

log = structlog.get_logger(__name__)

TICKET_SECONDS = 30
PARAMETERS = ("ticket", "tenant", "since", "brief")

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["live"])
Reader = Annotated[Caller, Depends(Requires(Permission.READ_JOBS))]


class TicketView(View):
    """A ticket that opens one socket."""

    ticket: str
    expires_in: int


@router.post("/live/ticket", status_code=201)
async def ticket(request: Request, caller: Reader) -> TicketView:
    """Create a ticket for `GET /live?ticket=…`: valid once, for 30 seconds, with the caller's permissions."""
    # only the home cell can check the credential of a super admin
    is_from_home = caller.home is not None
    secret = generate_secret(None if is_from_home else caller.tenant_id)
    stands_for = live.Ticket(
        tenant_id=caller.tenant_id,
        actor=caller.principal.actor,
        role=caller.principal.role,
        token_id=caller.token_id,
        session_hash=None if caller.token_id else hash_secret(session_secret(request) or ""),
    )
    fl, owner = (caller.fl, caller.tenant_id) if caller.home is None else (caller.home, None)
    acting = TransactionIdentity(owner, caller.ip, caller.principal.id)
    async with fl.database.transaction(acting) as tx:
        await live.add_ticket(tx, ticket_hash=secret.hash, ticket=stands_for, seconds=TICKET_SECONDS)
    return TicketView(ticket=secret.text, expires_in=TICKET_SECONDS)


@router.websocket("/live")
async def watch(websocket: WebSocket) -> None:
    """Send frames about a tenant's jobs as they change; a super admin may watch all tenants."""
    feeds: LiveFeeds = websocket.app.state.live
    try:
        principal, holder = await _authenticate(websocket, feeds)
        own_request(principal.tenant_id, principal.tenant_weight)
        tenant_id = await _watched_tenant(websocket, principal)
        own_request(tenant_id, principal.tenant_weight)
    except FairleadError as error:
        await _refuse(websocket, error)
        return
    except Exception as error:
        if (refusal := translate_error(error, websocket.app.state.fl.database.url)) is None:
            raise
        await _refuse(websocket, refusal)
        return
    sockets: ConcurrencyLimit = websocket.app.state.sockets
    try:
        async with sockets.open(holder.token_id or principal.actor, principal.tenant_id):
            await websocket.accept()
            given = websocket.query_params
            await feeds.serve(
                websocket, holder, tenant_id, given.get("since"), brief=given.get("brief") == "true"
            )
    except TooManyRequests as error:
        await _refuse(websocket, error)


async def _authenticate(websocket: WebSocket, feeds: LiveFeeds) -> tuple[Principal, SocketCredential]:
    """Authenticate the socket's client; return its principal and credential."""
    if unknown := [name for name in websocket.query_params if name not in PARAMETERS]:
        raise InvalidInput(
            f"There is no parameter {unknown[0][:40]!r} here. Known: {', '.join(PARAMETERS)}.",
            [Fault(unknown[0][:40], "unknown parameter")],
        )
    if not is_same_site(websocket):
        raise CrossSite("This socket was opened by a page of another site and was refused.")
    if feeds.connections >= MOST_SOCKETS:
        raise TooManyRequests(
            f"This server has {MOST_SOCKETS} live sockets open, which is its limit. Try again later."
        )
    gatekeeper: Gatekeeper = websocket.app.state.gatekeeper
    handover = find_handover(websocket.scope)
    if handover is not None and handover.redeemed is not None:
        redeemed: tuple[Principal, SocketCredential] = handover.redeemed
        return redeemed
    if (text := websocket.query_params.get("ticket")) is not None:
        principal, credential = await _redeem_ticket(websocket, gatekeeper, text)
        if handover is not None:
            handover.redeemed = principal, credential
        return principal, credential
    caller = await gatekeeper.caller(websocket)
    if Permission.READ_JOBS not in caller.principal.permissions:
        await _record_denial(caller)
        raise missing_permission_error(
            Permission.READ_JOBS, caller.principal, f"The role {caller.principal.role}"
        )
    session = None if caller.token_id else hash_secret(session_secret(websocket) or "")
    return caller.principal, SocketCredential(caller.token_id, session, caller.ip)


async def _redeem_ticket(
    websocket: WebSocket, gatekeeper: Gatekeeper, text: str
) -> tuple[Principal, SocketCredential]:
    ip = client_address(websocket)
    async with websocket.app.state.fl.database.transaction() as tx:
        found = await live.use_ticket(tx, hash_secret(text))
        lists = () if found is None else await _read_address_lists(tx, found)
    if found is None:
        await gatekeeper.count_unknown_secret(websocket, text)
        raise Unauthenticated(
            "This ticket is unknown, used or expired: each is valid once, for 30 seconds. Get another."
        )
    principal = Principal(found.actor, found.role, found.tenant_id, id=found.token_id)
    try:
        require_allowed(lists, ip)
    except AddressNotAllowed:
        await gatekeeper.record_refused_address(principal, ip)
        raise
    return principal, SocketCredential(found.token_id, found.session_hash, ip)


async def _read_address_lists(tx: Tx, found: live.Ticket) -> Sequence[AddressList]:
    """The allow-lists of the ticket's token or session."""
    lists: dict[UUID, tuple[AddressList, ...]] | dict[bytes, tuple[AddressList, ...]]
    if found.token_id is not None:
        lists = await live.filter_valid_tokens(tx, [found.token_id])
    else:
        lists = await live.filter_valid_sessions(tx, [found.session_hash or b""])
    return [one for bound in lists.values() for one in bound]


async def _watched_tenant(websocket: WebSocket, principal: Principal) -> UUID | None:
    """The tenant to watch: the principal's own; for a super admin any, or all (None)."""
    named = websocket.query_params.get("tenant")
    gatekeeper: Gatekeeper = websocket.app.state.gatekeeper
    if principal.tenant_id is not None:
        await gatekeeper.require_here(websocket, str(principal.tenant_id))
    if named is None:
        return principal.tenant_id
    return await gatekeeper.find_tenant(websocket, named, principal.tenant_id)


async def _record_denial(caller: Caller) -> None:
    async with caller.fl.database.transaction(
        TransactionIdentity(None, caller.ip, caller.principal.id)
    ) as tx:
        details = {"method": "WEBSOCKET", "route": "/api/v1/live", "permission": Permission.READ_JOBS}
        await access.record_denial(tx, caller.principal, details)


async def _refuse(websocket: WebSocket, error: FairleadError) -> None:
    """Refuse the socket, with a problem if the server supports denial responses."""
    note_refusal(websocket.scope, error)
    log.info("live_refused", code=error.code)
    if "websocket.http.response" in websocket.scope.get("extensions", {}):
        await websocket.send_denial_response(problem_response(error))
    else:
        await websocket.close()
