"""Dispatching: what waits in the outbox becomes firings. The system's own work."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from fairlead.actions.catalog import Catalog
from fairlead.actions.firing import PATIENCE_SECONDS, Shot, failed, fire_all
from fairlead.actions.triggers import secret_event_paths
from fairlead.db.tx import Tx
from fairlead.errors import FilterInvalid
from fairlead.model.event import Event
from fairlead.model.filter import Filter, filter_of
from fairlead.model.job import Source
from fairlead.model.trigger import Trigger, event_context
from fairlead.store import events, firings, triggers
from fairlead.store.firings import NewFiring


async def dispatch(
    tx: Tx,
    catalog: Catalog,
    *,
    limit: int,
    patience_seconds: float = PATIENCE_SECONDS,
    taken: Callable[[Sequence[UUID]], None] | None = None,
) -> int:
    """Dispatch events that wait, and say how many: each makes one record for every trigger that it matches.

    `taken` is told which, before anything is done with them. Left idle for longer than its patience, the transaction
    ends, and others have them.
    """
    found = await events.take(tx, limit=limit, patience_seconds=patience_seconds)
    if taken is not None:
        taken([event.id for event in found])
    if not found:
        return 0
    rules = await _rules(tx, found)
    shots, records = _shots(found, rules)
    records += await fire_all(tx, catalog, shots)
    await firings.add(tx, records)
    await triggers.set_off(tx, {record.trigger_id for record in records})
    await events.dispatched(tx, {event.id: _secret_paths(event, rules) for event in found})
    return len(found)


class Rule(NamedTuple):
    """A trigger for events, its filter if that can be read, and where in an event it finds secrets."""

    trigger: Trigger
    filter: Filter | FilterInvalid
    secret_paths: list[str]


Rules = dict[tuple[UUID, str], list[Rule]]


async def _rules(tx: Tx, found: Iterable[Event]) -> Rules:
    rules: Rules = defaultdict(list)
    for trigger in await triggers.for_events(tx, [(event.tenant_id, event.name) for event in found]):
        rules[trigger.tenant_id, str(trigger.event_name)].append(
            Rule(trigger, _filter(trigger), secret_event_paths(trigger))
        )
    return rules


def _filter(trigger: Trigger) -> Filter | FilterInvalid:
    try:
        return filter_of(trigger.filter)
    except FilterInvalid as refusal:
        return refusal


def _shots(found: Iterable[Event], rules: Rules) -> tuple[list[Shot], list[NewFiring]]:
    """A shot for each event and trigger that match; and a record where a filter cannot be read."""
    shots, unreadable = list[Shot](), list[NewFiring]()
    for event in found:
        for trigger, wanted, _ in rules[event.tenant_id, event.name]:
            if event.only_trigger_id not in (None, trigger.id):
                continue  # a replay for one trigger only
            if isinstance(wanted, FilterInvalid):
                unreadable.append(failed(event_shot(trigger, event), wanted))
            elif wanted.matches(event.data):
                shots.append(event_shot(trigger, event))
    return shots, unreadable


def _secret_paths(event: Event, rules: Rules) -> set[str]:
    known = rules[event.tenant_id, event.name]
    return {*event.secret_paths, *(path for rule in known for path in rule.secret_paths)}


def matches(trigger: Trigger, event: Event) -> bool:
    """Whether an event is what the trigger asks for; FilterInvalid if that cannot be read."""
    return filter_of(trigger.filter).matches(event.data)


def event_shot(trigger: Trigger, event: Event) -> Shot:
    """A trigger set off by an event."""
    return Shot(
        trigger=trigger,
        slot=str(event.id),
        context=event_context(trigger, event),
        source=Source.EVENT,
        source_ref=str(event.id),
        event_id=event.id,
        correlation_id=event.correlation_id,
        windowed=event.replay_of is None,
    )
