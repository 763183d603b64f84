"""Faults that the explorer has to find: each changes one statement of the product, and names the scenario that finds it."""

from collections.abc import Mapping
from types import SimpleNamespace

import msgspec
import pytest

from fairlead.store import approvals, durable, events, jobs, queue, rescue, triggers
from tests.interleavings.approval_scenarios import APPROVALS_BY_NAME
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
SCENARIOS = {**BY_NAME, **DURABLE_BY_NAME, **APPROVALS_BY_NAME}


class StatementChange(msgspec.Struct, frozen=True):
    """A text of a statement of the store, and what replaces it, everywhere in the statement."""

    store: SimpleNamespace
    name: str
    old: str
    new: str


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of the protocol."""

    name: str
    scenario: str
    statements: tuple[StatementChange, ...] = ()
    # stored functions, and the texts to replace in them
    functions: Mapping[str, tuple[tuple[str, str], ...]] = msgspec.field(default_factory=dict)

    def apply(self, patch: pytest.MonkeyPatch) -> Scenario:
        """Change the statements of this process. The scenario with the changed functions."""
        for one in self.statements:
            text: str = getattr(one.store, one.name)
            assert one.old in text, f"{one.name} has no {one.old!r}"
            patch.setattr(one.store, one.name, text.replace(one.old, one.new))
        functions = {}
        for name, changes in self.functions.items():
            functions[name] = read_function(name)
            for old, new in changes:
                functions[name] = replace_once(functions[name], old, new)
        return msgspec.structs.replace(SCENARIOS[self.scenario], functions=functions)


MUTANTS = [
    Mutant(
        name="a success is accepted without its token",
        scenario="stale finish (success) × claim",
        statements=(StatementChange(queue.sql, "succeed", LEASE_KEY, "l.job_id = o.job_id"),),
    ),
    Mutant(
        name="a failure is accepted without its token",
        scenario="stale finish (failure) × claim",
        statements=(StatementChange(queue.sql, "finish", LEASE_KEY, "l.job_id = o.job_id"),),
    ),
    Mutant(
        name="a repeated finish is recognised by its job only",
        scenario="finish (success) × rescue",
        statements=(
            StatementChange(
                queue.sql,
                "finished_before",
                "a.job_id = o.job_id and a.attempt_no = o.attempt_no and a.token = o.token\n"
                "        and a.status <> 'lost'\n"
                "        and (a.status = coalesce(o.attempt_status, 'succeeded')",
                "a.job_id = o.job_id\n        and (true",
            ),
        ),
    ),
    Mutant(
        name="a finish ignores the cancel request",
        scenario="finish (failure) × cancel",
        statements=(
            StatementChange(
                queue.sql, "finish", "j.cancel_requested_at is not null and e.status", "false and e.status"
            ),
            StatementChange(queue.sql, "finish", "or j.cancel_requested_at is not null then", "then"),
            StatementChange(queue.sql, "finish", "and j.cancel_requested_at is null", ""),
        ),
    ),
    Mutant(
        name="a rescue ignores the end of the lease",
        scenario="heartbeat × rescue, live",
        statements=(
            StatementChange(
                rescue.sql,
                "expired",
                "l.expires_at < clock_timestamp() - make_interval(secs => %(grace_seconds)s)",
                "true",
            ),
        ),
    ),
    Mutant(
        name="a heartbeat names the job only",
        scenario="stale heartbeat × claim",
        statements=(
            StatementChange(queue.sql, "heartbeat", LEASE_KEY, "l.job_id = o.job_id"),
            StatementChange(
                queue.sql, "heartbeat", "l.job_id = o.job_id and l.token = o.token", "l.job_id = o.job_id"
            ),
        ),
    ),
    Mutant(
        name="a heartbeat renews an expired lease",
        scenario="heartbeat × rescue, expired",
        statements=(StatementChange(queue.sql, "heartbeat", "and l.expires_at > clock_timestamp()", ""),),
    ),
    Mutant(
        name="the leases of a limit are counted before its lock",
        scenario="claim × claim, limit of definition",
        functions={
            "budgets": (
                ("    got := array_fill(null::integer, array[cardinality(names)]);\n", COUNT_FIRST),
                ("    got integer[];\n", "    got integer[];\n    counted bigint[];\n"),
                ("select s.*, fairlead.running_in(s.scope, s.id, s.other) as running,", "select s.*,"),
                (COUNTED_SCOPES, COUNTED_SCOPES_BEFORE),
            )
        },
    ),
    Mutant(
        name="a limit is not locked",
        scenario="claim × claim, limit of tenant",
        functions={
            "budgets": (
                (
                    "            where s.got is null\n            for update of k skip locked",
                    "            where s.got is null",
                ),
            )
        },
    ),
    Mutant(
        name="a claim does not lock what it takes",
        scenario="claim × claim",
        functions={
            "claim": (
                ("                limit most for update skip locked) h;", "                limit most) h;"),
            )
        },
    ),
    Mutant(
        name="a cancel of a running job does not hold its lease",
        scenario="finish (failure) × cancel",
        statements=(
            StatementChange(
                jobs.sql,
                "hold_lease",
                "select job_id from fairlead.leases where job_id = %(id)s for key share",
                "select id from fairlead.job_records where id = %(id)s",
            ),
        ),
    ),
    Mutant(
        name="a cancel of a queued job does not own its row",
        scenario="claim × cancel",
        statements=(
            StatementChange(
                jobs.sql,
                "cancel_queued",
                "from (table from_tenant union all table from_host union all table from_later) owned\n"
                "    where j.id = owned.job_id",
                "from job owned\n    where j.id = owned.id",
            ),
        ),
    ),
    Mutant(
        name="a retry does not lock its job",
        scenario="retry × retry",
        statements=(StatementChange(jobs.sql, "hold_terminal", " for update", ""),),
    ),
    Mutant(
        name="a dedupe key is overwritten",
        scenario="enqueue (deduplicated) × enqueue (deduplicated)",
        functions={
            "enqueue_one": (
                ("                on conflict do nothing;\n            exit when found;", OVERWRITE_KEY),
            )
        },
    ),
    Mutant(
        name="a dedupe key is not looked up again after its holder ended",
        scenario="enqueue (deduplicated) × finish",
        functions={
            "enqueue_one": (
                (
                    "            if holder.job_id is not null then\n                job_id := holder.job_id;",
                    "            if true then\n                job_id := holder.job_id;",
                ),
            )
        },
    ),
    Mutant(
        name="an edit does not lock the job's place in the queue",
        scenario="claim × edit",
        statements=(StatementChange(jobs.sql, "hold_waiting", "limit 1 for update", "limit 1"),),
        functions={"edit_waiting": ((EDIT_NEEDS_PLACE, "\n\n    new_at :="),)},
    ),
    Mutant(
        name="staging leaves the row in later",
        scenario="stage × stage",
        statements=(
            StatementChange(
                queue.sql,
                "stage",
                "delete from fairlead.later where ctid",
                "select * from fairlead.later where ctid",
            ),
            StatementChange(
                queue.sql,
                "stage",
                "    returning job_id, tenant_id, definition_id, host_id, priority, due_at, limit_key\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="schedulers do not lock due schedules",
        scenario="two schedulers at the same instant",
        statements=(StatementChange(triggers.sql, "due", "for update of g skip locked", ""),),
    ),
    Mutant(
        name="a dispatcher takes only events newer than the last one",
        scenario="dispatch × emit of an older event",
        statements=(
            StatementChange(
                events.sql,
                "take",
                "o.due_at <= (select now from moment)",
                "o.due_at <= (select now from moment) and not exists ("
                "select from fairlead.events e where e.dispatched_at is not null and e.id > o.event_id)",
            ),
        ),
    ),
    Mutant(
        name="a function that goes to sleep does not lock its waits",
        scenario="suspend × signal",
        statements=(StatementChange(durable.sql, "lock_waits", "for no key update of s", ""),),
    ),
    Mutant(
        name="a function that goes to sleep does not look at its waits",
        scenario="suspend × children",
        statements=(StatementChange(durable.sql, "wake_completed", "s.status <> 'waiting'", "false"),),
    ),
    Mutant(
        name="a completed wait locks the record before the queue",
        scenario="signal × cancel",
        functions={
            "complete_waits": (("begin\n    perform from", f"begin\n{LOCK_RECORD_FIRST}    perform from"),)
        },
    ),
    Mutant(
        name="a completed wait does not look again after an edit",
        scenario="signal × edit",
        functions={"wake_functions": (("exit when not exists (", "exit when true or not exists ("),)},
    ),
    Mutant(
        name="an edit forgets that the function sleeps",
        scenario="signal × edit",
        functions={"edit_waiting": (("place.sleeps, new_key", "false, new_key"),)},
    ),
    Mutant(
        name="a wait for a signal begins without its lock",
        scenario="begin a wait × signal",
        functions={"begin_wait": (("if begin_wait.kind = 'signal' then", "if false then"),)},
    ),
    Mutant(
        name="a wait for an event begins without its lock",
        scenario="begin a wait × dispatch",
        statements=(StatementChange(durable.sql, "lock_event_name", "pg_advisory_xact_lock(", "("),),
    ),
    Mutant(
        name="a call does not wait for the end of its child",
        scenario="begin a call × end of the child",
        functions={"begin_wait": (("j.id = begin_wait.child for share;", "j.id = begin_wait.child;"),)},
    ),
    Mutant(
        name="a wait that timed out is not locked",
        scenario="give up × signal",
        statements=(
            StatementChange(
                durable.sql,
                "give_up",
                "exists (select from held)\n    for no key update",
                "exists (select from held)",
            ),
        ),
    ),
    Mutant(
        name="a step is recorded without its token",
        scenario="stale step × claim",
        statements=(StatementChange(durable.sql, "record", LEASE_KEY, "l.job_id = o.job_id"),),
    ),
    Mutant(
        name="a step is recorded after the end of its lease",
        scenario="late step × rescue",
        statements=(StatementChange(durable.sql, "record", "and l.expires_at > clock_timestamp()", ""),),
    ),
    Mutant(
        name="an answer does not lock the wait that it ends",
        scenario="answer × give up",
        statements=(StatementChange(approvals.sql, "lock_wait", "for no key update of s", ""),),
    ),
    Mutant(
        name="a timeout leaves its approval open",
        scenario="answer × give up",
        statements=(
            StatementChange(durable.sql, "give_up", "set status = 'expired'", "set status = 'open'"),
        ),
    ),
    Mutant(
        name="an approval of a canceled job is answered",
        scenario="answer × cancel",
        statements=(StatementChange(approvals.sql, "lock_wait", "j.status <= 'running'", "true"),),
    ),
    Mutant(
        name="an approval is answered twice",
        scenario="answer × answer",
        statements=(
            StatementChange(approvals.sql, "lock_wait", "for no key update of s", ""),
            StatementChange(approvals.sql, "answer", "and status = 'open'", ""),
        ),
    ),
    Mutant(
        name="a function that goes to sleep misses its answer",
        scenario="answer × suspend",
        statements=(StatementChange(durable.sql, "lock_waits", "for no key update of s", ""),),
    ),
    Mutant(
        name="an approval is answered that a retry forgets",
        scenario="answer × retry from its step",
        statements=(StatementChange(approvals.sql, "lock_wait", "j.status <= 'running'", "true"),),
    ),
]
