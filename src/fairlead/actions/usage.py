"""Reading usage."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission, Principal
from fairlead.model.request import unknown_tenant
from fairlead.model.spreadsheet import as_csv
from fairlead.model.usage import FIGURES, By, Per, Period, Usage, Used, one_of, period, total
from fairlead.model.zone import zone
from fairlead.store import tenants, usage

MOST_ROWS = 20_000
COLUMNS = ("starts_at", "tenant", "definition_key", *FIGURES)


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was used in some time: the newest first, and all of it together."""

    period: Period
    timezone: str
    items: Sequence[Usage]
    totals: Used

    def as_csv(self) -> str:
        """The items, for a spreadsheet."""
        return as_csv(COLUMNS, ([getattr(one, name) for name in COLUMNS] for one in self.items))


async def report(
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
    """What runs used, in steps of an hour, a day or a month: of a tenant, or of all that the principal may see.

    The steps are those of the zone that is named, else of the tenant's, else of UTC.
    """
    step, apart = one_of(By, "by", by), one_of(Per, "per", per)
    tenant_id = await _scope(tx, principal, tenant)
    clock = await usage.clock(tx, tenant_id=tenant_id)
    where = zone(timezone or clock.timezone or "UTC")
    wanted = period(by=step, where=where, now=clock.now, since=since, until=until)
    found = await usage.used(tx, wanted, tenant_id=tenant_id, per=apart, limit=MOST_ROWS + 1)
    if len(found) > MOST_ROWS:
        why = f"that would be more than {MOST_ROWS} lines: ask for less time, longer steps, or per `nothing`"
        raise InvalidInput(f"from: {why}.", [Fault("from", why)])
    return UsageReport(period=wanted, timezone=str(where), items=found, totals=total(found))


async def _scope(tx: Tx, principal: Principal, tenant: str | None) -> UUID | None:
    wanted = principal.tenant_id
    if tenant is not None:
        found = await tenants.ids(tx, [tenant])
        if tenant not in found:
            raise unknown_tenant(tenant)
        wanted = found[tenant]
    principal.require(Permission.READ_USAGE, wanted)
    return wanted
