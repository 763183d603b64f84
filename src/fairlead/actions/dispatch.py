"""Dispatch events: turn waiting events of the outbox into firings. Done by the system, not by a principal."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from fairlead.actions import durable
from fairlead.actions.catalog import Catalog
from fairlead.actions.firing import TriggerShot, failed_record, fire_all, patience_of
from fairlead.actions.triggers import list_secret_event_paths
from fairlead.db.tx import Tx
from fairlead.errors import FilterInvalid, SealBroken, TriggerCircle
from fairlead.model.event import Event
from fairlead.model.job import Source
from fairlead.model.payload import weigh
from fairlead.model.secrets.redact import Mask, build_mask
from fairlead.model.template.filter import Filter, parse_filter
from fairlead.model.trigger import Trigger
from fairlead.model.trigger_kinds.event import build_event_context
from fairlead.store import events, firings, sealed_triggers, triggers
from fairlead.store.firings import NewFiring

# The most that event data may weigh in one round, counted once for each matching trigger: payloads that are rendered together
# are in memory together, and the next events wait for them.
MOST_BYTES = 4_194_304
# The least weight of an event: creating its job takes time, too.
LEAST_BYTES = 100


async def dispatch(
    tx: Tx,
    catalog: Catalog,
    *,
    limit: int,
    patience_seconds: float | None = None,
    taken: Callable[[Sequence[UUID]], None] | None = None,
) -> int:
    """Dispatch waiting events; each makes one record for every trigger that it matches. The number of events.

    A large event that fires many triggers is dispatched in parts, with other events in between.

    `taken` gets the events' ids before anything is done with them. PostgreSQL ends the transaction if it is idle for
    longer than its patience, and another dispatcher takes the events.
    """
    patience = patience_of(tx) if patience_seconds is None else patience_seconds
    found = await events.take_waiting(tx, limit=limit, patience_seconds=patience)
    if taken is not None:
        taken([event.id for event in found])
    if not found:
        return 0
    unheard = await durable.complete_event_waits(tx, found)
    rules = await _load_rules(tx, found)
    circles = await _find_circles(tx, found)
    aims = await _drop_recorded(tx, [_build_aim(event, rules, circles.get(event.id)) for event in found])
    chosen = _choose_affordable(aims)
    done = {
        aim.event.id: _collect_secret_paths(aim.event, rules)
        for aim in chosen
        if not aim.is_part and aim.event.id not in unheard
    }
    if len(done) < len(aims):
        await events.return_to_waiting(tx, [event.id for event in found if event.id not in done])
    records = [record for aim in chosen for record in aim.refused]
    records += await fire_all(tx, catalog, [shot for aim in chosen for shot in aim.shots])
    await firings.add(tx, records)
    await triggers.mark_fired(tx, {record.trigger_id for record in records})
    await events.mark_dispatched(tx, done)
    return len(chosen)


class EventRule(NamedTuple):
    """A trigger for events, its filter or the filter's error, and the paths of secrets in its events."""

    trigger: Trigger
    filter: Filter | FilterInvalid | SealBroken
    secret_paths: list[str]


Rules = dict[tuple[UUID, str], list[EventRule]]


async def _load_rules(tx: Tx, found: Iterable[Event]) -> Rules:
    rules: Rules = defaultdict(list)
    for trigger in await triggers.list_for_events(tx, [(event.tenant_id, event.name) for event in found]):
        rules[trigger.tenant_id, str(trigger.event_name)].append(
            EventRule(trigger, await _compile_filter(tx, trigger), list_secret_event_paths(trigger))
        )
    return rules


async def _compile_filter(tx: Tx, trigger: Trigger) -> Filter | FilterInvalid | SealBroken:
    try:
        return parse_filter((await sealed_triggers.open_filter(tx, trigger)).filter)
    except (FilterInvalid, SealBroken) as refusal:
        return refusal


class EventAim(NamedTuple):
    """The effects of an event: a shot for each trigger that it matches, and a record for each that cannot fire."""

    event: Event
    shots: list[TriggerShot]
    refused: list[NewFiring]
    # whether the rest is left for another round
    is_part: bool = False
    # the weight of its data
    size: int = 0

    @property
    def weight(self) -> int:
        return len(self.shots) * self.size

    def within(self, room: int, *, at_least: int) -> "EventAim | None":
        """As many shots as there is room for, and at least `at_least`; None if that is none."""
        shots = max(at_least, room // self.size) if self.size else 0
        if len(self.shots) <= shots:
            return self
        return self._replace(shots=self.shots[:shots], is_part=True) if shots else None


async def _drop_recorded(tx: Tx, aims: Sequence[EventAim]) -> list[EventAim]:
    """The aims without the shots that were dispatched in an earlier part."""
    slots = [(shot.trigger.id, shot.slot) for aim in aims for shot in aim.shots]
    slots += [(record.trigger_id, record.slot) for aim in aims for record in aim.refused]
    there = await firings.filter_recorded(tx, slots) if slots else set[tuple[UUID, str]]()
    if not there:
        return list(aims)
    return [
        aim._replace(
            shots=[shot for shot in aim.shots if (shot.trigger.id, shot.slot) not in there],
            refused=[record for record in aim.refused if (record.trigger_id, record.slot) not in there],
        )
        for aim in aims
    ]


async def _find_circles(tx: Tx, found: Iterable[Event]) -> dict[UUID, TriggerCircle]:
    """The errors for events at the end of the longest allowed chain of triggers."""
    most = tx.settings.max_trigger_chain
    long = [event for event in found if len(event.lineage) >= most]
    labels = await triggers.get_labels(tx, {one for event in long for one in event.lineage}) if long else {}
    return {event.id: _describe_circle(event, labels, most) for event in long}


def _describe_circle(event: Event, labels: Mapping[UUID, tuple[UUID, str]], most: int) -> TriggerCircle:
    chain = Counter[str]()
    for trigger_id in event.lineage:
        tenant_id, label = labels.get(trigger_id, (None, ""))
        chain[repr(label[:80]) if tenant_id == event.tenant_id else "another tenant's"] += 1
    names = ", ".join(f"{label} {times} times" if times > 1 else label for label, times in chain.items())
    return TriggerCircle(
        f"{len(event.lineage)} triggers set one another off, and max_trigger_chain is {most}: {names}. "
        "If they form a circle, break it, with a filter for instance; if not, replay the event, or raise the setting."
    )


def _build_aim(event: Event, rules: Rules, circle: TriggerCircle | None) -> EventAim:
    aim = EventAim(event, [], [])
    mask = build_mask(event.data, sorted(_collect_secret_paths(event, rules)))
    for trigger, wanted, _ in rules[event.tenant_id, event.name]:
        if event.only_trigger_id not in (None, trigger.id):
            continue  # a replay for one trigger only
        if isinstance(wanted, FilterInvalid | SealBroken):
            aim.refused.append(failed_record(build_event_shot(trigger, event), wanted))
        elif not wanted.matches(event.data):
            continue
        elif circle is not None:
            aim.refused.append(failed_record(build_event_shot(trigger, event), circle))
        else:
            aim.shots.append(build_event_shot(trigger, event, mask))
    size = max(LEAST_BYTES, weigh(msgspec.json.encode(event.data))) if aim.shots else 0
    return aim._replace(size=size)


def _choose_affordable(aims: Sequence[EventAim]) -> list[EventAim]:
    """The aims that fit into one round: the first of each tenant, then the second.

    The oldest event always gets at least one shot and at most half of the round; then light events come before heavy ones.
    """
    turns = Counter[UUID]()
    ranked = list[tuple[int, int, EventAim]]()
    for aim in aims:
        ranked.append((turns[aim.event.tenant_id], aim.weight if ranked else -1, aim))
        turns[aim.event.tenant_id] += 1
    chosen, room = list[EventAim](), MOST_BYTES
    for _, _, aim in sorted(ranked, key=lambda one: one[:2]):
        part = aim.within(room if chosen else room // 2, at_least=0 if chosen else 1)
        if part is None:
            break
        chosen.append(part)
        room -= part.weight
    return sorted(chosen, key=lambda aim: aim.event.id)


def _collect_secret_paths(event: Event, rules: Rules) -> set[str]:
    known = rules[event.tenant_id, event.name]
    return {*event.secret_paths, *(path for rule in known for path in rule.secret_paths)}


def matches(trigger: Trigger, event: Event) -> bool:
    """Whether an event matches the trigger's filter; FilterInvalid if the filter is broken."""
    return parse_filter(trigger.filter).matches(event.data)


def build_event_shot(trigger: Trigger, event: Event, mask: Mask | None = None) -> TriggerShot:
    """The shot of a trigger that an event fires."""
    return TriggerShot(
        trigger=trigger,
        slot=str(event.id),
        context=build_event_context(trigger, event),
        source=Source.EVENT,
        source_ref=str(event.id),
        event_id=event.id,
        correlation_id=event.correlation_id,
        windowed=event.replay_of is None,
        mask=mask,
    )
