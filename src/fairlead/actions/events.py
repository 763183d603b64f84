"""Emit, list and replay events."""

from collections import defaultdict
from collections.abc import Generator, Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from fairlead.actions import quotas
from fairlead.actions import triggers as rules
from fairlead.actions.catalog import Catalog
from fairlead.db.tx import Tx, UniqueViolation
from fairlead.errors import EventInvalid, EventUnknown, Fault
from fairlead.model.access import Permission, Principal
from fairlead.model.event import Event, NewEvent, check_event
from fairlead.model.page import Page
from fairlead.model.payload import encode
from fairlead.model.request import unknown_tenant
from fairlead.model.secrets.redact import build_mask, mask_payload
from fairlead.model.trigger import Firing, FiringOutcome
from fairlead.placement import refuse_elsewhere
from fairlead.store import audit, bulk, events, firings, triggers

MAX_PAGE = 1000


async def emit(tx: Tx, principal: Principal, catalog: Catalog, new: NewEvent, *, again: bool = False) -> UUID:
    """Store an event; its jobs follow. `again`: an earlier call with this id may have succeeded without an answer."""
    data = _encode_data(principal, catalog, new)
    await quotas.require_room_for(tx, principal)
    try:
        answer = await events.emit(tx, new, data=data, actor=principal.actor)
    except UniqueViolation as error:
        if again:
            return new.id
        raise EventInvalid(
            f"There is an event {new.id} already. Leave the id out to get a new one.", [Fault("id", "taken")]
        ) from error
    return _id_or_refusal(new, answer.event_id, answer.outcome)


def emit_joined(principal: Principal, catalog: Catalog, new: NewEvent) -> Generator[str, str, UUID]:
    """Store an event inside the caller's transaction: yields the text to send, and is sent the answer."""
    data = _encode_data(principal, catalog, new)
    answer = msgspec.json.decode((yield events.encode_joined(new, data=data, actor=principal.actor)))
    found = answer["event_id"]
    return _id_or_refusal(new, None if found is None else UUID(found), answer["outcome"])


def _encode_data(principal: Principal, catalog: Catalog, new: NewEvent) -> bytes:
    principal.require(Permission.EMIT_EVENTS, principal.tenant_id)
    if principal.tenant_id is not None and new.tenant != str(principal.tenant_id):
        raise unknown_tenant(new.tenant)
    check_event(new)
    return encode(new.data, max_bytes=catalog.max_bytes, max_depth=catalog.max_depth)[1]


def _id_or_refusal(new: NewEvent, event_id: UUID | None, outcome: str) -> UUID:
    if event_id is not None:
        return event_id
    refuse_elsewhere(new.tenant, outcome)
    if outcome == "tenant_unknown":
        raise unknown_tenant(new.tenant)
    raise EventInvalid(f"The database refused this event: {outcome}.", [Fault("", outcome)])


async def get(
    tx: Tx, principal: Principal, event_id: UUID, *, after: UUID | None = None, limit: int = MAX_PAGE
) -> tuple[Event, Page[Firing]]:
    """An event and its firings, after the given one."""
    event = await get_unmasked(tx, principal, event_id, tenant_id=principal.tenant_id)
    [shown] = await _mask_events(tx, [event])
    limit = min(limit, MAX_PAGE)
    return shown, await firings.list_of_event(
        tx, event_id, tenant_id=principal.tenant_id, after=after, limit=limit
    )


async def is_stored(tx: Tx, principal: Principal, event_id: UUID) -> bool:
    """Whether the principal's tenant has this event, and retention has not removed it."""
    principal.require(Permission.READ_EVENTS, principal.tenant_id)
    return await events.get(tx, event_id, tenant_id=principal.tenant_id) is not None


async def find_firing_of_job(tx: Tx, principal: Principal, event_id: UUID, job_id: UUID) -> Firing | None:
    """The firing by which an event created a job, if it is stored."""
    principal.require(Permission.READ_EVENTS, principal.tenant_id)
    return await firings.find_of_job(tx, event_id, job_id, tenant_id=principal.tenant_id)


async def list_events(
    tx: Tx,
    principal: Principal,
    *,
    name: str | None = None,
    correlation_id: str | None = None,
    before: UUID | None = None,
    limit: int = 100,
) -> Page[Event]:
    """Events, newest first."""
    principal.require(Permission.READ_EVENTS, principal.tenant_id)
    found = await events.list_page(
        tx,
        tenant_id=principal.tenant_id,
        name=name,
        correlation_id=correlation_id,
        before=before,
        limit=min(limit, MAX_PAGE),
    )
    return found.with_rows(await _mask_events(tx, found))


async def count_outcomes(
    tx: Tx, principal: Principal, found: Sequence[Event]
) -> dict[UUID, dict[FiringOutcome, int]]:
    """The number of firings of these events, by outcome. The principal must have read access to the events."""
    principal.require(Permission.READ_EVENTS, principal.tenant_id)
    counted: dict[UUID, dict[FiringOutcome, int]] = {event.id: {} for event in found}
    for event_id, outcome, count in await firings.count_outcomes(tx, list(counted)):
        counted[event_id][outcome] = count
    return counted


async def replay(
    tx: Tx, principal: Principal, event_id: UUID, *, only_trigger_id: UUID | None = None
) -> UUID:
    """Emit a copy of an event under a new id, for all triggers that match it now or for one."""
    principal.require(Permission.MANAGE_TRIGGERS, principal.tenant_id)
    event = await get_unmasked(tx, principal, event_id, tenant_id=principal.tenant_id)
    if only_trigger_id is not None:
        await rules.get(tx, principal, only_trigger_id)
    await quotas.require_room_for(tx, principal)
    new_id = uuid7()
    await events.copy_event(
        tx, event.id, new_id=new_id, only_trigger_id=only_trigger_id, actor=principal.actor
    )
    await bulk.notify(tx, "event")
    await audit.write(
        tx,
        actor=principal.actor,
        action="event_replayed",
        resource_type="event",
        resource_id=event.id,
        tenant_id=event.tenant_id,
        details={"name": event.name, "as": str(new_id)},
    )
    return new_id


async def get_unmasked(tx: Tx, principal: Principal, event_id: UUID, *, tenant_id: UUID | None) -> Event:
    """An event of a tenant, or (None) of any, with its unmasked secrets: never shown to users."""
    principal.require(Permission.READ_EVENTS, tenant_id)
    event = await events.get(tx, event_id, tenant_id=tenant_id)
    if event is None:
        raise EventUnknown(f"There is no event {event_id}.", [Fault("id", "unknown")])
    return event


async def get_secret_paths(tx: Tx, event: Event) -> list[str]:
    """The paths in an event's data that triggers copy into secrets."""
    now = await _load_secret_paths(tx, [event])
    return [*event.secret_paths, *now[event.tenant_id, event.name]]


async def _load_secret_paths(tx: Tx, found: Sequence[Event]) -> dict[tuple[UUID, str], set[str]]:
    """The secret paths of events by tenant and name; reads the triggers page by page to bound memory."""
    secret: dict[tuple[UUID, str], set[str]] = defaultdict(set)
    about = [(event.tenant_id, event.name) for event in found]
    page = await triggers.list_with_secrets(tx, about, after=None, limit=MAX_PAGE)
    while True:
        for trigger in page:
            secret[trigger.tenant_id, str(trigger.event_name)].update(rules.list_secret_event_paths(trigger))
        if page.last is None:
            return secret
        page = await triggers.list_with_secrets(tx, about, after=page.last.id, limit=MAX_PAGE)


async def _mask_events(tx: Tx, found: Sequence[Event]) -> list[Event]:
    """Events as users may see them: data that triggers copy into secrets is masked."""
    secret = await _load_secret_paths(tx, found)

    def mask_event(event: Event) -> Event:
        paths = [*event.secret_paths, *secret[event.tenant_id, event.name]]
        mask = build_mask(event.data, paths, tx.redact_patterns)
        if mask is None:
            return event
        data = mask_payload(event.data, paths, tx.redact_patterns)
        return replace(event, data=data, correlation_id=mask.mask_chosen(event.correlation_id))

    return [mask_event(event) for event in found]
