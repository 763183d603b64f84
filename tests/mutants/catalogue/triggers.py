"""Each instant and each event fires once: mutants of the scheduler and of the dispatcher."""

from tests.mutants.catalogue.runs import DATABASE, KILLS, REPLIES, SCHEDULERS, step
from tests.mutants.mutant import Edit, Mutant, Suite

_LAST = "(select e.id from fairlead.events e where e.dispatched_at is not null order by e.id desc limit 1)"

MUTANTS = (
    Mutant(
        name="events_newer_than_last",
        breaks=("I8",),
        wrong="The dispatcher takes events whose id is greater than the last one: one that commits late is never dispatched.",
        file="store/events.sql",
        old="        where o.tenant_id = w.tenant_id and o.due_at <= (select now from moment)\n",
        new="        where o.tenant_id = w.tenant_id and o.due_at <= (select now from moment)\n"
        f"            and coalesce(o.event_id > {_LAST}, true)\n",
        more=(
            Edit(
                "store/events.sql",
                "    order by o.due_at, o.event_id limit %(limit)s\n    for update skip locked\n",
                f"        and coalesce(o.event_id > {_LAST}, true)\n"
                "    order by o.due_at, o.event_id limit %(limit)s\n    for update skip locked\n",
            ),
        ),
        catchers=(
            step("dispatch × emit of an older event"),
            SCHEDULERS,
            Suite(("tests/actions/test_dispatch.py",)),
        ),
        findings=("event_not_dispatched", "event_firing_missed"),
    ),
    Mutant(
        name="event_taken_before_it_is_fired",
        breaks=("I8", "I1"),
        wrong="The dispatcher commits that it took events before it fires them: one that dies in between loses them.",
        file="actions/dispatch.py",
        old="    rules = await _load_rules(tx, found)\n    circles",
        new='    await tx.run("commit")\n'
        '    await tx.run("begin")\n'
        "    rules = await _load_rules(tx, found)\n    circles",
        catchers=(SCHEDULERS,),
        findings=("event_not_dispatched", "event_firing_missed"),
    ),
    Mutant(
        name="event_fired_again_after_failure",
        breaks=("I8",),
        wrong="An event stays in the outbox when it was dispatched, and firings have no unique key: it fires again.",
        file="actions/dispatch.py",
        old="    await events.mark_dispatched(tx, done)\n",
        new="    if len(done) > 1:\n"
        "        await events.return_to_waiting(tx, list(done)[:1])\n"
        "    await events.mark_dispatched(tx, done)\n",
        more=(
            Edit(
                "actions/dispatch.py",
                "    there = await firings.filter_recorded(tx, slots) if slots else set[tuple[UUID, str]]()\n",
                "    there = set[tuple[UUID, str]]()\n",
            ),
            Edit(
                "store/firings.sql",
                "    job_id uuid, reason text, detail text, covers integer, covers_until timestamptz);\n\n-- name: recorded",
                "    job_id uuid, reason text, detail text, covers integer, covers_until timestamptz)\n"
                "on conflict do nothing;\n\n-- name: recorded",
            ),
        ),
        catchers=(SCHEDULERS, Suite(("tests/actions/test_dispatch.py",))),
        findings=("job_without_firing", "firing_shares_job", "event_firing_doubled"),
    ),
    Mutant(
        name="schedulers_without_firing_row",
        breaks=("I7",),
        wrong="Schedulers neither lock a due schedule nor insist on its firing record, so that several fire one instant.",
        file="store/triggers.sql",
        old="order by g.next_fire_at limit %(limit)s\nfor update of g skip locked\n",
        new="order by g.next_fire_at limit %(limit)s\n",
        more=(
            Edit(
                "store/triggers.sql",
                "select pg_try_advisory_xact_lock(hashtextextended('fairlead.scheduler', 0)),\n",
                "select true,\n",
            ),
            Edit(
                "store/firings.sql",
                "    job_id uuid, reason text, detail text, covers integer, covers_until timestamptz);\n\n-- name: recorded",
                "    job_id uuid, reason text, detail text, covers integer, covers_until timestamptz)\n"
                "on conflict do nothing;\n\n-- name: recorded",
            ),
        ),
        catchers=(SCHEDULERS,),
        findings=("job_without_firing", "instant_doubled"),
    ),
    Mutant(
        name="schedule_moved_on_before_it_fires",
        breaks=("I7",),
        wrong="The scheduler commits the next instant before it fires the due ones: one that dies in between loses them.",
        file="actions/schedule_firing.py",
        old="    if careful:\n        plans, records =",
        new="    await triggers.store_firings(tx, [_next_firing(plan) for plan in plans])\n"
        '    await tx.run("commit")\n'
        '    await tx.run("begin")\n'
        "    if careful:\n        plans, records =",
        catchers=(SCHEDULERS,),
        findings=("instant_missed",),
    ),
    Mutant(
        name="missed_instants_not_recorded",
        breaks=("I7",),
        wrong="Instants that were missed while no scheduler ran have no firing record.",
        file="model/schedule/due.py",
        old="            skip.append((one, OVERTAKEN))\n",
        new="            continue\n",
        more=(
            Edit(
                "model/schedule/due.py",
                "        return DueInstants(kept, [], passed, after)\n",
                "        return DueInstants(kept[-1:], [], passed, after)\n",
            ),
        ),
        catchers=(DATABASE, KILLS, Suite(("tests/actions/test_schedule_firing.py",))),
        findings=("instant_missed",),
    ),
    Mutant(
        name="backfill_forgets_firings",
        breaks=("I7",),
        wrong="A backfill fires instants again that a scheduler or another backfill has fired.",
        file="actions/backfill.py",
        old="        return [at for at in self.instants if at not in self.jobs]\n",
        new="        return self.instants\n",
        more=(
            Edit(
                "actions/backfill.py",
                '    return f"backfill:{slot_of(at)}"\n',
                '    return f"backfill:{uuid7()}"\n',
            ),
        ),
        catchers=(Suite(("tests/actions/test_backfill.py",)),),
    ),
    Mutant(
        name="backfill_beside_the_schedulers_slot",
        breaks=("I7",),
        wrong="A backfill records an instant in a slot of its own only, so a scheduler that comes later fires it again.",
        file="actions/backfill.py",
        old="        return slot_of(at) if slot_of(at) not in self.slots else _backfill_slot(at)\n",
        new="        return _backfill_slot(at)\n",
        catchers=(Suite(("tests/actions/test_backfill.py",)),),
    ),
    Mutant(
        name="jitter_overtaken_by_the_next_firing",
        breaks=("I7",),
        wrong="An instant counts as missed as soon as the next one fires, which jitter may bring arbitrarily close.",
        file="model/schedule/due.py",
        old="        if now - find_fire_time(schedule, seed, one) < min(following - one, grace):\n",
        new="        if False:\n",
        catchers=(Suite(("tests/model/test_due.py",)),),
    ),
    Mutant(
        name="refired_after_unknown_commit",
        breaks=("I7",),
        wrong="The schedule moves on in a transaction after that of its jobs, and recorded instants are fired again.",
        file="actions/schedule_firing.py",
        old="    await firings.add(tx, records)\n    await triggers.store_firings(",
        new="    await firings.add(tx, records)\n"
        '    await tx.run("commit")\n'
        '    await tx.run("begin")\n'
        "    await triggers.store_firings(",
        more=(
            Edit(
                "actions/schedule_firing.py",
                "    known = await firings.filter_recorded(tx, [slot for plan in plans for slot in plan.slots])\n",
                "    known = set[tuple[UUID, str]]()\n",
            ),
            Edit(
                "store/firings.sql",
                "    job_id uuid, reason text, detail text, covers integer, covers_until timestamptz);\n\n-- name: recorded",
                "    job_id uuid, reason text, detail text, covers integer, covers_until timestamptz)\n"
                "on conflict do nothing;\n\n-- name: recorded",
            ),
        ),
        catchers=(SCHEDULERS, REPLIES),
        findings=("job_without_firing", "instant_doubled"),
    ),
)
