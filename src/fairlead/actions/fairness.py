"""Fairness between tenants over the last hours."""

from datetime import datetime, timedelta

import msgspec

from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.model.fairness import TenantFairness, compare_over_time
from fairlead.store import usage

HOURS = 24
MOST_TENANTS = 20


class FairnessReport(msgspec.Struct, frozen=True):
    """The last hours, the oldest first, and the tenants with the most run time in them."""

    hours: list[datetime]
    tenants: list[TenantFairness]


async def compare_hours(tx: Tx, principal: Principal) -> FairnessReport:
    """The share of the run time of each tenant in the last 24 hours, against the share that its weight gives it."""
    principal.require(Permission.READ_QUEUE)
    now = (await usage.read_clock(tx, tenant_id=None)).now
    last = now.replace(minute=0, second=0, microsecond=0)
    hours = [last - timedelta(hours=ago) for ago in reversed(range(HOURS))]
    rows = await usage.list_run_time(tx, since=hours[0], most=MOST_TENANTS)
    return FairnessReport(hours, compare_over_time(rows))
