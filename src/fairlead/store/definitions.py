"""Definitions: the kinds of work that may be run."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from msgspec.structs import asdict

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.definition import Definition, DefinitionSpec
from fairlead.model.page import Page
from fairlead.model.redact import secret_paths
from fairlead.store import bounded

sql = queries_beside(__file__)


async def every(tx: Tx) -> list[Definition]:
    return await tx.all(Definition, sql.every)


async def page(tx: Tx, *, tenant_id: UUID | None = None, after: str, limit: int) -> Page[Definition]:
    """The definitions that a tenant can use, or (None) all, by key, after this one."""
    values = {"tenant_id": tenant_id, "after": after}
    return await bounded.page(
        tx, Definition, sql.page, values, limit=limit, weighed=("arg_schema", "description")
    )


async def get(tx: Tx, name: str) -> Definition | None:
    """A definition by key or id."""
    return await tx.first(Definition, sql.get, {"name": name})


async def by_keys(tx: Tx, keys: Iterable[str]) -> dict[str, Definition]:
    """Those of the keys that exist."""
    return {found.key: found for found in await tx.all(Definition, sql.by_keys, {"keys": list(keys)})}


async def ids(tx: Tx, keys: Iterable[str] | None, *, tenant_id: UUID | None = None) -> dict[str, UUID]:
    """The ids of those of the keys that exist for a tenant or (None) at all; of every one for keys that are None."""
    asked = {"keys": None if keys is None else list(keys), "tenant_id": tenant_id}
    return {str(key): found for key, found in await tx.values(sql.ids, asked)}


async def put(tx: Tx, spec: DefinitionSpec) -> Definition | None:
    """Make the definition say this; None if it already does."""
    values = asdict(spec) | {
        "arg_schema": json_text(spec.arg_schema),
        "backoff": json_text(asdict(spec.backoff)),
        "secret_paths": secret_paths(spec.arg_schema),
    }
    return await tx.first(Definition, sql.put, values)


async def share(tx: Tx, key: str, *, tenant_id: UUID) -> None:
    """Make a definition this tenant's, besides those whose it is, and nobody else's."""
    await tx.run(sql.share, {"key": key, "tenant_id": tenant_id})


async def limit(tx: Tx, key: str, tenants: Sequence[UUID] | None) -> Definition | None:
    """Make a definition that of these tenants, or (None) of all; None if it is already."""
    asked = {"key": key, "tenants": None if tenants is None else list(tenants)}
    return await tx.first(Definition, sql.limit, asked)


async def retire(tx: Tx, key: str) -> None:
    """Deactivate a definition that is only some tenants' and that no trigger makes jobs of any more."""
    # in a statement of its own: the next one sees the triggers of whoever held the row before
    await tx.values(sql.hold, {"key": key})
    await tx.run(sql.retire, {"key": key})
