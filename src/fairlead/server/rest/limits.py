"""Rates and limits by key: what is left of each, and what it holds back."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from fairlead.actions import definitions, limits
from fairlead.actions.limits import MAX_PAGE, LimitUse
from fairlead.db.tx import Tx
from fairlead.model.access import Permission
from fairlead.model.page import Page
from fairlead.model.request import unknown_definition
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.merged_lists import by_name, list_all
from fairlead.server.paging import PageQuery, list_page
from fairlead.server.problems import PREFIX
from fairlead.server.views import Listing, ReadableText

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["limits"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_DEFINITIONS))]


class LimitsQuery(PageQuery):
    """A page of limits."""

    limit: int = Field(100, ge=1, le=MAX_PAGE)
    definition_key: ReadableText | None = Field(None, description="Only the limits of this definition.")


@router.get("/limits")
async def list_limits(query: Annotated[LimitsQuery, Query()], caller: Reader) -> Listing[LimitUse]:
    """Rates and limits by key: of the system, of tenants, of definitions. A tenant sees its own part."""

    async def read(tx: Tx, page: LimitsQuery) -> Page[LimitUse]:
        only = None
        if page.definition_key is not None:
            only = await definitions.find(tx, caller.principal, page.definition_key)
            if only is None:
                raise unknown_definition(page.definition_key)
        return await limits.list_page(
            tx,
            caller.principal,
            definition_id=None if only is None else only.id,
            after=page.after,
            limit=page.limit,
        )

    if caller.is_for_all_cells:
        return await list_all(caller, query, read, by_name("place"))
    async with caller.transaction(as_system=True) as tx:
        found = await read(tx, query)
    return list_page(found, lambda one: one.place)
