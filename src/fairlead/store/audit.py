"""The audit log: who did what to which, written beside the change itself."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text

sql = queries_beside(__file__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    at: datetime
    tenant_id: UUID | None
    actor: str
    action: str
    resource_type: str
    resource_id: str | None
    details: Any


async def write(
    tx: Tx,
    *,
    actor: str,
    action: str,
    resource_type: str,
    resource_id: object = None,
    tenant_id: UUID | None = None,
    details: dict[str, Any] | None = None,
) -> None:
    """One entry, in this transaction."""
    await tx.run(
        sql.write,
        {
            "tenant_id": tenant_id,
            "actor": actor,
            "action": action,
            "resource_type": resource_type,
            "resource_id": None if resource_id is None else str(resource_id),
            "details": json_text(details or {}),
        },
    )


async def recent(tx: Tx, *, tenant_id: UUID | None = None, limit: int = 100) -> list[Entry]:
    """The newest entries first."""
    return await tx.all(Entry, sql.recent, {"tenant_id": tenant_id, "limit": limit})
