"""Sources of events: list them, pause and resume them, and store their messages as events, each once."""

from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from fairlead.actions import quotas
from fairlead.actions.catalog import Catalog
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput, Refused, SourceUnknown, TenantUnknown
from fairlead.model.access import Permission, Principal
from fairlead.model.event import NewEvent
from fairlead.model.event_source import EventSource, SourceMessage, SourceRules, read_message
from fairlead.model.page import Page
from fairlead.model.payload import encode, find_storage_flaw
from fairlead.model.request import unknown_tenant
from fairlead.placement import refuse_elsewhere
from fairlead.store import audit, sources, tenants

MAX_PAGE = 1000
MAX_NOTE = 1000


class RefusedMessage(NamedTuple):
    """A message that can never become an event, and the error's stable code."""

    message: SourceMessage
    reason: str


class StoredBatch(NamedTuple):
    """What became of a batch of messages."""

    # they are events, since now or since an earlier delivery: to be acknowledged
    stored: list[SourceMessage]
    refused: list[RefusedMessage]
    # the source is paused, or their tenants may have no more jobs now: to be delivered again later
    postponed: list[SourceMessage]


class _Readable(NamedTuple):
    """A message, the event that it becomes, the event's data as JSON, and the id that is remembered."""

    message: SourceMessage
    event: NewEvent
    data: bytes
    id: str


async def list_sources(
    tx: Tx, principal: Principal, *, after: str = "", limit: int = 100
) -> Page[EventSource]:
    """Sources by name; for a tenant's principal, those of its tenant."""
    principal.require(Permission.READ_SOURCES, principal.tenant_id)
    return await sources.list_page(tx, tenant_id=principal.tenant_id, after=after, limit=min(limit, MAX_PAGE))


async def pause(tx: Tx, principal: Principal, name: str, *, note: str | None = None) -> EventSource:
    """Stop consuming: the running processes leave the broker within seconds, and messages wait there."""
    principal.require(Permission.MANAGE_SYSTEM)
    _check_note(note)
    found = await _require_source(tx, name)
    if found.paused_at is None or note is not None:
        await sources.pause(tx, name, actor=principal.actor, note=note)
        await _audit(tx, principal, found, "source_paused", note)
    return await _require_source(tx, name)


async def resume(tx: Tx, principal: Principal, name: str) -> EventSource:
    """Consume again. Resuming a source that is not paused writes nothing."""
    principal.require(Permission.MANAGE_SYSTEM)
    found = await _require_source(tx, name)
    if found.paused_at is not None:
        await sources.resume(tx, name)
        await _audit(tx, principal, found, "source_resumed")
    return await _require_source(tx, name)


async def report(tx: Tx, *, name: str, driver: str, rules: SourceRules) -> bool:
    """Record that a process runs a source. Whether it is paused."""
    tenant_id = None
    if rules.tenant is not None:
        tenant_id = (await tenants.get_ids(tx, [rules.tenant])).get(rules.tenant)
        if tenant_id is None:
            raise unknown_tenant(rules.tenant)
    return await sources.report(tx, name=name, driver=driver, tenant_id=tenant_id, event=rules.event)


async def record_failure(tx: Tx, name: str, why: str) -> None:
    """Record why a source cannot consume now."""
    await sources.record_failure(tx, name, why[:MAX_NOTE])


async def record_recovery(tx: Tx, name: str) -> None:
    """Record that a source has reached its broker again."""
    await sources.record_recovery(tx, name)


async def store_messages(
    tx: Tx,
    principal: Principal,
    catalog: Catalog,
    *,
    source: str,
    rules: SourceRules,
    messages: Sequence[SourceMessage],
) -> StoredBatch:
    """Store messages as events: each id once, messages of one order key in their order."""
    principal.require(Permission.EMIT_EVENTS)
    if await sources.is_paused(tx, source):
        return StoredBatch([], [], list(messages))
    due, refused, postponed = await _sort_out(tx, catalog, rules, messages)
    # ids of refused and postponed messages are not remembered: a later delivery may succeed
    ids = [one.id for one in due]
    fresh = await sources.remember_messages(tx, source, ids, days=rules.remember_days) if ids else set[str]()
    new = list({one.id: one for one in reversed(due) if one.id in fresh}.values())[::-1]
    late = await _emit_all(tx, principal, source, new)
    refused += [RefusedMessage(one.message, code) for one, code in late]
    await sources.add_counts(
        tx,
        source,
        messages=len(new) - len(late),
        duplicates=len(due) - len(new),
        refused=len(refused),
        last_refusal=refused[-1].reason if refused else None,
    )
    gone = {one.id for one, _ in late}
    return StoredBatch([one.message for one in due if one.id not in gone], refused, postponed)


async def _sort_out(
    tx: Tx, catalog: Catalog, rules: SourceRules, messages: Sequence[SourceMessage]
) -> tuple[list[_Readable], list[RefusedMessage], list[SourceMessage]]:
    """The messages to store now; those that can never become events; and those of tenants that may have no more jobs
    now, with all messages that must follow them.
    """
    read = [(message, _read(catalog, rules, message)) for message in messages]
    known = await _find_tenants(
        tx, rules, {found[0].tenant for _, found in read if not isinstance(found, str)}
    )
    # a tenant may go past its quota by the events of one batch
    full = await quotas.find_full_tenants(tx, dict.fromkeys(known.values(), 1)) if known else {}
    due, refused, postponed = list[_Readable](), list[RefusedMessage](), list[SourceMessage]()
    held = set[str | None]()
    for message, found in read:
        tenant_id = None if isinstance(found, str) else known.get(found[0].tenant)
        if message.order in held or tenant_id in full:
            postponed.append(message)
            held |= {message.order} - {None}
        elif isinstance(found, str):
            refused.append(RefusedMessage(message, found))
        elif tenant_id is None:
            refused.append(RefusedMessage(message, TenantUnknown.code))
        else:
            due.append(_Readable(message, *found, _make_id(rules, message, tenant_id)))
    return due, refused, postponed


def _make_id(rules: SourceRules, message: SourceMessage, tenant_id: UUID) -> str:
    """The id that is remembered. Publishers may choose ids: one of a tenant must not stand for a message of another."""
    return message.id if rules.tenant is not None else f"{tenant_id}/{message.id}"


async def _find_tenants(tx: Tx, rules: SourceRules, named: Collection[str]) -> dict[str, UUID]:
    known = await tenants.get_ids(tx, sorted(named)) if named else {}
    if rules.tenant is not None and named and rules.tenant not in known:
        raise unknown_tenant(rules.tenant)  # a fault of the configuration: no message is refused for it
    return known


def _read(catalog: Catalog, rules: SourceRules, message: SourceMessage) -> tuple[NewEvent, bytes] | str:
    """The event that a message becomes with its data as JSON, or the code of its refusal."""
    try:
        event = read_message(rules, message)
        _, data = encode(event.data, max_bytes=catalog.max_bytes, max_depth=catalog.max_depth)
    except Refused as error:
        return error.code
    return event, data


async def _emit_all(
    tx: Tx, principal: Principal, source: str, new: Sequence[_Readable]
) -> list[tuple[_Readable, str]]:
    """Emit events in their order. Those that the database refused after all, with the code; their ids are forgotten."""
    if not new:
        return []
    events = [(one.event, one.data) for one in new]
    outcomes = await sources.emit_in_order(tx, events, actor=principal.actor)
    for one, outcome in zip(new, outcomes, strict=True):
        refuse_elsewhere(one.event.tenant, outcome)  # the broker delivers the batch again
    refused = [(one, outcome) for one, outcome in zip(new, outcomes, strict=True) if outcome != "emitted"]
    if refused:
        await sources.forget_ids(tx, source, [one.id for one, _ in refused])
    return refused


async def _require_source(tx: Tx, name: str) -> EventSource:
    found = None if find_storage_flaw(name) else await sources.find(tx, name)
    if found is None:
        raise SourceUnknown(
            f"There is no source {name[:80]!r}. A source is listed once a process runs it: fairlead sources run",
            [Fault("source", "unknown")],
        )
    return found


def _check_note(note: str | None) -> None:
    if note is not None and (flaw := find_storage_flaw(note) or _find_excess(note)):
        raise InvalidInput(f"note: {flaw}.", [Fault("note", flaw)])


def _find_excess(note: str) -> str | None:
    return f"must have at most {MAX_NOTE} characters" if len(note) > MAX_NOTE else None


async def _audit(
    tx: Tx, principal: Principal, source: EventSource, action: str, note: str | None = None
) -> None:
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="source",
        resource_id=source.name,
        tenant_id=source.tenant_id,
        details={"driver": source.driver} | ({"note": note} if note else {}),
    )
