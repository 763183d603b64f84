"""The audit log: who did what to which resource, written in the transaction of the change."""

from datetime import datetime
from typing import Annotated, Any, NamedTuple, cast
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.field import Internal
from fairlead.model.page import Page
from fairlead.model.secrets.redact import Mask
from fairlead.placement import require_writable
from fairlead.store import bounded_page

sql = queries_beside(__file__)


def _insert_scopes(query: str, page: str) -> str:
    """The query with the pages that it is made of: of one tenant, of each tenant, of none."""
    scopes = {
        "<of one>": "a.tenant_id = %(tenant_id)s",
        "<of each>": "a.tenant_id = t.id",
        "<of none>": "a.tenant_id is null",
    }
    for place, scope in scopes.items():
        query = query.replace(place, page.replace("<scope>", scope))
    return query


_OF_TENANT = _insert_scopes(sql.of_tenant, sql.page)
_OF_ALL = _insert_scopes(sql.of_all, sql.page)
_OLDEST_OF_TENANT = _insert_scopes(sql.oldest_of_tenant, sql.oldest)
_OLDEST_OF_ALL = _insert_scopes(sql.oldest_of_all, sql.oldest)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    tenant_id: UUID | None
    actor: str
    action: str
    resource_type: str
    resource_id: str | None
    details: Any
    # None for programs with the database's own credentials
    principal_id: Annotated[
        UUID | None, msgspec.Meta(description="The id of the user or token; names are not unique.")
    ]


async def write(
    tx: Tx,
    *,
    actor: str,
    action: str,
    resource_type: str,
    resource_id: object = None,
    tenant_id: UUID | None = None,
    details: dict[str, Any] | None = None,
    principal_id: UUID | None = None,
) -> None:
    """Write one entry in this transaction, with redact patterns masked. The default principal is the transaction's.

    TenantMoving or TenantMoved if the tenant cannot be changed in this cell.
    """
    masked = Mask((), tx.redact_patterns).value(details or {}) if tx.redact_patterns else details or {}
    [[elsewhere]] = await tx.values(
        sql.write,
        {
            "tenant_id": tenant_id,
            "actor": actor,
            "principal_id": principal_id,
            "action": action,
            "resource_type": resource_type,
            "resource_id": None if resource_id is None else str(resource_id),
            "details": json_text(masked),
        },
    )
    if elsewhere is not None:
        require_writable(*elsewhere)


async def list_recent(tx: Tx, *, tenant_id: UUID | None = None, limit: int = 100) -> list[Entry]:
    """The newest entries first."""
    return await tx.all(Entry, sql.recent, {"tenant_id": tenant_id, "limit": limit})


class StoredEntry(Entry, frozen=True, kw_only=True):
    """An entry with its position in the log."""

    tenant: str | None
    ip: str | None
    part: Internal[int]
    spot: Internal[str]
    n: Internal[int]

    @property
    def place(self) -> "AuditPosition":
        return AuditPosition(self.at, self.part, self.spot, self.n)


class AuditPosition(NamedTuple):
    """The end of a page: the time of its last entry, that row's partition and ctid, and the place of its job in the row."""

    at: datetime
    part: int
    spot: str
    n: int = 0

    @classmethod
    def before_all_of(cls, at: datetime) -> "AuditPosition":
        """The position from which every entry of this time, and each older one, follows."""
        return cls(at, 2**32 - 1, "(4294967295,65535)", 2**31 - 1)


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The entries to list. None means any; both times are exclusive."""

    actor: str | None = None
    principal_id: UUID | None = None
    action: str | None = None
    # any of these actions
    actions: list[str] | None = None
    # a part of the actor's name, and of the details
    actor_part: str | None = None
    text: str | None = None
    resource_type: str | None = None
    resource_id: str | None = None
    after: datetime | None = None
    before: datetime | None = None

    @property
    def is_selective(self) -> bool:
        """Whether it can pass over entries of its time."""
        values = asdict(self)
        return any(values[name] is not None for name in values if name not in ("after", "before"))


async def find_horizon(
    tx: Tx, *, tenant_id: UUID | None, until: datetime | None, look: int
) -> datetime | None:
    """The time after which there are about `look` entries until a time: of a tenant, or (None) of all. None: there are fewer."""
    await tx.prefer_indexes()
    query = sql.horizon_of_all if tenant_id is None else sql.horizon_of_tenant
    found = await tx.values(query, {"tenant_id": tenant_id, "until": until, "look": look})
    return found[0][0] if found else None


async def list_entries(
    tx: Tx, wanted: AuditFilter, *, tenant_id: UUID | None, place: AuditPosition | None, limit: int
) -> Page[StoredEntry]:
    """Entries after a position, the newest first: of a tenant, or (None) of all tenants and of the system."""
    values = asdict(wanted) | {"tenant_id": tenant_id, **_place_values(place)}
    await tx.prefer_indexes()
    query = _OF_ALL if tenant_id is None else _OF_TENANT
    return await bounded_page.fetch_page(
        tx, StoredEntry, query, values, limit=limit, weighed_json=("details",)
    )


async def list_oldest(
    tx: Tx,
    *,
    tenant_id: UUID | None,
    since: datetime,
    until: datetime,
    place: AuditPosition | None,
    limit: int,
) -> Page[StoredEntry]:
    """Entries from `since` until before `until` and after a position, the oldest first: of a tenant, or (None) of all."""
    values = {"tenant_id": tenant_id, "since": since, "until": until, **_place_values(place)}
    await tx.prefer_indexes()
    query = _OLDEST_OF_ALL if tenant_id is None else _OLDEST_OF_TENANT
    return await bounded_page.fetch_page(
        tx, StoredEntry, query, values, limit=limit, weighed_json=("details",)
    )


def _place_values(place: AuditPosition | None) -> dict[str, Any]:
    at, part, spot, n = place or (None, None, None, None)
    return {"place_at": at, "place_part": part, "place_spot": spot, "place_n": n}


async def read_clock(tx: Tx) -> datetime:
    """The database's time."""
    [[now]] = await tx.values(sql.clock)
    return cast("datetime", now)


async def list_entries_about(
    tx: Tx,
    resource_type: str,
    resource_id: object,
    *,
    tenant_id: UUID,
    since: datetime,
    until: datetime | None = None,
    look: int = 2000,
    limit: int = 50,
) -> Page[Entry]:
    """The entries about one resource of a tenant, the newest first, from the first and last `look` entries of its lifetime."""
    values = {
        "resource_type": resource_type,
        "resource_id": str(resource_id),
        "tenant_id": tenant_id,
        "since": since,
        "until": until,
        "look": look,
    }
    await tx.prefer_indexes()
    return await bounded_page.fetch_page(tx, Entry, sql.about, values, limit=limit, weighed_json=("details",))
