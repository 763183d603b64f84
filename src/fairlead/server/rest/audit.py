"""The audit log."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from fairlead.actions import audit
from fairlead.actions.audit import AuditFilter, AuditPage, StoredEntry
from fairlead.db.tx import Tx
from fairlead.model.access import Permission
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.merged_lists import Order, Part, read_merged
from fairlead.server.problems import PREFIX
from fairlead.server.views import Id, Parameters, Time

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["audit"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_AUDIT))]


NEWEST_FIRST: Order[StoredEntry] = Order(
    lambda entry: entry.place.at,
    audit.encode_place,
    lambda cursor: audit.decode_cursor(cursor).at,
    descending=True,
)


class AuditQuery(Parameters):
    """Filters of the audit log."""

    actor: str | None = None
    principal_id: Id | None = None
    action: str | None = None
    resource_type: str | None = None
    resource_id: str | None = None
    after: Time | None = None
    before: Time | None = None
    limit: int = Field(50, ge=1, le=audit.MAX_PAGE)
    cursor: str | None = Field(None, max_length=1000)

    def filter(self) -> AuditFilter:
        """The filter for the action."""
        return AuditFilter(**self.model_dump(exclude={"limit", "cursor"}))


@router.get("/audit")
async def list_entries(query: Annotated[AuditQuery, Query()], caller: Reader) -> AuditPage:
    """The audit log, newest first."""

    async def read(tx: Tx, page: AuditQuery) -> Part[StoredEntry]:
        found = await audit.list_entries(
            tx, caller.principal, page.filter(), limit=page.limit, cursor=page.cursor
        )
        return Part(found.items, found.next_cursor)

    found = await read_merged(caller, query, read, NEWEST_FIRST)
    return AuditPage(list(found.items), found.next_cursor)
