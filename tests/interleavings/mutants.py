"""Faults that the explorer has to find: each changes one statement of the product, and names the scenario that finds it."""

from types import SimpleNamespace

import msgspec
import pytest

from fairlead.store import approvals, durable, events, jobs, queue, rescue, triggers
from tests.interleavings.approval_scenarios import APPROVALS_BY_NAME
from tests.interleavings.deadline_scenarios import DEADLINES_BY_NAME
from tests.interleavings.durable_scenarios import DURABLE_BY_NAME
from tests.interleavings.explorer import Scenario
from tests.interleavings.scenarios import BY_NAME
from tests.interleavings.stops import read_function, replace_once

LEASE_KEY = "l.job_id = o.job_id and l.attempt_no = o.attempt_no and l.token = o.token"
COUNT_FIRST = """
    counted := array(
        select fairlead.running_in(s.scope, s.id, s.other)
        from unnest(scopes, ids, others) with ordinality as s(scope, id, other, n) order by s.n);
    got := array_fill(null::integer, array[cardinality(names)]);
"""
COUNTED_SCOPES = """from unnest(names, scopes, ids, others, mosts, got) as s(name, scope, id, other, most, got)
            offset 0"""
COUNTED_SCOPES_BEFORE = """from unnest(names, scopes, ids, others, mosts, got, counted)
                as s(name, scope, id, other, most, got, running)
            offset 0"""
EDIT_NEEDS_PLACE = """
    if not found then
        return;
    end if;

    new_at :="""
OVERWRITE_KEY = """
                on conflict (tenant_id, key_hash) do update set job_id = excluded.job_id;
            exit when found;"""


LOCK_RECORD_FIRST = """
    perform from fairlead.job_records j
    where j.id = any(array(select (w.value ->> 'job_id')::uuid from jsonb_array_elements(complete_waits.waits) w))
    for no key update;
"""
SCENARIOS = {**BY_NAME, **DURABLE_BY_NAME, **APPROVALS_BY_NAME, **DEADLINES_BY_NAME}


class Statement(msgspec.Struct, frozen=True):
    """A text of a statement of the store, and what replaces it, everywhere in the statement."""

    store: SimpleNamespace
    name: str
    old: str
    new: str


class Function(msgspec.Struct, frozen=True):
    """A text of a stored function, and what replaces it."""

    name: str
    old: str
    new: str


class Mutant(msgspec.Struct, frozen=True):
    """A fault of the protocol."""

    name: str
    scenario: str
    changes: tuple[Statement | Function, ...]

    def apply(self, patch: pytest.MonkeyPatch) -> Scenario:
        """Change the statements of this process. The scenario with the changed functions."""
        functions: dict[str, str] = {}
        for change in self.changes:
            if isinstance(change, Function):
                text = functions.get(change.name) or read_function(change.name)
                functions[change.name] = replace_once(text, change.old, change.new)
            else:
                text = getattr(change.store, change.name)
                assert change.old in text, f"{change.name} has no {change.old!r}"
                patch.setattr(change.store, change.name, text.replace(change.old, change.new))
        return msgspec.structs.replace(SCENARIOS[self.scenario], functions=functions)


def mutant(name: str, scenario: str, *changes: Statement | Function) -> Mutant:
    return Mutant(name, scenario, changes)


MUTANTS = [
    mutant(
        "a success is accepted without its token",
        "stale finish (success) × claim",
        Statement(queue.sql, "succeed", LEASE_KEY, "l.job_id = o.job_id"),
    ),
    mutant(
        "a failure is accepted without its token",
        "stale finish (failure) × claim",
        Statement(queue.sql, "finish", LEASE_KEY, "l.job_id = o.job_id"),
    ),
    mutant(
        "a repeated finish is recognised by its job only",
        "finish (success) × rescue",
        Statement(
            queue.sql,
            "finished_before",
            "a.job_id = o.job_id and a.attempt_no = o.attempt_no and a.token = o.token\n"
            "        and a.status <> 'lost'\n"
            "        and (a.status = coalesce(o.attempt_status, 'succeeded')",
            "a.job_id = o.job_id\n        and (true",
        ),
    ),
    mutant(
        "a finish ignores the cancel request",
        "finish (failure) × cancel",
        Statement(
            queue.sql, "finish", "j.cancel_requested_at is not null and e.status", "false and e.status"
        ),
        Statement(queue.sql, "finish", "or j.cancel_requested_at is not null then", "then"),
        Statement(queue.sql, "finish", "and j.cancel_requested_at is null", ""),
    ),
    mutant(
        "a rescue ignores the end of the lease",
        "heartbeat × rescue, live",
        Statement(
            rescue.sql,
            "expired",
            "l.expires_at < clock_timestamp() - make_interval(secs => %(grace_seconds)s)",
            "true",
        ),
    ),
    mutant(
        "a heartbeat names the job only",
        "stale heartbeat × claim",
        Statement(queue.sql, "heartbeat", LEASE_KEY, "l.job_id = o.job_id"),
        Statement(queue.sql, "heartbeat", "l.job_id = o.job_id and l.token = o.token", "l.job_id = o.job_id"),
    ),
    mutant(
        "a heartbeat renews an expired lease",
        "heartbeat × rescue, expired",
        Statement(queue.sql, "heartbeat", "and l.expires_at > clock_timestamp()", ""),
    ),
    mutant(
        "the leases of a limit are counted before its lock",
        "claim × claim, limit of definition",
        Function(
            "budgets", "    got := array_fill(null::integer, array[cardinality(names)]);\n", COUNT_FIRST
        ),
        Function("budgets", "    got integer[];\n", "    got integer[];\n    counted bigint[];\n"),
        Function(
            "budgets", "select s.*, fairlead.running_in(s.scope, s.id, s.other) as running,", "select s.*,"
        ),
        Function("budgets", COUNTED_SCOPES, COUNTED_SCOPES_BEFORE),
    ),
    mutant(
        "a limit is not locked",
        "claim × claim, limit of tenant",
        Function(
            "budgets",
            "            where s.got is null\n            for update of k skip locked",
            "            where s.got is null",
        ),
    ),
    mutant(
        "a claim does not lock what it takes",
        "claim × claim",
        Function(
            "claim", "                limit most for update skip locked) h;", "                limit most) h;"
        ),
    ),
    mutant(
        "a cancel of a running job does not hold its lease",
        "finish (failure) × cancel",
        Statement(
            jobs.sql,
            "hold_lease",
            "select job_id from fairlead.leases where job_id = %(id)s for key share",
            "select id from fairlead.job_records where id = %(id)s",
        ),
    ),
    mutant(
        "a cancel of a queued job does not own its row",
        "claim × cancel",
        Statement(
            jobs.sql,
            "cancel_queued",
            "from (table from_tenant union all table from_host union all table from_later) owned\n"
            "    where j.id = owned.job_id",
            "from job owned\n    where j.id = owned.id",
        ),
    ),
    mutant(
        "a retry does not lock its job",
        "retry × retry",
        Statement(jobs.sql, "hold_terminal", " for update", ""),
    ),
    mutant(
        "a dedupe key is overwritten",
        "enqueue (deduplicated) × enqueue (deduplicated)",
        Function(
            "enqueue_one",
            "                on conflict do nothing;\n            exit when found;",
            OVERWRITE_KEY,
        ),
    ),
    mutant(
        "a dedupe key is not looked up again after its holder ended",
        "enqueue (deduplicated) × finish",
        Function(
            "enqueue_one",
            "            if holder.job_id is not null then\n                job_id := holder.job_id;",
            "            if true then\n                job_id := holder.job_id;",
        ),
    ),
    mutant(
        "an edit does not lock the job's place in the queue",
        "claim × edit",
        Statement(jobs.sql, "hold_waiting", "limit 1 for update", "limit 1"),
        Function("edit_waiting", EDIT_NEEDS_PLACE, "\n\n    new_at :="),
    ),
    mutant(
        "staging leaves the row in later",
        "stage × stage",
        Statement(
            queue.sql,
            "stage",
            "delete from fairlead.later where ctid",
            "select * from fairlead.later where ctid",
        ),
        Statement(
            queue.sql,
            "stage",
            "    returning job_id, tenant_id, definition_id, host_id, priority, due_at, limit_key\n",
            "",
        ),
    ),
    mutant(
        "schedulers do not lock due schedules",
        "two schedulers at the same instant",
        Statement(triggers.sql, "due", "for update of g skip locked", ""),
    ),
    mutant(
        "a dispatcher takes only events newer than the last one",
        "dispatch × emit of an older event",
        Statement(
            events.sql,
            "take",
            "o.due_at <= (select now from moment)",
            "o.due_at <= (select now from moment) and not exists ("
            "select from fairlead.events e where e.dispatched_at is not null and e.id > o.event_id)",
        ),
    ),
    mutant(
        "a function that goes to sleep does not lock its waits",
        "suspend × signal",
        Statement(durable.sql, "lock_waits", "for no key update of s", ""),
    ),
    mutant(
        "a function that goes to sleep does not look at its waits",
        "suspend × children",
        Statement(durable.sql, "wake_completed", "s.status <> 'waiting'", "false"),
    ),
    mutant(
        "a completed wait locks the record before the queue",
        "signal × cancel",
        Function("complete_waits", "begin\n    perform from", f"begin\n{LOCK_RECORD_FIRST}    perform from"),
    ),
    mutant(
        "a completed wait does not look again after an edit",
        "signal × edit",
        Function("wake_functions", "exit when not exists (", "exit when true or not exists ("),
    ),
    mutant(
        "an edit forgets that the function sleeps",
        "signal × edit",
        Function("edit_waiting", "place.sleeps, new_key", "false, new_key"),
    ),
    mutant(
        "a wait for a signal begins without its lock",
        "begin a wait × signal",
        Function("begin_wait", "if begin_wait.kind = 'signal' then", "if false then"),
    ),
    mutant(
        "a wait for an event begins without its lock",
        "begin a wait × dispatch",
        Statement(durable.sql, "lock_event_name", "pg_advisory_xact_lock(", "("),
    ),
    mutant(
        "a call does not wait for the end of its child",
        "begin a call × end of the child",
        Function("begin_wait", "j.id = begin_wait.child for share;", "j.id = begin_wait.child;"),
    ),
    mutant(
        "a wait that timed out is not locked",
        "give up × signal",
        Statement(
            durable.sql,
            "give_up",
            "exists (select from held)\n    for no key update",
            "exists (select from held)",
        ),
    ),
    mutant(
        "a signal is given to a wait that times out",
        "give up × signal",
        Statement(durable.sql, "deliver_signal", "    for no key update\n), signal as (", "), signal as ("),
    ),
    mutant(
        "a wait for an event times out although the event was stored in time",
        "give up × dispatch",
        Statement(durable.sql, "undispatched_events", "<counts>", "<counts> and false"),
    ),
    mutant(
        "a step is recorded without its token",
        "stale step × claim",
        Statement(durable.sql, "record", LEASE_KEY, "l.job_id = o.job_id"),
    ),
    mutant(
        "a step is recorded after the end of its lease",
        "late step × rescue",
        Statement(durable.sql, "record", "and l.expires_at > clock_timestamp()", ""),
    ),
    mutant(
        "an answer does not lock the wait that it ends",
        "answer × give up",
        Statement(approvals.sql, "lock_wait", "for no key update of s", ""),
    ),
    mutant(
        "a timeout leaves its approval open",
        "answer × give up",
        Statement(durable.sql, "give_up", "set status = 'expired'", "set status = 'open'"),
    ),
    mutant(
        "an approval of a canceled job is answered",
        "answer × cancel",
        Statement(approvals.sql, "lock_wait", "j.status <= 'running'", "true"),
    ),
    mutant(
        "an approval is answered twice",
        "answer × answer",
        Statement(approvals.sql, "lock_wait", "for no key update of s", ""),
        Statement(approvals.sql, "answer", "and status = 'open'", ""),
    ),
    mutant(
        "a function that goes to sleep misses its answer",
        "answer × suspend",
        Statement(durable.sql, "lock_waits", "for no key update of s", ""),
    ),
    mutant(
        "an approval is answered that a retry forgets",
        "answer × retry from its step",
        Statement(approvals.sql, "lock_wait", "j.status <= 'running'", "true"),
    ),
    mutant(
        "a lease is renewed after its end",
        "heartbeat × end of the lease × rescue",
        Statement(queue.sql, "heartbeat", "and l.expires_at > clock_timestamp()", ""),
    ),
    mutant(
        "a job starts after its time",
        "claim × expiry × cancel of the expired",
        Function("claim", "if any_expired and ready_rows is not null then", "if false then"),
    ),
    mutant(
        "a key is taken for longer than its time",
        "enqueue (unique for a while) × its end × enqueue",
        Function(
            "enqueue_one", "if found and holder.unique_until <= clock_timestamp() then", "if false then"
        ),
    ),
    mutant(
        "a key whose next job was locked stands still",
        "finish of a key × edit that is rolled back × claim",
        Function("release_keys", "        where n.number > (", "        where false and n.number > ("),
    ),
    mutant(
        "an event that was stored just in time is a timeout",
        "give up at the end of a wait × emit and dispatch",
        Statement(durable.sql, "undispatched_events", "<counts>", "<counts> and false"),
    ),
]
