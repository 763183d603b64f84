"""Usage of tenants by hour."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.fairness import HourOfTenant
from fairlead.model.usage import Per, Period, Usage

sql = queries_beside(__file__)


class TenantClock(msgspec.Struct, frozen=True):
    """The database's time, and a tenant's zone."""

    now: datetime
    timezone: str | None


async def read_clock(tx: Tx, *, tenant_id: UUID | None) -> TenantClock:
    [found] = await tx.all(TenantClock, sql.clock, {"tenant_id": tenant_id})
    return found


async def list_usage(
    tx: Tx, period: Period, *, tenant_id: UUID | None, per: Per, limit: int | None = None
) -> list[Usage]:
    """The usage of each step with any, of a tenant or (None) of all; the newest first."""
    values = {
        "tenant_id": tenant_id,
        "since": period.since,
        "until": period.until,
        "starts": list(period.starts),
        "per": per.value,
        "limit": limit,
    }
    found = await tx.all(Usage, sql.used, values)
    # by timestamp: a repeated hour at the end of daylight saving time compares unequal
    shown = {start.timestamp(): start for start in period.starts}
    return [replace(one, starts_at=shown[one.starts_at.timestamp()]) for one in found]


async def list_run_time(tx: Tx, *, since: datetime, most: int) -> list[HourOfTenant]:
    """The run time by hour of the `most` tenants that ran longest since then."""
    return await tx.all(HourOfTenant, sql.run_time, {"since": since, "most": most})


# Events for triggers


class ClosingHour(NamedTuple):
    """An hour that has begun: usage before it is visible when all transactions with lower ids have ended."""

    hour: datetime
    numbered: str


class UsageListener(NamedTuple):
    """A tenant with a trigger for its usage, and the hour up to which events were emitted."""

    tenant_id: UUID
    until: datetime


async def read_closing_hour(tx: Tx) -> ClosingHour:
    [found] = await tx.values(sql.closing)
    return ClosingHour(*found)


async def is_closed(tx: Tx, closing: ClosingHour) -> bool:
    """Whether all usage before that hour is visible now."""
    [(done,)] = await tx.values(sql.closed, {"numbered": closing.numbered})
    return bool(done)


async def seconds_until_next_hour(tx: Tx) -> float:
    """The seconds until the next hour."""
    [(seconds,)] = await tx.values(sql.until_next_hour)
    return float(seconds)


async def list_listeners(tx: Tx, *, name: str, hour: datetime, limit: int) -> list[UsageListener]:
    """Tenants with triggers for this event that lack events of hours before this one."""
    found = await tx.values(sql.listeners, {"name": name, "hour": hour, "limit": limit})
    return [UsageListener(*one) for one in found]


async def emit_hours(
    tx: Tx, *, name: str, tenant_id: UUID, hours: Sequence[tuple[datetime, Any]], until: datetime
) -> None:
    """Emit an event for each hour, and store up to which hour the tenant has its events."""
    documents = json_text([{"hour": hour, "data": data} for hour, data in hours])
    values = {"name": name, "tenant_id": tenant_id, "hours": documents, "until": until}
    await tx.run(sql.tell, values)
    if hours:
        tx.notify("event")
