"""Connections that server processes hold open for tenants: long polls, live sockets, followed logs."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.quota import Quota

sql = queries_beside(__file__)


class ConnectionQuota(NamedTuple):
    """One quota of one tenant."""

    tenant_id: UUID
    quota: Quota


class QuotaStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The number that other processes hold of a quota, and the tenant's own quotas."""

    tenant_id: UUID
    quota: Quota
    own: dict[str, int]
    others: int


async def store_counts(
    tx: Tx, server_id: UUID, held: Mapping[ConnectionQuota, int], *, seconds: float
) -> dict[ConnectionQuota, QuotaStanding]:
    """Store the number of connections that this process holds, valid for `seconds`; returns the other processes' numbers."""
    values = {
        "server_id": server_id,
        "tenants": [key.tenant_id for key in held],
        "quotas": [key.quota.value for key in held],
        "held": list(held.values()),
        "seconds": seconds,
    }
    return {
        ConnectionQuota(one.tenant_id, one.quota): one
        for one in await tx.all(QuotaStanding, sql.tell, values)
    }


async def count_connections(tx: Tx, tenant_id: UUID) -> dict[str, int]:
    """The number of connections that all processes hold for a tenant, by quota."""
    return dict(await tx.values(sql.held, {"tenant_id": tenant_id}))


async def remove_server(tx: Tx, server_id: UUID) -> None:
    """Remove the rows of this process."""
    await tx.run(sql.leave, {"server_id": server_id})


async def remove_expired(tx: Tx) -> None:
    """Remove the rows of dead processes."""
    await tx.run(sql.forget)
