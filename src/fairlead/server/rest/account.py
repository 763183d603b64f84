"""The caller's own sessions and personal tokens."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from fairlead.actions import account, personal_tokens
from fairlead.db.tx import Tx
from fairlead.model.access import Role, Token
from fairlead.model.account import Session
from fairlead.server.auth import Caller, GuardedRoute, Requires, session_secret
from fairlead.server.idempotency import create_once
from fairlead.server.problems import PREFIX
from fairlead.server.rest.tokens import TokenWithSecret
from fairlead.server.sessions import own_transaction, sign_out_everywhere
from fairlead.server.views import Body, Listing, OneOf, Time, View, to_json

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["session"])

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


class PersonalTokenBody(Body):
    """A new personal token."""

    name: str
    role: OneOf[Role] | None = Field(None, description="The user's own role (left out) or a lesser one.")
    expires_at: Time | None = Field(
        None, description="At most `personal_token_days` from now; left out: 90 days, or as long as that."
    )
    scopes: list[str] | None = Field(
        None,
        description="Permissions of the role, such as `jobs.read`: the token has only these. Left out: all.",
    )
    addresses: list[str] | None = Field(
        None,
        description="Networks (CIDR) that the token may be used from, at most 100. Left out: any address.",
    )


@router.get("/account/tokens")
async def list_tokens(caller: User) -> Listing[Token]:
    """The user's personal tokens, the newest first."""
    async with own_transaction(caller) as tx:
        return Listing(await personal_tokens.list_own(tx, caller.principal))


@router.post("/account/tokens", status_code=201, response_model=TokenWithSecret)
async def create_token(request: Request, body: PersonalTokenBody, caller: User) -> JSONResponse:
    """Create a token for oneself: at most with one's own role, and always with an expiry. Only for users who have signed in.

    It may manage neither tokens nor users, and is refused while its user is disabled or has a lesser role.
    """

    async def create_in_tx(tx: Tx) -> tuple[int, Any]:
        token, secret = await personal_tokens.create(
            tx,
            caller.principal,
            name=body.name,
            role=body.role,
            expires_at=body.expires_at,
            scopes=body.scopes,
            addresses=body.addresses,
            longest_days=caller.fl.settings.personal_token_days,
        )
        return 201, to_json(token) | {"secret": secret}

    return await create_once(request, caller, create_in_tx, shown_once=["secret"])


@router.delete("/account/tokens/{token_id}")
async def revoke_token(token_id: UUID, caller: User) -> Token:
    """Revoke one of the user's personal tokens: at once in this process, within five seconds in others."""
    async with own_transaction(caller) as tx:
        return await personal_tokens.revoke(tx, caller.principal, token_id)
