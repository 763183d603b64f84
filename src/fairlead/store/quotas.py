"""The use of quotas by tenants."""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.quota import settings_for_jobs

sql = queries_beside(__file__)

NOWHERE = UUID(int=0)
# The number of jobs of each tenant that are measured.
LOOK = 500
# The most steps and signals of these jobs that are measured.
LOOK_STEPS = 20_000


async def find_refusals(
    tx: Tx, *, tenants: Mapping[UUID, int], runs: Mapping[UUID, int] | None = None
) -> dict[UUID, dict[str, Any]]:
    """The tenants and runs that may not have these numbers of new jobs: the quota, its use and its limit, by id."""
    runs = runs or {}
    values = {
        "tenants": list(tenants),
        "tenant_jobs": list(tenants.values()),
        "runs": list(runs),
        "run_jobs": list(runs.values()),
        "settings": json_text(settings_for_jobs(tx.settings)),
    }
    return {key: refusal for key, refusal in await tx.values(sql.room, values) if refusal is not None}


async def find_root_runs(tx: Tx, job_ids: Collection[UUID]) -> dict[UUID, UUID]:
    """The root runs of those of the jobs that belong to one."""
    return dict(await tx.values(sql.roots, {"jobs": list(job_ids)}))


async def assign_root_runs(tx: Tx, jobs: Mapping[UUID, UUID]) -> None:
    """Store the root runs of new jobs, and count the jobs there."""
    if jobs:
        await tx.run(sql.belong, {"jobs": list(jobs), "roots": list(jobs.values())})


async def get_own_quotas(tx: Tx, tenant_id: UUID) -> dict[str, int]:
    """A tenant's own quotas."""
    rows = await tx.values(sql.quotas, {"tenant_id": tenant_id})
    return dict(rows[0][0]) if rows else {}


async def set_own_quotas(tx: Tx, tenant_id: UUID, quotas: Mapping[str, int]) -> None:
    await tx.run(sql.change, {"tenant_id": tenant_id, "quotas": json_text(quotas)})


async def count_triggers(tx: Tx, tenant_id: UUID, *, most: int) -> int:
    """The number of a tenant's triggers, counted up to `most`."""
    [(number,)] = await tx.values(sql.triggers, {"tenant_id": tenant_id, "most": most})
    return int(number)


async def count_tokens(tx: Tx, tenant_id: UUID, *, most: int) -> int:
    """The number of a tenant's valid tokens, counted up to `most`."""
    [(number,)] = await tx.values(sql.tokens, {"tenant_id": tenant_id, "most": most})
    return int(number)


async def get_stored_bytes(tx: Tx, tenant_id: UUID) -> int:
    """The bytes of a tenant's jobs at the last measurement."""
    rows = await tx.values(sql.stored_bytes, {"tenant_id": tenant_id})
    return int(rows[0][0]) if rows else 0


async def measure_bytes(tx: Tx, *, place: UUID | None, limit: int) -> UUID | None:
    """Measure the bytes of up to `limit` tenants after this one. The last of them; None if there are no more."""
    values = {
        "place": place or NOWHERE,
        "limit": limit,
        "look": LOOK,
        "look_steps": LOOK_STEPS,
        "settings": json_text(settings_for_jobs(tx.settings)),
    }
    rows = await tx.values(sql.measure, values)
    return rows[0][0] if rows else None
