"""Users of a tenant; for super admins, of all tenants."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field, SecretStr

from fairlead.actions import access, invitations, tenants
from fairlead.actions.account_links import Mailer
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission, Role, User
from fairlead.model.payload import find_storage_flaw
from fairlead.model.request import unknown_tenant
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.idempotency import create_once
from fairlead.server.merged_lists import by_id, list_all
from fairlead.server.paging import PageQuery
from fairlead.server.problems import PREFIX
from fairlead.server.sessions import limit_hashing
from fairlead.server.views import Body, Listing, OneOf, View, to_json

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["users"])

Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_USERS))]
TokenManager = Annotated[Caller, Depends(Requires(Permission.MANAGE_TOKENS))]
SuperAdmin = Annotated[Caller, Depends(Requires(Permission.MANAGE_TENANTS, everywhere=True))]


class UserBody(Body):
    """A new user of the tenant: with a password, or invited by mail to choose one."""

    email: str
    password: SecretStr | None = None
    invite: bool = Field(False, description="Mail an invitation; instead of a password.")
    role: OneOf[Role]


class AnyUserBody(UserBody):
    """A new user of any tenant, or a super admin of none."""

    tenant: str | None = Field(None, description="Slug or id; left out for a super admin.")


class UserPatch(Body):
    """Changes to a user; omitted fields keep their value. Every change ends the user's sessions."""

    role: OneOf[Role] | None = None
    password: SecretStr | None = None
    disabled: bool | None = None


class SignedOutView(View):
    """How many sessions of a user were ended."""

    user_id: UUID
    sessions_ended: int


class RevokedTokensView(View):
    """How many tokens of a user were revoked."""

    user_id: UUID
    revoked: int


@router.get("/users")
async def list_users(query: Annotated[PageQuery, Query()], caller: Manager) -> Listing[User]:
    """The tenant's users, oldest first."""
    return await _list_page(query, caller)


@router.get("/admin/users")
async def list_for_admins(query: Annotated[PageQuery, Query()], caller: SuperAdmin) -> Listing[User]:
    """The users of all tenants, oldest first."""
    return await _list_page(query, caller)


@router.post("/users", status_code=201, response_model=User)
async def create(request: Request, body: UserBody, caller: Manager) -> JSONResponse:
    """Create a user of the tenant, or invite one; 409 if the tenant has one with this address."""

    async def create_in_tx(tx: Tx) -> tuple[int, Any]:
        return await _add_user(tx, caller, body, caller.tenant)

    async with limit_hashing(request, has_password=body.password is not None):
        return await create_once(request, caller, create_in_tx, as_system=body.invite, with_password=True)


@router.post("/admin/users", status_code=201, response_model=User)
async def create_anywhere(request: Request, body: AnyUserBody, caller: SuperAdmin) -> JSONResponse:
    """Create or invite a user of any tenant, or a super admin."""

    async def create_in_tx(tx: Tx) -> tuple[int, Any]:
        return await _add_user(tx, caller, body, await _find_tenant_id(tx, caller, body.tenant))

    async with limit_hashing(request, has_password=body.password is not None):
        return await create_once(request, caller, create_in_tx, as_system=body.invite, with_password=True)


@router.patch("/users/{user_id}")
async def change(request: Request, user_id: UUID, body: UserPatch, caller: Manager) -> User:
    """Change a user's role or password, or disable the user."""
    password = None if body.password is None else body.password.get_secret_value()
    async with limit_hashing(request, has_password=password is not None), caller.transaction() as tx:
        return await access.change_user(
            tx, caller.principal, user_id, role=body.role, password=password, disabled=body.disabled
        )


@router.post("/users/{user_id}/sign-out")
async def sign_out(user_id: UUID, caller: Manager) -> SignedOutView:
    """End all sessions of a user, who may sign in again. Live sockets close within five seconds; tokens stay valid."""
    async with caller.transaction() as tx:
        ended = await access.sign_out_user(tx, caller.principal, user_id)
    return SignedOutView(user_id=user_id, sessions_ended=ended)


@router.post("/users/{user_id}/invite")
async def invite_again(user_id: UUID, caller: Manager) -> User:
    """Mail another invitation to a user who has not accepted one; the earlier link ends."""
    async with caller.transaction(as_system=True) as tx:
        return await invitations.invite_again(tx, caller.principal, _mailer(caller), user_id)


@router.delete("/users/{user_id}/invite", status_code=204)
async def withdraw_invitation(user_id: UUID, caller: Manager) -> Response:
    """Withdraw an invitation that was not accepted: its link ends, and the user is removed."""
    async with caller.transaction(as_system=True) as tx:
        await invitations.withdraw(tx, caller.principal, user_id)
    return Response(status_code=204)


@router.post("/users/{user_id}/revoke-tokens")
async def revoke_tokens(user_id: UUID, caller: TokenManager) -> RevokedTokensView:
    """Revoke every token that the user created: at once in this process, within five seconds in others."""
    async with caller.transaction() as tx:
        count = await access.revoke_tokens_of(tx, caller.principal, user_id)
    return RevokedTokensView(user_id=user_id, revoked=count)


async def _list_page(query: PageQuery, caller: Caller) -> Listing[User]:
    return await list_all(
        caller,
        query,
        lambda tx, page: access.list_users(tx, caller.principal, after=page.after_id, limit=page.limit),
        by_id(),
    )


async def _add_user(tx: Tx, caller: Caller, body: UserBody, tenant_id: UUID | None) -> tuple[int, Any]:
    if (body.password is None) is not body.invite:
        raise InvalidInput(
            'Give a password, or invite the user with "invite": true, not both.',
            [Fault("password", "give it, or invite")],
        )
    who: Any = {"email": body.email, "role": body.role, "tenant_id": tenant_id}
    user = (
        await invitations.invite(tx, caller.principal, _mailer(caller), **who)
        if body.password is None
        else await access.add_user(tx, caller.principal, password=body.password.get_secret_value(), **who)
    )
    return 201, to_json(user)


def _mailer(caller: Caller) -> Mailer:
    return Mailer(caller.fl.settings, caller.fl.catalog)


async def _find_tenant_id(tx: Tx, caller: Caller, tenant: str | None) -> UUID | None:
    if tenant is None:
        return None
    found = None if find_storage_flaw(tenant) else await tenants.find(tx, caller.principal, tenant)
    if found is None:
        raise unknown_tenant(tenant)
    return found.id
