"""Triggers: the rules that create jobs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.page import Page
from fairlead.model.trigger import Trigger, TriggerSpec, TriggerType
from fairlead.store import bounded_page

sql = queries_beside(__file__)


class NextFiring(msgspec.Struct, frozen=True):
    """The next firing of a schedule after a round, with its instant, and its last firing if it fired."""

    trigger_id: UUID
    next_fire_at: datetime | None
    next_instant: datetime | None
    fired_at: datetime | None


async def _list_triggers(tx: Tx, which: str, **values: Any) -> list[Trigger]:
    return await tx.all(Trigger, f"{sql.selected} {which}", values)


async def get(
    tx: Tx, trigger_id: UUID, *, tenant_id: UUID | None = None, hold: bool = False
) -> Trigger | None:
    """A trigger of a tenant, or (None) of any; `hold` locks it against changes and firings."""
    found = await _list_triggers(
        tx, sql.by_id_held if hold else sql.by_id, id=trigger_id, tenant_id=tenant_id
    )
    return found[0] if found else None


async def list_page(
    tx: Tx, filters: Mapping[str, Any], *, tenant_id: UUID | None, before: UUID | None, limit: int
) -> Page[Trigger]:
    """Triggers, newest first, that match every given filter."""
    asked = dict.fromkeys(("trigger_type", "event_name", "is_enabled", "definition_key")) | dict(filters)
    return await _list_page(tx, sql.page, {"tenant_id": tenant_id, "before": before, **asked}, limit=limit)


async def list_soonest(tx: Tx, *, tenant_id: UUID | None, limit: int) -> list[Trigger]:
    """The enabled schedules of a tenant, or (None) of all, that run next."""
    return await _list_triggers(tx, sql.soonest, tenant_id=tenant_id, limit=limit)


class StoredRule(msgspec.Struct, frozen=True):
    """What decides whether an event fires a trigger, and what of its data is secret."""

    id: UUID
    tenant_id: UUID
    event_name: str
    trigger_type: TriggerType
    # as JSON text
    filter: str | None
    # of the trigger's definition
    secret_paths: tuple[str, ...]
    # only if the definition has secrets
    payload_template: Any


async def list_rules(tx: Tx, wanted: Iterable[tuple[UUID, str]]) -> list[StoredRule]:
    """The rules of the enabled triggers for events of these tenants and names."""
    return await tx.all(StoredRule, sql.rules, _event_params(wanted))


async def get_many(tx: Tx, ids: Collection[UUID]) -> dict[UUID, Trigger]:
    """These triggers, without deleted ones."""
    found = await _list_triggers(tx, sql.of_ids, ids=list(ids)) if ids else []
    return {trigger.id: trigger for trigger in found}


async def list_with_secrets(
    tx: Tx, wanted: Iterable[tuple[UUID, str]], *, after: UUID | None, limit: int
) -> Page[Trigger]:
    """The triggers for events of these tenants and names, enabled or not, whose jobs have secrets; after the given id."""
    return await _list_page(tx, sql.with_secrets, {**_event_params(wanted), "after": after}, limit=limit)


async def _list_page(tx: Tx, which: str, values: Mapping[str, Any], *, limit: int) -> Page[Trigger]:
    query = f"{sql.selected} {which}"
    return await bounded_page.fetch_page(
        tx, Trigger, query, values, limit=limit, weighed=("filter", "payload_template", "job_options")
    )


def _event_params(wanted: Iterable[tuple[UUID, str]]) -> dict[str, Any]:
    pairs = sorted(set(wanted))
    return {"tenants": [tenant for tenant, _ in pairs], "names": [name for _, name in pairs]}


async def lock_due(tx: Tx, *, limit: int) -> list[Trigger]:
    """Due schedules, locked until the transaction ends."""
    return await _list_triggers(tx, sql.due, limit=limit)


async def lock_named(tx: Tx, *, tenant_id: UUID, owner: str, name: str) -> Trigger | None:
    """The trigger that code declares under this name, locked."""
    found = await _list_triggers(tx, sql.named, tenant_id=tenant_id, owner=owner, name=name)
    return found[0] if found else None


async def lock_of_owners(tx: Tx, owners: Sequence[str]) -> list[Trigger]:
    """All triggers that these code bases declare, locked."""
    return await _list_triggers(tx, sql.of_owners, owners=list(owners))


async def lock_in_tenants_zone(tx: Tx, tenant_id: UUID) -> list[Trigger]:
    """The schedules of a tenant that use its time zone, locked."""
    return await _list_triggers(tx, sql.in_tenants_zone, tenant_id=tenant_id)


async def get_labels(tx: Tx, ids: Iterable[UUID]) -> dict[UUID, tuple[UUID, str]]:
    """The tenants and labels of these triggers, also of deleted ones."""
    found = await tx.values(sql.labels, {"ids": list(ids)})
    return {trigger_id: (tenant_id, label) for trigger_id, tenant_id, label in found}


async def read_clock(tx: Tx) -> datetime:
    """The database's clock."""
    [(now,)] = await tx.values(sql.moment)
    return cast("datetime", now)


async def seconds_until_due(tx: Tx) -> float | None:
    """Seconds until the next instant of any schedule; None if there is none."""
    [(seconds,)] = await tx.values(sql.next_due)
    return None if seconds is None else float(seconds)


async def try_to_lead(tx: Tx, *, patience_seconds: float) -> bool:
    """Whether no other scheduler is active; PostgreSQL ends this transaction if it is idle for `patience_seconds`."""
    [(leads, _)] = await tx.values(sql.lead, {"patience": f"{int(patience_seconds * 1000)}ms"})
    return bool(leads)


async def add(
    tx: Tx,
    spec: TriggerSpec,
    *,
    trigger_id: UUID,
    tenant_id: UUID,
    created_by: str,
    owner: str | None = None,
    name: str | None = None,
) -> UUID | None:
    """Add a trigger. Its id; None if its name in the code is taken."""
    values = _spec_params(spec) | {
        "id": trigger_id,
        "tenant_id": tenant_id,
        "created_by": created_by,
        "owner": owner,
        "name": name,
    }
    found = await tx.values(sql.add, values)
    return found[0][0] if found else None


async def change(tx: Tx, trigger_id: UUID, spec: TriggerSpec) -> None:
    """Change a locked trigger."""
    await tx.run(sql.change, _spec_params(spec) | {"id": trigger_id})


async def remove(tx: Tx, trigger_id: UUID) -> bool:
    """Mark a trigger as deleted; False if it was already."""
    return bool(await tx.run(sql.remove, {"id": trigger_id}))


async def store_firings(tx: Tx, moved: Sequence[NextFiring]) -> None:
    """Store the next firings of locked schedules."""
    values = {
        "ids": [one.trigger_id for one in moved],
        "nexts": [one.next_fire_at for one in moved],
        "delays": [_delay(one) for one in moved],
        "fired": [one.fired_at for one in moved],
    }
    await tx.run(sql.fired, values)


async def mark_fired(tx: Tx, trigger_ids: Iterable[UUID]) -> None:
    """Set the last firing of these triggers to now; skips rows that another transaction is updating."""
    await tx.run(sql.set_off, {"ids": sorted(trigger_ids)})


def _spec_params(spec: TriggerSpec) -> dict[str, Any]:
    values = {name: getattr(spec, name) for name in TriggerSpec.__struct_fields__}
    values["next_delay"] = _delay(spec)
    return values | {name: json_text(values[name]) for name in ("filter", "payload_template", "job_options")}


def _delay(said: TriggerSpec | NextFiring) -> timedelta:
    """How much later than its instant it fires next."""
    if said.next_fire_at is None or said.next_instant is None:
        return timedelta()
    return said.next_fire_at - said.next_instant
