"""Each rule about the tables finds the one row that was changed against it."""

import pytest

from fairlead.chaos.checks.check_run import INCONSISTENT, MEANINGS, NOT_DRAINED, ORPHANED, SLOW
from tests.chaos.checks import test_checks_history
from tests.chaos.checks.tampering import Tampering


def copy(table: str, where: str, **changes: str) -> str:
    """Insert a copy of a row with other values."""
    values = ", ".join(f"'{name}', {value}" for name, value in changes.items())
    return (
        f"insert into fairlead.{table} select (jsonb_populate_record(r, jsonb_build_object({values}))).* "
        f"from fairlead.{table} r where {where}"
    )


def audit(where: str) -> str:
    return f"delete from fairlead.audit_log where {where}"


def together(where: str) -> str:
    """As if the attempts of these jobs had run at the same time."""
    times = "started_at = now() - interval '1 hour', finished_at = now() - interval '30 minutes'"
    jobs = (
        "select j.id from fairlead.job_records j join fairlead.job_definitions d on d.id = j.definition_id "
        f"join fairlead.tenants t on t.id = j.tenant_id where {where}"
    )
    return f"update fairlead.job_attempts set {times} where status = 'succeeded' and job_id in ({jobs})"


def change_step(where: str, change: str) -> str:
    return f"update fairlead.job_steps set {change} where job_id = %(durable_0)s and {where}"


def change_output(output: str) -> str:
    return f"update fairlead.job_records set output = {output} where id = %(durable_0)s"


JOIN_JOB = (
    "(select j.id from fairlead.job_records j join fairlead.job_definitions d on d.id = j.definition_id "
    "where d.key = 'chaos.join')"
)
NEW_ID = "gen_random_uuid()"
FIRST_FIRING = (
    "(select f.id from fairlead.trigger_firings f join fairlead.job_triggers g on g.id = f.trigger_id "
    "where g.label = 'chaos-clock' order by f.scheduled_at limit 1)"
)

# What was changed, and the rule that must notice.
BREAKAGES: list[tuple[str, list[str]]] = [
    # lost
    ("job_lost", ["delete from fairlead.job_records where id = %(single_0)s"]),
    (
        "job_differs",
        ["""update fairlead.job_records set payload = payload || '{"fail": 9}' where id = %(single_0)s"""],
    ),
    ("job_not_ended", ["update fairlead.job_records set status = 'queued' where id = %(single_0)s"]),
    ("bulk_torn", ["delete from fairlead.job_records where id = %(bulk_1)s"]),
    ("bulk_torn_by_key", ["delete from fairlead.job_records where id = %(mixed_1)s"]),
    ("order_lost", ["delete from public.chaos_orders where call_id = %(call_order)s"]),
    ("order_torn", ["delete from fairlead.job_records where id = %(order_0)s"]),
    ("order_event_torn", ["delete from fairlead.events where correlation_id = %(call_order)s::text"]),
    ("event_lost", ["delete from fairlead.events where id = %(emit_0)s"]),
    ("run_lost", ["delete from fairlead.workflow_runs where id = %(run_0)s"]),
    ("cancel_lost", ["update fairlead.job_records set status = 'succeeded' where id = %(canceled_0)s"]),
    (
        "started_after_cancel",
        [
            copy(
                "job_attempts",
                "job_id = %(single_0)s",
                job_id="%(canceled_0)s::uuid",
                started_at="now() + interval '1 hour'",
            )
        ],
    ),
    ("retry_lost", [audit("action = 'JOB_RETRIED' and resource_id = %(fatal_0)s::text")]),
    # unexpected
    ("job_unexpected", [copy("job_records", "id = %(single_0)s", id=NEW_ID, correlation_id="'nobody'")]),
    ("job_repeated", [copy("job_records", "id = %(single_0)s", id=NEW_ID)]),
    ("event_unexpected", [copy("events", "id = %(emit_0)s", id=NEW_ID, correlation_id="'nobody'")]),
    ("event_repeated", [copy("events", "id = %(emit_0)s", id=NEW_ID)]),
    ("run_unexpected", ["update fairlead.workflow_runs set unique_key = 'nobody'"]),
    (
        "run_repeated",
        [
            "drop index fairlead.workflow_runs_by_unique_key",
            copy("workflow_runs", "id = %(run_0)s", id=NEW_ID),
        ],
    ),
    # outcomes
    (
        "succeeded_twice",
        [
            "update fairlead.job_attempts set status = 'succeeded' where job_id = %(flaky_0)s and attempt_no = 1"
        ],
    ),
    (
        "outcome_twice",
        [
            (
                "insert into fairlead.audit_log (tenant_id, actor, action, resource_type, resource_id, details) "
                "select tenant_id, 'x', 'JOB_FAILED', 'job', id::text, '{\"definition_key\": \"chaos.quick\"}' "
                "from fairlead.job_records where id = %(single_0)s"
            )
        ],
    ),
    ("success_overwritten", ["update fairlead.job_records set status = 'canceled' where id = %(single_0)s"]),
    ("outcome_unplanned", ["update fairlead.job_records set status = 'failed' where id = %(single_0)s"]),
    # attempts
    (
        "attempt_gap",
        ["update fairlead.job_attempts set attempt_no = 5 where job_id = %(flaky_0)s and attempt_no = 1"],
    ),
    (
        "attempt_repeated",
        ["update fairlead.job_records set success_token = gen_random_uuid() where id = %(single_0)s"],
    ),
    ("attempt_without_job", ["delete from fairlead.job_records where id = %(single_0)s"]),
    (
        "attempts_overlap",
        [
            "update fairlead.job_attempts set started_at = started_at - interval '1 hour' where job_id = %(flaky_0)s and attempt_no = 2"
        ],
    ),
    # stale writes
    ("outcome_after_loss", ["update fairlead.job_attempts set status = 'lost' where job_id = %(single_0)s"]),
    (
        "log_after_end",
        [
            (
                "insert into fairlead.log_chunks (job_id, attempt_no, seq, tenant_id, at, text) "
                "select job_id, attempt_no, 99, tenant_id, finished_at + interval '3 s', 'late' "
                "from fairlead.job_attempts where job_id = %(single_0)s"
            )
        ],
    ),
    (
        "log_after_end",
        [
            (
                "insert into fairlead.log_chunks (job_id, attempt_no, seq, tenant_id, at, text) "
                "select job_id, 1, 99, tenant_id, started_at + interval '1 ms', 'late' "
                "from fairlead.job_attempts where job_id = %(flaky_0)s and attempt_no = 2"
            )
        ],
    ),
    (
        "output_of_other_attempt",
        ["""update fairlead.job_records set output = '{"attempt": 9}' where id = %(single_0)s"""],
    ),
    (
        "progress_of_other_attempt",
        [
            """update fairlead.job_records set progress = '{"percent": 50, "message": "attempt 9"}' where id = %(single_0)s"""
        ],
    ),
    # dedupe
    (
        "key_active_twice",
        [
            (
                "update fairlead.job_attempts set started_at = ("
                "select a.started_at from fairlead.job_attempts a where a.job_id = %(keyed_0)s) where job_id = %(after_0)s"
            )
        ],
    ),
    (
        "duplicate_of_other_key",
        ["update fairlead.job_records set dedupe_key = 'another' where id = %(keyed_0)s"],
    ),
    (
        "duplicate_of_ended_job",
        [
            "update fairlead.job_records set finished_at = queued_at - interval '1 hour' where id = %(keyed_0)s"
        ],
    ),
    # limits
    ("limit_exceeded", [together("t.slug = 'globex'")]),
    ("limit_exceeded", [together("d.key = 'chaos.slow'")]),
    ("limit_exceeded", [together("d.key = 'chaos.narrow'")]),
    ("limit_exceeded", [together("j.host_id is not null")]),
    # firings
    ("instant_missed", [f"delete from fairlead.trigger_firings where id = {FIRST_FIRING}"]),
    ("schedule_missing", ["update fairlead.job_triggers set label = 'renamed' where label = 'chaos-event'"]),
    ("instant_doubled", [copy("trigger_firings", f"r.id = {FIRST_FIRING}", id=NEW_ID, slot="'another'")]),
    ("firing_without_job", ["delete from fairlead.job_records where source = 'schedule'"]),
    (
        "firing_shares_job",
        ["update fairlead.trigger_firings set job_id = %(single_0)s where event_id is null"],
    ),
    ("job_without_firing", [f"delete from fairlead.trigger_firings where id = {FIRST_FIRING}"]),
    ("event_not_dispatched", ["update fairlead.events set dispatched_at = null where id = %(emit_0)s"]),
    ("event_firing_missed", ["delete from fairlead.trigger_firings where event_id = %(emit_0)s"]),
    ("event_firing_doubled", [copy("trigger_firings", "event_id = %(emit_0)s", id=NEW_ID, slot="'another'")]),
    # audit
    (
        "creation_unaudited",
        [
            audit(
                "ctid = (select ctid from fairlead.audit_log where action = 'jobs_created' limit 1) and action = 'jobs_created'"
            )
        ],
    ),
    (
        "creation_audited_twice",
        [
            (
                "insert into fairlead.audit_log (tenant_id, actor, action, resource_type, resource_id, details) "
                "select tenant_id, 'x', 'job_created', 'job', id::text, '{\"definition_key\": \"chaos.quick\"}' "
                "from fairlead.job_records, generate_series(1, 2) where id = %(single_0)s"
            )
        ],
    ),
    ("end_unaudited", [audit("action = 'JOB_EXHAUSTED_RETRIES'")]),
    (
        "audit_order",
        [
            audit(
                "action = 'JOB_FAILED' and resource_id = %(fatal_0)s::text and at = ("
                "select min(at) from fairlead.audit_log where action = 'JOB_FAILED')"
            )
        ],
    ),
    ("cancel_unaudited", [audit("action = 'JOB_CANCELED'")]),
    ("event_unaudited", [audit("action = 'event_emitted' and resource_id = %(emit_0)s::text")]),
    ("run_unaudited", [audit("action = 'WORKFLOW_RUN_SUCCEEDED'")]),
    ("audit_unprotected", ["alter table fairlead.audit_log_rest disable trigger audit_stays"]),
    ("audit_unprotected", ["alter table fairlead.audit_log_rest disable trigger audit_rows_stay"]),
    # innocent jobs
    ("failures_overcharged", ["update fairlead.job_records set failure_count = 4 where id = %(single_0)s"]),
    ("losses_overcharged", ["update fairlead.job_records set lost_count = 2 where id = %(single_0)s"]),
    (
        "charged_beside_others",
        [
            "update fairlead.lost_workers set charged_job = %(beside_0)s, charged_attempt = 1 where worker_id like '%%:again'"
        ],
    ),
    (
        "condemned_innocent",
        ["update fairlead.job_records set status = 'dead_letter' where id = %(single_0)s"],
    ),
    ("poison_not_contained", ["update fairlead.job_records set status = 'failed' where id = %(poison_0)s"]),
    # usage
    (
        "usage_differs",
        [
            "update fairlead.counts set cost_cents = cost_cents + 1 where ctid = (select ctid from fairlead.counts where runs > 0 limit 1)"
        ],
    ),
    ("cost_differs", ["update fairlead.job_records set cost_cents = cost_cents + 1 where id = %(single_0)s"]),
    (
        "level_differs",
        [
            "update fairlead.counts set queued = queued + 1 where ctid = (select ctid from fairlead.counts where not leveled limit 1)"
        ],
    ),
    # workflows
    ("run_not_ended", ["update fairlead.workflow_runs set status = 'running', finished_at = null"]),
    ("run_unplanned_end", ["update fairlead.workflow_runs set status = 'failed'"]),
    ("step_not_once", [copy("job_records", f"id = {JOIN_JOB}", id=NEW_ID)]),
    ("step_not_once", [f"delete from fairlead.job_records where id = {JOIN_JOB}"]),
    (
        "step_early",
        [f"update fairlead.job_records set queued_at = queued_at - interval '1 hour' where id = {JOIN_JOB}"],
    ),
    ("join_output", [f"update fairlead.job_records set output = '99' where id = {JOIN_JOB}"]),
    # durable functions
    ("step_repeated", [change_step("name = 'step-0'", "attempt_no = 0")]),
    ("step_repeated", [change_step("name = 'tried'", "tries = 1")]),
    ("step_of_other_attempt", [change_step("name = 'step-0'", "ended_at = ended_at + interval '1 hour'")]),
    ("step_of_other_attempt", [change_step("name = 'step-0'", "ended_at = ended_at - interval '1 hour'")]),
    ("step_of_other_attempt", [change_step("name = 'step-0'", "attempt_no = 99")]),
    ("step_of_other_attempt", [change_step("kind = 'event'", "started_at = started_at - interval '1 hour'")]),
    ("step_unfounded", [change_step("name = 'step-0'", """result = '"forged"'""")]),
    ("function_steps", [change_output("""jsonb_set(output, '{steps,step-0}', '"forged"')""")]),
    ("function_steps", ["delete from fairlead.job_steps where job_id = %(durable_0)s and name = 'step-0'"]),
    ("function_result", [change_output("output - 'event'")]),
    ("function_result", [change_output("""output || '{"signal": "another"}'""")]),
    ("function_result", [change_output("""output || '{"child": "failed"}'""")]),
    ("function_result", [change_output("""output || '{"late": {"id": 1}}'""")]),
    ("function_result", [change_output("""output || '{"undone": false}'""")]),
    ("child_repeated", [copy("job_records", "parent_id = %(durable_0)s", id=NEW_ID)]),
    ("child_repeated", ["delete from fairlead.job_records where parent_id = %(durable_0)s"]),
    (
        "wait_in_vain",
        [
            copy(
                "events",
                "id = %(emit_0)s",
                id=NEW_ID,
                name="'chaos.confirmed'",
                data="(select request -> 'where' from fairlead.job_steps where job_id = %(vain_0)s and kind = 'event')",
                recorded_at="now()",
            )
        ],
    ),
    (
        "wait_in_vain",
        [
            "update fairlead.job_steps set kind = 'signal', name = 'go-on' where job_id = %(vain_0)s and kind = 'event'",
            copy(
                "job_signals",
                "job_id = %(durable_0)s",
                id=NEW_ID,
                job_id="%(vain_0)s::uuid",
                taken_at="null",
            ),
        ],
    ),
    (
        "woke_early",
        [change_step("kind = 'sleep' and branch = ''", "due_at = due_at + interval '1 hour'")],
    ),
    ("woke_early", [change_step("kind = 'event' and name = 'chaos.confirmed'", "ended_at = null")]),
    ("received_twice", [copy("job_steps", "job_id = %(durable_0)s and kind = 'signal'", position="99")]),
    ("signal_lost", ["delete from fairlead.job_signals where job_id = %(durable_0)s"]),
]


@pytest.mark.parametrize(("name", "statements"), BREAKAGES)
async def test_a_changed_row_is_found(tampering: Tampering, name: str, statements: list[str]) -> None:
    assert await tampering.find(name, *statements)


async def test_a_hot_row_without_a_job_is_found(tampering: Tampering) -> None:
    result = await tampering.check("delete from fairlead.job_records where id = %(keyed_0)s", copy_of_key())

    assert result.finding_counts[INCONSISTENT] > 0
    assert not result.is_clean


def copy_of_key() -> str:
    return (
        "insert into fairlead.active_keys (tenant_id, key_hash, job_id) "
        "select tenant_id, sha256('k'), %(keyed_0)s::uuid from fairlead.job_records where id = %(single_0)s"
    )


async def test_a_job_whose_worker_a_fault_killed_three_times_is_counted_and_no_finding(
    tampering: Tampering,
) -> None:
    as_if_harmless = (
        "update fairlead.job_records set definition_id = (select id from fairlead.job_definitions where key = 'chaos.quick') "
        "where id = %(poison_0)s"
    )

    result = await tampering.check(as_if_harmless)

    assert result.finding_counts["condemned_innocent"] == 0
    assert result.counts["condemned by kills while it ran alone"] == 1
    assert await tampering.find("condemned_innocent", as_if_harmless, edit=test_checks_history.without_faults)


def test_every_rule_has_a_breakage() -> None:
    tested = {name for name, _ in BREAKAGES} | {name for name, _ in test_checks_history.BREAKAGES}

    assert MEANINGS.keys() - tested == {INCONSISTENT, NOT_DRAINED, ORPHANED, SLOW}
