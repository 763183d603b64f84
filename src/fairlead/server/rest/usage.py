"""Usage: what was done in the last day."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends

from fairlead.actions import usage
from fairlead.model.access import Permission
from fairlead.server.auth import Caller, Guarded, Requires
from fairlead.server.views import ListOf, View

router = APIRouter(route_class=Guarded, tags=["usage"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_USAGE))]


class UsageView(View):
    """How many jobs of a definition ended how, in an hour or a day; less those that were retried by hand."""

    definition_key: str
    starts_at: datetime
    succeeded: int
    failed: int
    dead_letter: int
    canceled: int


@router.get("/usage")
async def flows(caller: Reader, by: Literal["hour", "day"] = "hour") -> ListOf[UsageView]:
    """The last 24 hours by hour or by day (UTC), newest first. Durations and cost are not recorded yet."""
    async with caller.transaction() as tx:
        found = await usage.flows(tx, caller.principal, by=by)
    return ListOf[UsageView](items=[UsageView.of(one) for one in found])
