"""Dispatch events: turn waiting events of the outbox into firings. Done by the system, not by a principal."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.actions import durable
from fairlead.actions.catalog import Catalog
from fairlead.actions.firing import TriggerShot, failed_record, fire_all, patience_of
from fairlead.db.tx import Tx
from fairlead.errors import FilterInvalid, SealBroken, TriggerCircle
from fairlead.model.event import Event
from fairlead.model.job import Source
from fairlead.model.payload import weigh
from fairlead.model.secrets.redact import Mask, build_mask
from fairlead.model.secrets.sealed_payload import KEY as SEALED
from fairlead.model.template.filter import Filter, parse_filter
from fairlead.model.template.secrets import find_secret_fields
from fairlead.model.trigger import Trigger
from fairlead.model.trigger_kinds import KINDS
from fairlead.model.trigger_kinds.event import build_event_context
from fairlead.store import events, firings, sealed_triggers, sealing, triggers
from fairlead.store.events import NO_TURN, TakenEvent
from fairlead.store.firings import NewFiring
from fairlead.store.triggers import StoredRule
from fairlead.turns.loop_pauses import LoopPauses

# The most that event data may weigh in one round, counted once for each trigger that it fires: payloads that are rendered
# together are in memory together, and the next events wait for them.
MOST_BYTES = 4_194_304
# The least weight of an event: creating its job takes time, too.
LEAST_BYTES = 100
# The most triggers that one round fires: their templates are in memory together.
MOST_SHOTS = 200
# What one round may take to read events and to compare them with triggers, as bytes of data; beside it, any one event.
MOST_COST = 4_194_304
# What it takes to compare an event with a trigger, and with a byte of its filter.
RULE_COST = 500
FILTER_BYTE_COST = 4
# Compiled filters are kept, unless they are large.
LARGEST_KEPT_FILTER = 2048


async def dispatch(
    tx: Tx,
    catalog: Catalog,
    *,
    limit: int,
    patience_seconds: float | None = None,
    after: UUID = NO_TURN,
    taken: Callable[[Sequence[TakenEvent]], None] | None = None,
) -> int:
    """Dispatch waiting events; each makes one record for every trigger that it matches. The number of events.

    An event that is much work is dispatched in parts, with other events in between.

    Tenants have turns: the first one has the tenant behind `after`, the last one of the round before. `taken` gets the events
    before anything is done with them. PostgreSQL ends the transaction if it is idle for
    longer than its patience, and another dispatcher takes the events.
    """
    patience = patience_of(tx) if patience_seconds is None else patience_seconds
    waiting = await events.take_waiting(tx, after=after, limit=limit, patience_seconds=patience)
    if taken is not None:
        taken(waiting)
    if not waiting:
        return 0
    begun = {event.id: event for event in await _choose_cheap(tx, waiting)}
    found = await events.list_taken(tx, begun)
    unheard = await durable.complete_event_waits(
        tx, [(event, _read_progress(begun[event.id])) for event in found]
    )
    rules = await _load_rules(tx, found)
    circles = await _find_circles(tx, found)
    aims = [await _build_aim(event, rules, circles.get(event.id)) for event in found]
    chosen = _choose_affordable(await _drop_recorded(tx, aims))
    done = {
        aim.event.id: _collect_secret_paths(aim.event, rules)
        for aim in chosen
        if not aim.is_part and aim.event.id not in unheard
    }
    if left := [
        replace(event, progress=unheard.get(event.id, event.progress))
        for event in waiting
        if event.id not in done
    ]:
        await events.return_to_waiting(tx, left)
    found_triggers = await triggers.get_many(tx, {hit.trigger_id for aim in chosen for hit in aim.hits})
    records, shots = list[NewFiring](), list[TriggerShot]()
    for aim in chosen:
        mask = build_mask(aim.event.data, sorted(_collect_secret_paths(aim.event, rules)))
        for hit in aim.hits:
            if (trigger := found_triggers.get(hit.trigger_id)) is None:
                continue  # deleted a moment ago
            if hit.why_not is None:
                shots.append(build_event_shot(trigger, aim.event, mask))
            else:
                records.append(failed_record(build_event_shot(trigger, aim.event), hit.why_not))
    records += await fire_all(tx, catalog, shots)
    await firings.add(tx, records)
    await triggers.mark_fired(tx, {record.trigger_id for record in records})
    await events.mark_dispatched(tx, done)
    return len(chosen)


def _read_progress(event: TakenEvent) -> durable.WaitProgress | None:
    return None if event.progress is None else msgspec.convert(event.progress, durable.WaitProgress)


async def _choose_cheap(tx: Tx, waiting: Sequence[TakenEvent]) -> list[TakenEvent]:
    """The events of one round, which are not too much to read and to compare: the first of each tenant, then the second."""
    rules = await events.measure_rules(tx, [event.id for event in waiting])
    turns, ranked = Counter[UUID](), list[tuple[int, int, TakenEvent]]()
    for event in waiting:
        number, filter_bytes = rules[event.id]
        cost = event.data_bytes + RULE_COST * number + FILTER_BYTE_COST * filter_bytes
        ranked.append((turns[event.tenant_id], cost, event))
        turns[event.tenant_id] += 1
    # one event always has its turn, whatever it costs, and leaves half of the round to others: the first of any tenant, since
    # the oldest may be one of a flood in each round
    first = random.choice([event for turn, _, event in ranked if not turn])  # noqa: S311
    chosen, room, passed_over = [first], MOST_COST, set[UUID]()
    for _, cost, event in sorted(ranked, key=lambda one: (one[2] is not first, *one[:2])):
        if event is first:
            room -= min(cost, MOST_COST // 2)
        elif cost > room or event.tenant_id in passed_over:
            passed_over.add(event.tenant_id)
        else:
            chosen.append(event)
            room -= cost
    return chosen


class EventRule(NamedTuple):
    """A trigger for events: its filter or the filter's error, and the paths of secrets in its events."""

    trigger_id: UUID
    filter: Filter | FilterInvalid | SealBroken
    secret_paths: list[str]


Rules = dict[tuple[UUID, str], list[EventRule]]


async def _load_rules(tx: Tx, found: Iterable[Event]) -> Rules:
    rules: Rules = defaultdict(list)
    pauses = LoopPauses()
    stored = await triggers.list_rules(tx, [(event.tenant_id, event.name) for event in found])
    sealed = [rule.filter for rule in stored if rule.filter is not None and SEALED in rule.filter]
    await sealing.fetch_keys(tx, [msgspec.json.decode(text) for text in sealed])
    for rule in stored:
        secret_paths = (
            find_secret_fields(rule.payload_template, rule.secret_paths, KINDS[rule.trigger_type].roots)
            if rule.secret_paths
            else []
        )
        rules[rule.tenant_id, rule.event_name].append(
            EventRule(rule.id, await _compile_filter(tx, rule), secret_paths)
        )
        await pauses.pause_if_due()
    return rules


async def _compile_filter(tx: Tx, rule: StoredRule) -> Filter | FilterInvalid | SealBroken:
    text = rule.filter or "null"
    try:
        if SEALED in text:
            document = msgspec.json.decode(text)
            return parse_filter(
                await sealed_triggers.open_filter(tx, document, trigger_id=rule.id, tenant_id=rule.tenant_id)
            )
        return _cached_filter(text) if len(text) <= LARGEST_KEPT_FILTER else _read_filter(text)
    except (FilterInvalid, SealBroken) as refusal:
        return refusal


def _read_filter(text: str) -> Filter:
    return parse_filter(msgspec.json.decode(text))


_cached_filter = lru_cache(maxsize=4096)(_read_filter)


class Hit(NamedTuple):
    """A trigger that an event matches, and why it cannot fire, if so."""

    trigger_id: UUID
    why_not: FilterInvalid | SealBroken | TriggerCircle | None


class EventAim(NamedTuple):
    """The effects of an event: the triggers that it matches."""

    event: Event
    hits: list[Hit]
    # whether the rest is left for another round
    is_part: bool = False
    # the weight of its data
    size: int = 0

    @property
    def weight(self) -> int:
        return len(self.hits) * self.size

    def within(self, room: int, most_hits: int, *, at_least: int) -> "EventAim | None":
        """As many hits as there is room for, and at least `at_least`; None if that is none."""
        hits = min(most_hits, max(at_least, room // self.size)) if self.size else most_hits
        if len(self.hits) <= hits:
            return self
        return self._replace(hits=self.hits[:hits], is_part=True) if hits else None


async def _drop_recorded(tx: Tx, aims: Sequence[EventAim]) -> list[EventAim]:
    """The aims without the hits that were dispatched in an earlier part."""
    slots = [(hit.trigger_id, str(aim.event.id)) for aim in aims for hit in aim.hits]
    there = await firings.filter_recorded(tx, slots) if slots else set[tuple[UUID, str]]()
    if not there:
        return list(aims)
    return [
        aim._replace(hits=[hit for hit in aim.hits if (hit.trigger_id, str(aim.event.id)) not in there])
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


async def _build_aim(event: Event, rules: Rules, circle: TriggerCircle | None) -> EventAim:
    hits, pauses = list[Hit](), LoopPauses()
    for trigger_id, wanted, _ in rules[event.tenant_id, event.name]:
        await pauses.pause_if_due()
        if event.only_trigger_id not in (None, trigger_id):
            continue  # a replay for one trigger only
        if isinstance(wanted, FilterInvalid | SealBroken):
            hits.append(Hit(trigger_id, wanted))
        elif wanted.matches(event.data):
            hits.append(Hit(trigger_id, circle))
    size = max(LEAST_BYTES, weigh(msgspec.json.encode(event.data))) if hits else 0
    return EventAim(event, hits, size=size)


def _choose_affordable(aims: Sequence[EventAim]) -> list[EventAim]:
    """The aims that fit into one round: the first of each tenant, then the second.

    The oldest event always gets at least one shot and at most half of the round; then light events come before heavy ones,
    of which each that does not fit leaves half of the rest to others.
    """
    turns = Counter[UUID]()
    ranked = list[tuple[int, int, EventAim]]()
    for aim in aims:
        ranked.append((turns[aim.event.tenant_id], aim.weight if ranked else -1, aim))
        turns[aim.event.tenant_id] += 1
    chosen, room, shots, passed_over = list[EventAim](), MOST_BYTES, MOST_SHOTS, set[UUID]()
    for _, _, aim in sorted(ranked, key=lambda one: one[:2]):
        if not chosen:
            part = aim.within(room // 2, shots // 2, at_least=1)
        elif (part := aim.within(room, shots, at_least=0)) is not None and part.is_part:
            part = aim.within(room // 2, shots // 2, at_least=0)
        if part is None or aim.event.tenant_id in passed_over:
            passed_over.add(aim.event.tenant_id)
            continue
        chosen.append(part)
        room -= part.weight
        shots -= len(part.hits)
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
