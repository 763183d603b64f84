"""Error groups: list, show, retry, discard, mute."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from msgspec.structs import asdict
from pydantic import Field

from fairlead.actions import bulk_jobs, error_groups
from fairlead.actions.error_groups import GroupChange, GroupFilter, JobChoice
from fairlead.db.tx import Tx
from fairlead.model.access import Permission
from fairlead.model.error_groups import LONGEST_NOTE, ErrorGroup, ErrorHour, GroupOrder, GroupState
from fairlead.model.job import JobStatus
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.merged_lists import Order, Part, read_merged
from fairlead.server.paging import PageQuery
from fairlead.server.problems import PREFIX
from fairlead.server.views import Body, Listing, OneOf, ReadableText, Time

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["errors"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_JOBS))]
Writer = Annotated[Caller, Depends(Requires(Permission.WRITE_JOBS))]

# The number of groups that a list looks at.
MOST_OFFSET = 2000


class ErrorsQuery(PageQuery):
    """Filters of error groups, and the page."""

    limit: int = Field(50, ge=1, le=error_groups.MAX_PAGE)
    definition_key: ReadableText | None = None
    status: OneOf[JobStatus] | None = Field(
        None, description="`failed` or `dead_letter`: groups with such jobs."
    )
    since: Time | None = Field(None, description="Groups that failed since this time.")
    state: OneOf[GroupState] = Field(
        GroupState.OPEN, description="`open`: with failed jobs and not muted; `muted`; `all`."
    )
    order: OneOf[GroupOrder] = GroupOrder.LAST_SEEN
    q: ReadableText | None = Field(None, min_length=1, max_length=200, description="A part of the error.")

    def filter(self) -> GroupFilter:
        """The filter for the action."""
        return GroupFilter(
            definition_key=self.definition_key,
            status=self.status,
            since=self.since,
            state=self.state,
            q=self.q,
        )


class ChoiceBody(Body):
    """The jobs of a group to change: those that failed since a time, with a status; all of them if neither is given."""

    since: Time | None = None
    status: OneOf[JobStatus] | None = None
    limit: int = Field(default=bulk_jobs.MOST, ge=1, le=bulk_jobs.MOST)

    def choice(self) -> JobChoice:
        """The choice for the action."""
        return JobChoice(since=self.since, status=self.status)


class MuteBody(Body):
    """How long to mute a group: until a time, until its definition changes, or (neither) until it is unmuted."""

    until: Time | None = None
    until_change: bool = False
    note: ReadableText | None = Field(default=None, max_length=LONGEST_NOTE)


class ErrorGroupDetails(ErrorGroup, frozen=True, kw_only=True):
    """An error group with its newest error in full, and its failures by hour for a week."""

    sample: str
    hours: list[ErrorHour]


@router.get("/errors")
async def list_groups(query: Annotated[ErrorsQuery, Query()], caller: Reader) -> Listing[ErrorGroup]:
    """Error groups: failed jobs of one definition whose errors differ only in numbers and ids."""
    order: Order[tuple[int, ErrorGroup]] = Order(
        lambda one: query.order.key_of(one[1]), lambda one: str(one[0]), None, descending=True
    )

    async def read(tx: Tx, page: ErrorsQuery) -> Part[tuple[int, ErrorGroup]]:
        offset = min(page.after_number, MOST_OFFSET)
        found = await error_groups.list_groups(
            tx, caller.principal, page.filter(), order=page.order, limit=page.limit, offset=offset
        )
        rows = list(enumerate(found, start=offset + 1))
        return Part(rows, str(offset + len(found)) if found.more else None)

    found = await read_merged(caller, query, read, order)
    return Listing([group for _, group in found.items], found.next_cursor)


@router.get("/errors/{group_id}")
async def show_group(group_id: UUID, caller: Reader) -> ErrorGroupDetails:
    """An error group, with its newest error in full and its trend."""
    async with caller.transaction() as tx:
        group = await error_groups.get(tx, caller.principal, group_id)
        sample = await error_groups.get_sample(tx, caller.principal, group)
        hours = await error_groups.list_hours(tx, caller.principal, [group])
    return ErrorGroupDetails(**asdict(group), sample=sample, hours=hours[group.id])


@router.post("/errors/{group_id}/retry")
async def retry_group(group_id: UUID, caller: Writer, body: ChoiceBody | None = None) -> GroupChange:
    """Retry the jobs of an error group. Repeat the request while `more` is true and `count` is not 0."""
    chosen = body or ChoiceBody()
    async with caller.transaction() as tx:
        return await error_groups.retry(tx, caller.principal, group_id, chosen.choice(), limit=chosen.limit)


@router.post("/errors/{group_id}/discard")
async def discard_group(group_id: UUID, caller: Writer, body: ChoiceBody | None = None) -> GroupChange:
    """Take jobs out of an error group. The jobs themselves stay as they are."""
    chosen = body or ChoiceBody()
    async with caller.transaction() as tx:
        return await error_groups.discard(tx, caller.principal, group_id, chosen.choice(), limit=chosen.limit)


@router.post("/errors/{group_id}/mute")
async def mute_group(group_id: UUID, caller: Writer, body: MuteBody | None = None) -> ErrorGroup:
    """Mute an error group: it is not among the open ones."""
    how = body or MuteBody()
    async with caller.transaction() as tx:
        return await error_groups.mute(
            tx, caller.principal, group_id, until=how.until, until_change=how.until_change, note=how.note
        )


@router.post("/errors/{group_id}/unmute")
async def unmute_group(group_id: UUID, caller: Writer) -> ErrorGroup:
    """End the muting of an error group."""
    async with caller.transaction() as tx:
        return await error_groups.unmute(tx, caller.principal, group_id)
