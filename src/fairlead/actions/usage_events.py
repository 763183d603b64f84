"""Emit the usage of tenants: one `usage.recorded` event for every past hour with any usage.

Exact and exactly once: an hour's event is emitted when every transaction that may have ended a run in it has ended, and
in the same transaction the tenant's hour is stored. Only tenants with a trigger for it get events.
"""

from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from fairlead.db.tx import Tx
from fairlead.model.usage import USAGE_RECORDED, Per, build_hourly_period, build_usage_event
from fairlead.store import usage
from fairlead.store.usage import ClosingHour, UsageListener

# The most tenants in one transaction, and the most time of each.
TENANTS = 20
LONGEST = timedelta(days=7)
AGAIN_SECONDS = 15.0
AFTER_THE_HOUR_SECONDS = 1.0


class EmitProgress(NamedTuple):
    """The seconds until the next call, and whether all past hours have their events."""

    seconds: float
    done: bool


async def note_hour(tx: Tx) -> str:
    """A note of the current hour and transaction, for `emit_usage`."""
    closing = await usage.read_closing_hour(tx)
    return f"{closing.hour.isoformat()} {closing.numbered}"


async def emit_usage(tx: Tx, note: str) -> EmitProgress:
    """Emit the events of the hours before the noted one, or as many as one transaction should."""
    hour, _, numbered = note.partition(" ")
    closing = ClosingHour(datetime.fromisoformat(hour), numbered)
    if not await usage.is_closed(tx, closing):
        return EmitProgress(AGAIN_SECONDS, done=False)
    listeners = await usage.list_listeners(tx, name=USAGE_RECORDED, hour=closing.hour, limit=TENANTS)
    for one in listeners:
        await _emit_tenant_usage(tx, one, closing.hour)
    if listeners:
        return EmitProgress(0.0, done=False)
    return EmitProgress(await usage.seconds_until_next_hour(tx) + AFTER_THE_HOUR_SECONDS, done=True)


async def _emit_tenant_usage(tx: Tx, listener: UsageListener, hour: datetime) -> None:
    until = min(hour, listener.until + LONGEST)
    period = build_hourly_period(listener.until, until)
    used = await usage.list_usage(tx, period, tenant_id=listener.tenant_id, per=Per.DEFINITION)
    used.reverse()  # the oldest first
    hours = [
        (start, build_usage_event(start, sorted(items, key=lambda one: str(one.definition_key))))
        for start, items in groupby(used, key=lambda one: one.starts_at)
    ]
    await usage.emit_hours(tx, name=USAGE_RECORDED, tenant_id=listener.tenant_id, hours=hours, until=until)
