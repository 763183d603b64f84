"""Definitions: the kinds of work that may be run."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from msgspec.structs import asdict

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.definition import Definition, DefinitionSpec
from fairlead.model.page import Page
from fairlead.model.secrets.redact import secret_paths
from fairlead.store import bounded_page

sql = queries_beside(__file__)


async def list_all(tx: Tx) -> list[Definition]:
    return await tx.all(Definition, sql.every)


async def list_page(tx: Tx, *, tenant_id: UUID | None = None, after: str, limit: int) -> Page[Definition]:
    """The definitions that a tenant can use, or (None) all, ordered by key, after the given key."""
    values = {"tenant_id": tenant_id, "after": after}
    return await bounded_page.fetch_page(
        tx, Definition, sql.page, values, limit=limit, weighed=("arg_schema", "description")
    )


async def get(tx: Tx, name: str) -> Definition | None:
    """A definition by key or id."""
    return await tx.first(Definition, sql.get, {"name": name})


async def get_by_keys(tx: Tx, keys: Iterable[str]) -> dict[str, Definition]:
    """Those of the keys that exist."""
    return {found.key: found for found in await tx.all(Definition, sql.by_keys, {"keys": list(keys)})}


async def get_ids(tx: Tx, keys: Iterable[str] | None, *, tenant_id: UUID | None = None) -> dict[str, UUID]:
    """The ids of the keys (None: all) that a tenant can use, or (None) that exist."""
    values = {"keys": None if keys is None else list(keys), "tenant_id": tenant_id}
    return {str(key): found for key, found in await tx.values(sql.ids, values)}


async def upsert(tx: Tx, spec: DefinitionSpec) -> Definition | None:
    """Write the definition; None if it does not change."""
    values = asdict(spec) | {
        "arg_schema": json_text(spec.arg_schema),
        "backoff": json_text(asdict(spec.backoff)),
        **{
            name: json_text(value) if value else None
            for name, value in (
                ("rate", spec.rate),
                ("rate_per_tenant", spec.rate_per_tenant),
                ("by_key", spec.by_key),
                ("requires", spec.requires),
                ("prefers", spec.prefers),
            )
        },
        "secret_paths": secret_paths(spec.arg_schema),
    }
    await tx.values(sql.hold_new, {"key": spec.key})
    changed = await tx.first(Definition, sql.put, values)
    if changed is not None and changed.version > 1 and await tx.values(sql.wake_keys, {"id": changed.id}):
        tx.notify("later")
    return changed


async def add_tenant(tx: Tx, key: str, *, tenant_id: UUID) -> None:
    """Add a tenant to those that can use a definition, or make it the only one."""
    await tx.run(sql.share, {"key": key, "tenant_id": tenant_id})


async def set_tenants(tx: Tx, key: str, tenants: Sequence[UUID] | None) -> Definition | None:
    """Let only these tenants, or (None) all, use a definition; None if it does not change."""
    values = {"key": key, "tenants": None if tenants is None else list(tenants)}
    return await tx.first(Definition, sql.limit, values)


async def retire(tx: Tx, key: str) -> None:
    """Deactivate a definition that belongs to certain tenants and that no trigger uses any more."""
    # a separate statement: the next one sees the triggers of the transaction that held the row before
    await tx.values(sql.hold, {"key": key})
    await tx.run(sql.retire, {"key": key})
