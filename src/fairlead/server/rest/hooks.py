"""Hooks: addresses at which other systems send webhooks, which become events."""

from typing import Annotated, Any, Self
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from msgspec.structs import asdict
from pydantic import Field

from fairlead.actions import hook_deliveries, hooks
from fairlead.actions.hooks import DEFAULT_KEEP_SECONDS, HookSecret
from fairlead.db.tx import Tx
from fairlead.model.access import Permission
from fairlead.model.hooks.hook import DEFAULT_TOLERANCE, REMEMBERED_DAYS, Hook, Scheme, UniqueBy
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.idempotency import create_once
from fairlead.server.merged_lists import by_id, list_all
from fairlead.server.paging import PageQuery
from fairlead.server.problems import PREFIX
from fairlead.server.rest.events import EventIdView
from fairlead.server.views import Body, Listing, OneOf, ReadableText, to_json

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["hooks"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_TRIGGERS))]
Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_TRIGGERS))]

_EVENT_NAME = "The event's name; `{type}` in it is replaced by the sender's type of the delivery."
_UNIQUE_BY = f"What identifies a delivery: its `id`, or its `body`. A second one within {REMEMBERED_DAYS} days is no second event."
_TOLERANCE = "How old a signature may be, if the scheme has a timestamp: 1 to 3600."
_SECRET = "The secret that the sender signs with. Left out: generated, except for stripe and slack."  # noqa: S105


class HookBody(Body):
    """A new hook."""

    name: ReadableText
    scheme: OneOf[Scheme]
    event_name: ReadableText | None = Field(None, description=f"{_EVENT_NAME} Left out: `<name>.{{type}}`.")
    secret: ReadableText | None = Field(None, description=_SECRET)
    unique_by: OneOf[UniqueBy] = Field(UniqueBy.ID, description=_UNIQUE_BY)
    tolerance_seconds: int = Field(DEFAULT_TOLERANCE, description=_TOLERANCE)
    is_enabled: bool = True


class HookPatch(Body):
    """Changes to a hook; omitted fields keep their value."""

    event_name: ReadableText | None = Field(None, description=_EVENT_NAME)
    unique_by: OneOf[UniqueBy] | None = Field(None, description=_UNIQUE_BY)
    tolerance_seconds: int | None = Field(None, description=_TOLERANCE)
    is_enabled: bool | None = None


class RotationBody(Body):
    """A new secret of a hook, and how long the old one stays valid."""

    secret: ReadableText | None = Field(None, description=_SECRET)
    keep_seconds: int = Field(
        DEFAULT_KEEP_SECONDS, description="How long the old secret stays valid: 0 to 604800."
    )


class HookWithUrl(Hook, frozen=True, kw_only=True):
    """A hook and the URL to give to the sender."""

    url: str

    @classmethod
    def of(cls, hook: Hook, request: Request, **others: Any) -> Self:
        """The hook with its URL at this server."""
        return cls(**asdict(hook), url=str(request.base_url).rstrip("/") + hook.path, **others)


class HookWithSecret(HookWithUrl, frozen=True, kw_only=True):
    """A hook. `secret` is the new one if it was generated; only this response contains it."""

    secret: str | None


@router.get("/hooks")
async def list_hooks(
    request: Request, query: Annotated[PageQuery, Query()], caller: Reader
) -> Listing[HookWithUrl]:
    """Hooks, oldest first, each with its last delivery and its last refusal."""
    found = await list_all(
        caller,
        query,
        lambda tx, page: hooks.list_hooks(tx, caller.principal, after=page.after_id, limit=page.limit),
        by_id(),
    )
    return Listing([HookWithUrl.of(one, request) for one in found.items], found.next_cursor)


@router.post("/hooks", status_code=201, response_model=HookWithSecret)
async def create(request: Request, body: HookBody, caller: Manager) -> JSONResponse:
    """Create a hook; 409 if the name is taken. A generated secret is shown only in this response."""
    tenant_id = caller.tenant

    async def create_in_tx(tx: Tx) -> tuple[int, Any]:
        made = await hooks.create(tx, caller.principal, tenant_id=tenant_id, **dict(body))
        return 201, _with_secret(made, request)

    return await create_once(request, caller, create_in_tx, shown_once=["secret"], with_password=True)


@router.get("/hooks/{hook_id}")
async def show(request: Request, hook_id: UUID, caller: Reader) -> HookWithUrl:
    """A hook, with its last delivery and its last refusal."""
    async with caller.transaction() as tx:
        return HookWithUrl.of(await hooks.get(tx, caller.principal, hook_id), request)


@router.patch("/hooks/{hook_id}")
async def change(request: Request, hook_id: UUID, body: HookPatch, caller: Manager) -> HookWithUrl:
    """Change the given fields of a hook; this takes effect within two seconds."""
    changes = {name: value for name, value in body if value is not None}
    async with caller.transaction() as tx:
        return HookWithUrl.of(await hooks.change(tx, caller.principal, hook_id, changes), request)


@router.delete("/hooks/{hook_id}")
async def remove(request: Request, hook_id: UUID, caller: Manager) -> HookWithUrl:
    """Remove a hook and its secrets. Its events stay."""
    async with caller.transaction() as tx:
        return HookWithUrl.of(await hooks.remove(tx, caller.principal, hook_id), request)


@router.post("/hooks/{hook_id}/rotate-secret", response_model=HookWithSecret)
async def rotate_secret(request: Request, hook_id: UUID, body: RotationBody, caller: Manager) -> JSONResponse:
    """Give a hook a new secret. The old one stays valid for `keep_seconds`, so that the sender can change over."""

    async def rotate_in_tx(tx: Tx) -> tuple[int, Any]:
        made = await hooks.rotate_secret(
            tx, caller.principal, hook_id, secret=body.secret, keep_seconds=body.keep_seconds
        )
        return 200, _with_secret(made, request)

    return await create_once(request, caller, rotate_in_tx, shown_once=["secret"], with_password=True)


@router.post("/hooks/{hook_id}/test", status_code=202, response_model=EventIdView)
async def send_test(request: Request, hook_id: UUID, caller: Manager) -> JSONResponse:
    """Emit an event like that of a delivery of the type `test`, to try the hook's triggers."""

    async def test_in_tx(tx: Tx) -> tuple[int, Any]:
        hook = await hooks.get(tx, caller.principal, hook_id)
        event_id = await hook_deliveries.send_test(tx, caller.principal, caller.fl.catalog, hook)
        return 202, to_json(EventIdView(id=event_id))

    return await create_once(request, caller, test_in_tx)


def _with_secret(made: HookSecret, request: Request) -> Any:
    return to_json(HookWithSecret.of(made.hook, request, secret=made.secret))
