"""The identities at identity providers with which users sign in: one's own, and for admins those of a user."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from fairlead.actions import identities
from fairlead.model.access import Permission
from fairlead.model.oidc.identity import Identity
from fairlead.server.auth import Caller, GuardedRoute, Requires, session_secret
from fairlead.server.oidc import OidcSignIns
from fairlead.server.problems import PREFIX
from fairlead.server.sessions import delete_session_cookie, own_transaction
from fairlead.server.views import Listing, View, to_json

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["session"])

User = Annotated[Caller, Depends(Requires(None, everywhere=True))]
Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_USERS))]
EvenIfOnly = Annotated[
    bool,
    Query(
        description="Unlink it also if the user then has no way to sign in, and their tokens stop working."
    ),
]


class UnlinkedView(View):
    """How many sessions of the user were ended: those that began with the identity."""

    sessions_ended: int


@router.get("/account/identities")
async def list_own(request: Request, caller: User) -> Listing[Identity]:
    """The identities with which the user signs in, the last used first."""
    async with own_transaction(caller) as tx:
        return Listing(await identities.list_own(tx, caller.principal, _providers(request)))


@router.delete("/account/identities/{identity_id}", response_model=UnlinkedView)
async def unlink_own(request: Request, identity_id: UUID, caller: User) -> Response:
    """Unlink one's own identity, and end the sessions that began with it. 409 if it is the only way to sign in."""
    async with own_transaction(caller) as tx:
        unlinked = await identities.unlink_own(
            tx, caller.principal, identity_id, _providers(request), session=session_secret(request)
        )
    return _answer(request, unlinked)


@router.get("/users/{user_id}/identities")
async def list_of_user(request: Request, user_id: UUID, caller: Manager) -> Listing[Identity]:
    """The identities with which a user signs in, the last used first."""
    async with caller.transaction(as_system=True) as tx:
        return Listing(await identities.list_of_user(tx, caller.principal, user_id, _providers(request)))


@router.delete("/users/{user_id}/identities/{identity_id}", response_model=UnlinkedView)
async def unlink(
    request: Request, user_id: UUID, identity_id: UUID, caller: Manager, *, even_if_only: EvenIfOnly = False
) -> Response:
    """Unlink an identity of a user, and end the sessions that began with it. 409 if it is the user's only way to sign in."""
    async with caller.transaction(as_system=True) as tx:
        unlinked = await identities.unlink(
            tx,
            caller.principal,
            user_id,
            identity_id,
            _providers(request),
            even_if_only=even_if_only,
            session=session_secret(request),
        )
    return _answer(request, unlinked)


def _answer(request: Request, unlinked: identities.Unlinked) -> Response:
    answer = JSONResponse(to_json(UnlinkedView(sessions_ended=unlinked.sessions_ended)))
    return delete_session_cookie(request, answer) if unlinked.is_signed_out else answer


def _providers(request: Request) -> identities.Providers:
    sign_ins: OidcSignIns = request.app.state.oidc
    return sign_ins.providers
