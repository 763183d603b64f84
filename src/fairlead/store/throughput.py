"""The number of jobs that ended in each time step: for charts."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)

# Minutes are kept for so long.
DAY_SECONDS = 86_400


class ThroughputStep(msgspec.Struct, frozen=True):
    """The number of jobs that succeeded and failed in the step that starts at `at`, without jobs that were retried by hand."""

    at: datetime
    succeeded: int
    failed: int


class TenantEnds(msgspec.Struct, frozen=True):
    """The number of a tenant's jobs that succeeded and failed, without jobs that were retried by hand."""

    tenant_id: UUID
    succeeded: int
    failed: int


async def list_steps(tx: Tx, *, tenant_id: UUID | None, seconds: int, step: int) -> list[ThroughputStep]:
    """The last `seconds` of a tenant or (None) of all, in steps; the oldest first."""
    return await tx.all(ThroughputStep, sql.flow, {"tenant_id": tenant_id, "seconds": seconds, "step": step})


async def list_definition_steps(
    tx: Tx, definition_id: UUID, *, tenant_id: UUID | None, seconds: int, step: int
) -> list[ThroughputStep]:
    """The last `seconds` of a definition, of a tenant or (None) of all; more than a day is read by the hour."""
    values = {
        "definition_id": definition_id,
        "tenant_id": tenant_id,
        "seconds": seconds,
        "step": step,
        "hourly": seconds > DAY_SECONDS,
    }
    return await tx.all(ThroughputStep, sql.definition_flow, values)


async def count_ends(tx: Tx, tenants: Sequence[UUID], *, seconds: int) -> list[TenantEnds]:
    """The jobs of each of these tenants that ended in the last `seconds`."""
    await tx.prefer_indexes()
    return await tx.all(TenantEnds, sql.ended, {"tenants": list(tenants), "seconds": seconds})
