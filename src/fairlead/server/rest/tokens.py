"""Tokens, with which programs authenticate."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from fairlead.actions import access, token_rotation
from fairlead.actions.access import Expiry
from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Role, Token
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.idempotency import create_once
from fairlead.server.merged_lists import by_id, list_all
from fairlead.server.paging import PageQuery
from fairlead.server.problems import PREFIX
from fairlead.server.views import Body, Id, Listing, OneOf, Time, to_json

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["tokens"])

Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_TOKENS))]


class TokenBody(Body):
    """A new token."""

    name: str
    role: OneOf[Role]
    host_id: Id | None = None
    expires_at: Time | None = Field(
        None,
        description="Left out: 90 days from now. Null, or more than 366 days: for super admins only.",
    )
    definitions: list[str] | None = Field(
        None, description="Keys: a worker token runs, an application token enqueues jobs of these only."
    )
    scopes: list[str] | None = Field(
        None,
        description="Permissions of the role, such as `jobs.read`: the token has only these. Left out: all.",
    )
    addresses: list[str] | None = Field(
        None,
        description="Networks (CIDR) that the token may be used from, at most 100. Left out: any address, or the list of "
        "the token that creates it.",
    )

    @property
    def expiry(self) -> datetime | Expiry | None:
        """When the token expires: null means never, a missing field the default."""
        return self.expires_at if "expires_at" in self.model_fields_set else Expiry.DEFAULT


class TokenWithSecret(Token, frozen=True, kw_only=True):
    """A new token. Only this response contains its secret; a repeated request gets null."""

    secret: str | None


@router.get("/tokens")
async def list_tokens(query: Annotated[PageQuery, Query()], caller: Manager) -> Listing[Token]:
    """The tenant's tokens, oldest first; all tokens for a super admin without X-Tenant."""
    return await list_all(
        caller,
        query,
        lambda tx, page: access.list_tokens(tx, caller.principal, after=page.after_id, limit=page.limit),
        by_id(),
    )


@router.post("/tokens", status_code=201, response_model=TokenWithSecret)
async def create(request: Request, body: TokenBody, caller: Manager) -> JSONResponse:
    """Create a token of the tenant with at most the caller's own role; without X-Tenant, a super admin's is for all tenants.

    It stops working when its creator is disabled or may no longer grant its role. Only super admins create worker tokens.
    """

    async def create_in_tx(tx: Tx) -> tuple[int, Any]:
        token, secret = await access.create_token(
            tx,
            caller.principal,
            name=body.name,
            role=body.role,
            tenant_id=caller.tenant_id,
            host_id=body.host_id,
            expires_at=body.expiry,
            only=body.definitions,
            scopes=body.scopes,
            addresses=body.addresses,
        )
        return 201, to_json(token) | {"secret": secret}

    return await create_once(request, caller, create_in_tx, shown_once=["secret"])


@router.delete("/tokens/{token_id}")
async def revoke(token_id: UUID, caller: Manager) -> Token:
    """Revoke a token: at once in this process, within five seconds in others."""
    async with caller.transaction() as tx:
        return await access.revoke_token(tx, caller.principal, token_id)


class TokenRotationBody(Body):
    """How long the old secret stays valid."""

    overlap_seconds: float = Field(
        token_rotation.DEFAULT_OVERLAP_SECONDS, description="0 to 2592000 (30 days)."
    )


@router.post("/tokens/{token_id}/rotate", status_code=201, response_model=TokenWithSecret)
async def rotate(request: Request, token_id: UUID, body: TokenRotationBody, caller: Manager) -> JSONResponse:
    """Create a token like this one, with a new secret; this one ends after the overlap.

    Name, role, host, definitions, scopes, addresses and lifetime are the same. 409 if it is no longer valid or was rotated.
    """

    async def rotate_in_tx(tx: Tx) -> tuple[int, Any]:
        token, secret = await token_rotation.rotate(
            tx, caller.principal, token_id, overlap_seconds=body.overlap_seconds
        )
        return 201, to_json(token) | {"secret": secret}

    return await create_once(request, caller, rotate_in_tx, shown_once=["secret"])
