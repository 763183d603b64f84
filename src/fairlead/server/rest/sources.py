"""Sources: brokers whose messages become events."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from fairlead.actions import sources
from fairlead.model.access import Permission
from fairlead.model.event_source import EventSource
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.merged_lists import by_name, list_all
from fairlead.server.paging import PageQuery
from fairlead.server.problems import PREFIX
from fairlead.server.views import Body, Listing, ReadableText

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["sources"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_SOURCES))]
Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_SYSTEM, everywhere=True))]


class PauseSourceBody(Body):
    """The reason of a pause, shown to other users."""

    note: ReadableText | None = None


@router.get("/sources")
async def list_sources(query: Annotated[PageQuery, Query()], caller: Reader) -> Listing[EventSource]:
    """Sources by name: those of the caller's tenant, or all."""
    return await list_all(
        caller,
        query,
        lambda tx, page: sources.list_sources(tx, caller.principal, after=page.after, limit=page.limit),
        by_name("name"),
    )


@router.post("/sources/{source}/pause")
async def pause(source: str, caller: Manager, body: PauseSourceBody | None = None) -> EventSource:
    """Stop consuming. Messages wait in the broker."""
    async with caller.transaction() as tx:
        return await sources.pause(tx, caller.principal, source, note=None if body is None else body.note)


@router.post("/sources/{source}/resume")
async def resume(source: str, caller: Manager) -> EventSource:
    """Consume again."""
    async with caller.transaction() as tx:
        return await sources.resume(tx, caller.principal, source)
