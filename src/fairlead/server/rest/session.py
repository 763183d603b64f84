"""Sign-in, sign-out, and the caller's own principal."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field, SecretStr

from fairlead.actions import access
from fairlead.app import Fairlead
from fairlead.db.tx import TransactionIdentity
from fairlead.model.access import GRANTS, Principal, Role
from fairlead.server.auth import Caller, Guarded, Open, Requires
from fairlead.server.signing import let_in, sign_in, sign_out
from fairlead.server.views import Body, View, plain
from fairlead.store import tenants

router = APIRouter(route_class=Guarded, tags=["session"])

Anybody = Annotated[None, Depends(Open())]
Somebody = Annotated[Caller, Depends(Requires(None))]


class LoginBody(Body):
    """A user's e-mail address and password."""

    email: str = Field(max_length=300)
    password: SecretStr = Field(max_length=access.LONGEST_PASSWORD)


class MeView(View):
    """The caller's principal and permissions."""

    actor: str
    role: Role
    tenant_id: UUID | None
    tenant: str | None = None
    host_id: UUID | None
    permissions: list[str]


@router.post("/login", response_model=MeView)
async def login(request: Request, body: LoginBody, _: Anybody) -> JSONResponse:
    """Sign in: returns the user's principal, and sets the session cookie."""
    fl: Fairlead = request.app.state.fl
    principal, secret = await sign_in(request, body.email, body.password.get_secret_value())
    return let_in(request, JSONResponse(plain(await _me(fl, principal))), secret)


@router.post("/logout", status_code=204)
async def logout(request: Request, _: Anybody) -> Response:
    """Sign out: ends the session and deletes its cookie."""
    return await sign_out(request, Response(status_code=204))


@router.get("/me")
async def me(caller: Somebody) -> MeView:
    """Show the caller's principal, tenant and permissions."""
    return await _me(caller.fl, caller.principal)


async def _me(fl: Fairlead, principal: Principal) -> MeView:
    slug = None
    if principal.tenant_id is not None:
        async with fl.database.transaction(TransactionIdentity(principal.tenant_id)) as tx:
            found = await tenants.get(tx, str(principal.tenant_id))
            slug = None if found is None else found.slug
    return MeView(
        actor=principal.actor,
        role=principal.role,
        tenant_id=principal.tenant_id,
        tenant=slug,
        host_id=principal.host_id,
        permissions=sorted(GRANTS[principal.role]),
    )
