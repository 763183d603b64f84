"""Rates and limits by key: what is left of each, and what it holds back."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from msgspec.structs import replace

from fairlead.actions import definitions, limits
from fairlead.actions.limits import LimitUse
from fairlead.db.tx import Tx
from fairlead.model.access import Permission
from fairlead.model.page import Page
from fairlead.model.request import unknown_definition
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.visit import RequiresVisit, Visit
from fairlead.server.merged_lists import read_cells

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_DEFINITIONS))]

ROWS = 100


@router.get("/limits")
async def list_limits(request: Request, visit: Reader) -> Response:
    """The limits of the system, of tenants and of definitions, or of one definition."""
    after, definition = (request.query_params.get(name, "") for name in ("after", "definition"))
    found = await _read_limits(visit, after, definition)
    return visit.page(
        "limits.html",
        rows=found,
        closed=sum(one.held > 0 for one in found),
        definition=definition,
        after=after,
        next=None if found.last is None else found.last.place,
    )


async def _read_limits(visit: Visit, after: str, definition: str) -> Page[LimitUse]:
    async def read(tx: Tx) -> Page[LimitUse]:
        only = await definitions.find(tx, visit.principal, definition) if definition else None
        if definition and only is None:
            raise unknown_definition(definition)
        return await limits.list_page(
            tx,
            visit.principal,
            definition_id=None if only is None else only.id,
            after=after,
            limit=ROWS,
        )

    if not visit.is_for_all_cells:
        async with visit.transaction(as_system=True) as tx:
            return await read(tx)
    cells = await read_cells(visit, read)
    return Page(sorted((replace(one, cell=cell) for cell, page in cells for one in page), key=_place_of))


def _place_of(one: LimitUse) -> tuple[str, str]:
    return one.place, one.cell or ""
