"""Rates and limits by key, what is left of each, and what it holds back."""

from collections.abc import Iterable
from uuid import UUID

from msgspec.structs import replace

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.limits import MOST_HELD, MOST_PARTS, FoundPart, LimitScope, LimitUse
from fairlead.model.page import Page

sql = queries_beside(__file__)

# How many tenants, or keys, of one definition are looked at.
LOOK_TENANTS = 200
LOOK_KEYS = 100


async def list_page(
    tx: Tx, *, tenant_id: UUID | None = None, definition_id: UUID | None = None, after: str, limit: int
) -> Page[LimitUse]:
    """Limits after a place: of one tenant or (None) of all, of one definition or (None) of everything.

    The transaction must see the rows of all tenants: a tenant shares some of its rates with others.
    """
    await tx.prefer_indexes()  # it costs the same however large the tables are
    values = {
        "tenant_id": tenant_id,
        "definition_id": definition_id,
        "after": after,
        "limit": limit + 1,
        "most": MOST_HELD,
    }
    found = await tx.all(LimitUse, sql.page, values)
    rows = [_bound_held(one) for one in found[:limit]]
    tenants = await _list_parts(
        tx, sql.tenants_of, _definitions_of(rows, LimitScope.DEFINITION_TENANT), tenant_id
    )
    keys = await _list_parts(tx, sql.keys_of, _definitions_of(rows, LimitScope.KEY), tenant_id)
    parts = {LimitScope.DEFINITION_TENANT: tenants, LimitScope.KEY: keys}
    return Page(
        (_add_parts(tx, one, parts.get(one.scope, {}).get(one.definition_id, [])) for one in rows),
        more=len(found) > limit,
    )


def _definitions_of(rows: Iterable[LimitUse], scope: LimitScope) -> list[UUID]:
    return [one.definition_id for one in rows if one.scope is scope and one.definition_id is not None]


async def _list_parts(
    tx: Tx, query: str, definitions: list[UUID], tenant_id: UUID | None
) -> dict[UUID | None, list[FoundPart]]:
    if not definitions:
        return {}
    look = LOOK_TENANTS if query == sql.tenants_of else LOOK_KEYS
    values = {
        "definitions": definitions,
        "tenant_id": tenant_id,
        "look": look,
        "most": MOST_HELD,
        "parts": MOST_PARTS,
    }
    found: dict[UUID | None, list[FoundPart]] = {}
    for one in await tx.all(FoundPart, query, values):
        found.setdefault(one.definition_id, []).append(one)
    return found


def _bound_held(one: LimitUse) -> LimitUse:
    return replace(one, held=min(one.held, MOST_HELD), has_more=one.held > MOST_HELD)


def _add_parts(tx: Tx, one: LimitUse, found: list[FoundPart]) -> LimitUse:
    if not found:
        return one
    return replace(
        one,
        held=min(found[0].total, MOST_HELD),
        has_more=found[0].is_cut or found[0].total > MOST_HELD,
        parts=tuple(part.to_part(tx.redact_patterns) for part in found[:MOST_PARTS]),
    )
