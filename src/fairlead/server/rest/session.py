"""Sign-in, sign-out, and the caller's own principal."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field, SecretStr

from fairlead.actions import passwords, tenants
from fairlead.db.tx import TransactionIdentity
from fairlead.library.app import Fairlead
from fairlead.model.access import Principal, Role
from fairlead.model.second_factor import LONGEST_CODE
from fairlead.server.auth import Caller, GuardedRoute, PublicAccess, Requires
from fairlead.server.problems import PREFIX
from fairlead.server.sessions import change_password, set_session_cookie, sign_in, sign_out
from fairlead.server.views import Body, View, to_json

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["session"])

Public = Annotated[None, Depends(PublicAccess())]
User = Annotated[Caller, Depends(Requires(None, everywhere=True))]
AnyCaller = Annotated[Caller, Depends(Requires(None))]


class LoginBody(Body):
    """A user's e-mail address and password, and a code if the user has a second factor."""

    email: str = Field(max_length=300)
    password: SecretStr = Field(max_length=passwords.LONGEST_PASSWORD)
    code: SecretStr | None = Field(
        None,
        max_length=LONGEST_CODE,
        description="The code of the authenticator app, or a recovery code. Ignored for users without a second factor.",
    )


class PasswordBody(Body):
    """The user's old password, and the new one."""

    old_password: SecretStr = Field(max_length=passwords.LONGEST_PASSWORD)
    new_password: SecretStr = Field(max_length=passwords.LONGEST_PASSWORD)


class PasswordChangedView(View):
    """How many other sessions of the user were ended."""

    sessions_ended: int


class MeView(View):
    """The caller's principal and permissions."""

    actor: str
    role: Role
    tenant_id: UUID | None
    tenant: str | None = None
    host_id: UUID | None
    permissions: list[str]


@router.post("/login", response_model=MeView)
async def login(request: Request, body: LoginBody, _: Public) -> JSONResponse:
    """Sign in: returns the user's principal, and sets the session cookie."""
    fl: Fairlead = request.app.state.fl
    code = None if body.code is None else body.code.get_secret_value()
    principal, secret = await sign_in(request, body.email, body.password.get_secret_value(), code)
    is_here = principal.tenant_id is None or not fl.cells
    member = fl if is_here else await fl.cells.find(str(principal.tenant_id))
    me = await describe_principal(member, principal)
    return set_session_cookie(request, JSONResponse(to_json(me)), secret)


@router.post("/logout", status_code=204)
async def logout(request: Request, _: Public) -> Response:
    """Sign out: ends the session and deletes its cookie."""
    return await sign_out(request, Response(status_code=204))


@router.get("/me")
async def me(caller: AnyCaller) -> MeView:
    """Show the caller's principal, tenant and permissions."""
    return await describe_principal(caller.fl, caller.principal)


@router.post("/account/password")
async def change_own_password(request: Request, body: PasswordBody, caller: User) -> PasswordChangedView:
    """Change one's own password: ends the user's other sessions. For users who have signed in; tokens have no account."""
    ended = await change_password(
        request, caller, body.old_password.get_secret_value(), body.new_password.get_secret_value()
    )
    return PasswordChangedView(sessions_ended=ended)


async def describe_principal(fl: Fairlead, principal: Principal) -> MeView:
    """A principal with its tenant and permissions, as `/me` shows it."""
    slug = None
    if principal.tenant_id is not None:
        async with fl.database.transaction(TransactionIdentity(principal.tenant_id)) as tx:
            slug = await tenants.get_slug(tx, principal.tenant_id)
    return MeView(
        actor=principal.actor,
        role=principal.role,
        tenant_id=principal.tenant_id,
        tenant=slug,
        host_id=principal.host_id,
        permissions=sorted(principal.permissions),
    )
