"""Read the audit log for an export, the oldest entry first, and record the export in it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

import msgspec

from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission, Principal
from fairlead.model.audit_chain import VerifiedExport
from fairlead.store import audit
from fairlead.store.audit import StoredEntry

ACTION = "audit_exported"
PAGE_ROWS = 1000
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
# Of all tenants, each tenant's entries of a time span are read. The span grows and shrinks with what it holds.
_FIRST_SPAN, _SHORTEST_SPAN, _LONGEST_SPAN = (
    timedelta(hours=1),
    timedelta(milliseconds=1),
    timedelta(days=3650),
)

Transactions = Callable[[], AbstractAsyncContextManager[Tx]]


class ExportRange(msgspec.Struct, frozen=True, kw_only=True):
    """The entries of an export: from `since` (None: all) until before `until`."""

    since: datetime | None
    until: datetime


async def plan(
    tx: Tx, principal: Principal, *, since: datetime | None, until: datetime | None
) -> ExportRange:
    """The range of an export; without an end, it ends now."""
    principal.require(Permission.READ_AUDIT, principal.tenant_id)
    now = await audit.read_clock(tx)
    if until is not None and until > now:
        raise InvalidInput("until: must not be in the future.", [Fault("until", "must not be in the future")])
    planned = ExportRange(since=since, until=until or now)
    if since is not None and since > planned.until:
        raise InvalidInput("since: must be before the end.", [Fault("since", "must be before the end")])
    return planned


async def read_entries(
    open_transaction: Transactions, principal: Principal, planned: ExportRange
) -> AsyncIterator[list[StoredEntry]]:
    """The entries of the range in pages, the oldest first: of the principal's tenant, or of all. A transaction a page."""
    principal.require(Permission.READ_AUDIT, principal.tenant_id)
    start, place, span = planned.since or _EARLIEST, None, _FIRST_SPAN
    while start < planned.until:
        end = planned.until if principal.tenant_id else min(planned.until, start + span)
        async with open_transaction() as tx:
            found = await audit.list_oldest(
                tx, tenant_id=principal.tenant_id, since=start, until=end, place=place, limit=PAGE_ROWS
            )
        if found:
            yield found
        if found.last is None:
            start, place, span = end, None, min(span * 2, _LONGEST_SPAN)
        else:
            start, place, span = found.last.at, found.last.place, max(span / 4, _SHORTEST_SPAN)


async def record_export(
    tx: Tx, principal: Principal, planned: ExportRange, *, entries: int, last_hash: str, key: str
) -> None:
    """Write into the audit log that it was exported, with the last hash: the log itself then attests the export."""
    principal.require(Permission.READ_AUDIT, principal.tenant_id)
    await audit.write(
        tx,
        actor=principal.actor,
        action=ACTION,
        resource_type="audit",
        tenant_id=principal.tenant_id,
        principal_id=principal.id,
        details={
            "since": planned.since and planned.since.isoformat(),
            "until": planned.until.isoformat(),
            "entries": entries,
            "last_hash": last_hash,
            "key": key,
        },
    )


def check_following(before: VerifiedExport, after: VerifiedExport) -> str | None:
    """Why an export does not continue another one; None if it does."""
    if after.about.get("previous") != before.last_hash:
        return "it does not continue the file before it: an export is missing between them, or they are in the wrong order"
    if after.about.get("since") != before.about.get("until"):
        return "it does not begin where the file before it ends"
    if after.about.get("tenant_id") != before.about.get("tenant_id"):
        return "it is of another tenant than the file before it"
    return None
