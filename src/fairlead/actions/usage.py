"""Read usage."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec.structs import asdict, replace

from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission, Principal
from fairlead.model.request import unknown_tenant
from fairlead.model.schedule.zone import load_zone
from fairlead.model.spreadsheet import format_csv
from fairlead.model.usage import (
    FIGURES,
    By,
    Per,
    Period,
    Usage,
    UsageFigures,
    parse_choice,
    period,
    sum_usage,
)
from fairlead.store import tenants, usage

MOST_ROWS = 20_000
COLUMNS = ("starts_at", "tenant", "definition_key", *FIGURES)


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a period: by step, the newest first, and in total."""

    period: Period
    timezone: str
    items: Sequence[Usage]
    totals: UsageFigures

    def as_csv(self) -> str:
        """The items as CSV, safe for spreadsheets."""
        return format_csv(COLUMNS, ([getattr(one, name) for name in COLUMNS] for one in self.items))


async def report_usage(
    tx: Tx,
    principal: Principal,
    *,
    tenant: str | None = None,
    by: str = By.HOUR,
    per: str = Per.DEFINITION,
    since: datetime | None = None,
    until: datetime | None = None,
    timezone: str | None = None,
) -> UsageReport:
    """The usage in steps of an hour, a day or a month: of a tenant, or of all that the principal may see.

    The steps are in the given time zone, else in the tenant's, else in UTC.
    """
    step, apart = parse_choice(By, "by", by), parse_choice(Per, "per", per)
    tenant_id = await _resolve_scope(tx, principal, tenant)
    clock = await usage.read_clock(tx, tenant_id=tenant_id)
    where = load_zone(timezone or clock.timezone or "UTC")
    wanted = period(by=step, where=where, now=clock.now, since=since, until=until)
    found = await usage.list_usage(tx, wanted, tenant_id=tenant_id, per=apart, limit=MOST_ROWS + 1)
    if len(found) > MOST_ROWS:
        why = f"that would be more than {MOST_ROWS} lines: ask for less time, longer steps, or per `nothing`"
        raise InvalidInput(f"from: {why}.", [Fault("from", why)])
    return UsageReport(period=wanted, timezone=str(where), items=found, totals=sum_usage(found))


def add_reports(reports: Sequence[UsageReport]) -> UsageReport:
    """The report of several cells, whose reports are of the same period."""
    items: dict[tuple[datetime, str, str], list[Usage]] = {}
    for one in (used for report in reports for used in report.items):
        items.setdefault((one.starts_at, one.definition_key or "", one.tenant or ""), []).append(one)
    rows = [
        replace(used[0], **asdict(sum_usage(used)))
        for _, used in sorted(items.items(), key=lambda item: (-item[0][0].timestamp(), *item[0][1:]))
    ]
    return replace(reports[0], items=rows, totals=sum_usage(rows))


async def _resolve_scope(tx: Tx, principal: Principal, tenant: str | None) -> UUID | None:
    wanted = principal.tenant_id
    if tenant is not None:
        found = await tenants.get_ids(tx, [tenant])
        if tenant not in found:
            raise unknown_tenant(tenant)
        wanted = found[tenant]
    principal.require(Permission.READ_USAGE, wanted)
    return wanted
