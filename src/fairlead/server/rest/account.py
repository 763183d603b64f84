"""The caller's own sessions."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import account
from fairlead.model.account import Session
from fairlead.server.auth import Caller, GuardedRoute, Requires, session_secret
from fairlead.server.sessions import own_transaction, sign_out_everywhere
from fairlead.server.views import Listing, View

router = APIRouter(route_class=GuardedRoute, tags=["session"])

User = Annotated[Caller, Depends(Requires(None, everywhere=True))]


class SessionsEndedView(View):
    """How many sessions were ended."""

    sessions_ended: int


@router.get("/account/sessions")
async def list_sessions(request: Request, caller: User) -> Listing[Session]:
    """The browsers in which the user has signed in: this one first, then the last used. At most 100."""
    async with own_transaction(caller) as tx:
        return Listing(await account.list_sessions(tx, caller.principal, session_secret(request)))


@router.delete("/account/sessions/{session_id}", status_code=204)
async def end_session(session_id: UUID, caller: User) -> None:
    """End one of the user's sessions: at once, and its live sockets within five seconds."""
    async with own_transaction(caller) as tx:
        await account.end_session(tx, caller.principal, session_id)


@router.post("/account/sign-out-others")
async def end_others(request: Request, caller: User) -> SessionsEndedView:
    """End all other sessions of the user."""
    async with own_transaction(caller) as tx:
        ended = await account.end_other_sessions(tx, caller.principal, session_secret(request))
    return SessionsEndedView(sessions_ended=ended)


@router.post("/account/sign-out-everywhere", status_code=204)
async def end_all(request: Request, caller: User) -> Response:
    """End all sessions of the user, also this one, and delete its cookie."""
    return await sign_out_everywhere(request, caller, Response(status_code=204))
