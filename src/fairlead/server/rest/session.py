"""Signing in and out, and who one is."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field, SecretStr

from fairlead.actions import access
from fairlead.app import Fairlead
from fairlead.db.tx import Acting
from fairlead.errors import Unauthenticated
from fairlead.model.access import GRANTS, Principal, Role
from fairlead.server.auth import COOKIE, Caller, Gatekeeper, Guarded, Open, Requires, address, check_same_site
from fairlead.server.views import Body, View, plain
from fairlead.store import tenants

# Passwords take much memory to check, on purpose.
AT_ONCE = 4

router = APIRouter(route_class=Guarded, tags=["session"])

Anybody = Annotated[None, Depends(Open())]
Somebody = Annotated[Caller, Depends(Requires(None))]


class LoginBody(Body):
    """Who signs in."""

    email: str = Field(max_length=300)
    password: SecretStr = Field(max_length=access.LONGEST_PASSWORD)


class MeView(View):
    """Who is asking, and what they may do."""

    actor: str
    role: Role
    tenant_id: UUID | None
    tenant: str | None = None
    host_id: UUID | None
    permissions: list[str]


@router.post("/login", response_model=MeView)
async def login(request: Request, body: LoginBody, _: Anybody) -> JSONResponse:
    """Sign in: answers with who one is, and a session cookie."""
    check_same_site(request)
    fl: Fairlead = request.app.state.fl
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    ip = address(request)
    async with request.app.state.signing_in, fl.database.transaction(Acting(None, ip)) as tx:
        gatekeeper.check_failures(
            ip
        )  # here, so that many at once do not all pass before the first has failed
        user = await access.verified(tx, email=body.email, password=body.password.get_secret_value())
        if user is None:
            await access.sign_in_failed(tx, email=body.email)
        else:
            seconds = fl.settings.session_hours * 3600
            principal, secret = await access.sign_in(tx, user, seconds=seconds)
    if user is None:
        gatekeeper.failed(ip)
        raise Unauthenticated("This address and password do not go together.")
    answer = JSONResponse(plain(await _me(fl, principal)))
    answer.set_cookie(
        COOKIE,
        secret,
        max_age=int(seconds),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return answer


@router.post("/logout", status_code=204)
async def logout(request: Request, _: Anybody) -> Response:
    """Sign out: the session ends, and its cookie goes."""
    check_same_site(request)
    fl: Fairlead = request.app.state.fl
    if secret := request.cookies.get(COOKIE):
        async with fl.database.transaction(Acting(None, address(request))) as tx:
            await access.sign_out(tx, secret)
    answer = Response(status_code=204)
    answer.delete_cookie(
        COOKIE, path="/", secure=request.url.scheme == "https", httponly=True, samesite="lax"
    )
    return answer


@router.get("/me")
async def me(caller: Somebody) -> MeView:
    """Who is asking, in which tenant, and what they may do."""
    return await _me(caller.fl, caller.principal)


async def _me(fl: Fairlead, principal: Principal) -> MeView:
    slug = None
    if principal.tenant_id is not None:
        async with fl.database.transaction(Acting(principal.tenant_id)) as tx:
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
