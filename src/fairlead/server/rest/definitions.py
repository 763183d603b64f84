"""Definitions: all roles may read them, super admins change them."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from msgspec.structs import fields
from pydantic import Field

from fairlead.actions import definitions, gates
from fairlead.db.tx import Tx
from fairlead.errors import Fault, NotFound
from fairlead.model.access import Permission
from fairlead.model.definition import Definition, DefinitionSpec
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.idempotency import create_once
from fairlead.server.paging import PageQuery, list_page
from fairlead.server.problems import PREFIX
from fairlead.server.views import Listing, derive_body, to_json

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["definitions"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_DEFINITIONS))]
Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_DEFINITIONS, everywhere=True))]


_SETTABLE = [field for field in fields(DefinitionSpec) if field.name not in ("key", "arg_schema")]


class DefinitionChange(derive_body(_SETTABLE)):  # type: ignore[misc] # a class that is made at run time
    """Fields of a definition; omitted fields keep their value (or get their default)."""

    arg_schema: dict[str, Any] | bool = Field(default_factory=dict)
    only_tenants: list[str] | None = Field(
        None,
        max_length=1000,
        description="Slugs or ids: hidden from all other tenants. Null or empty: for every tenant.",
    )

    def sent_fields(self) -> dict[str, Any]:
        """The fields that the request contains; a backoff is always complete."""
        sent: dict[str, Any] = self.model_dump(exclude_unset=True)
        return sent | ({"backoff": self.backoff.model_dump()} if "backoff" in sent else {})


class DefinitionPatch(DefinitionChange):
    """Changes to a definition; `paused` stops the claiming of its jobs."""

    paused: bool | None = None


class DefinitionBody(DefinitionChange):
    """A new definition."""

    key: str


@router.get("/definitions")
async def list_definitions(query: Annotated[PageQuery, Query()], caller: Reader) -> Listing[Definition]:
    """The definitions that the caller can enqueue, by key."""
    return await _list_page(query, caller)


@router.get("/admin/jobs/definitions")
async def list_for_admins(query: Annotated[PageQuery, Query()], caller: Manager) -> Listing[Definition]:
    """All definitions, by key."""
    return await _list_page(query, caller)


@router.post("/admin/jobs/definitions", status_code=201, response_model=Definition)
async def create(request: Request, body: DefinitionBody, caller: Manager) -> JSONResponse:
    """Create a definition; 409 if the key is taken."""

    async def create_in_tx(tx: Tx) -> tuple[int, Any]:
        definition = await definitions.create(tx, caller.principal, {**body.sent_fields(), "key": body.key})
        return 201, to_json(definition)

    return await create_once(request, caller, create_in_tx)


@router.patch("/admin/jobs/definitions/{definition}")
async def change(definition: str, body: DefinitionPatch, caller: Manager) -> Definition:
    """Change the given fields of a definition, by id or key."""
    changes = body.sent_fields()
    paused = changes.pop("paused", None)
    async with caller.transaction() as tx:
        found = await definitions.find(tx, caller.principal, definition)
        if found is None:
            raise NotFound(f"There is no definition {definition[:130]!r}.", [Fault("definition", "unknown")])
        if changes:
            await definitions.patch(tx, caller.principal, found.key, changes)
        if paused is not None and paused != (found.paused_at is not None):
            await (gates.pause if paused else gates.resume)(tx, caller.principal, definition=found.key)
        return await definitions.find(tx, caller.principal, found.key) or found


async def _list_page(query: PageQuery, caller: Caller) -> Listing[Definition]:
    async with caller.transaction() as tx:
        found = await definitions.list_page(tx, caller.principal, after=query.after, limit=query.limit)
    return list_page(found, lambda one: one.key)
