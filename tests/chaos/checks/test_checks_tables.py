"""Each rule about the tables finds the one row that was changed against it."""

from pathlib import Path

import pytest

from fairlead.chaos.checks.check_run import IDLE, INCONSISTENT, MEANINGS, NOT_DRAINED, ORPHANED, SLOW
from fairlead.chaos.load.secret_values import build_secret
from tests.chaos.checks import test_checks_history
from tests.chaos.checks.tampering import Tampering
from tests.tables import each_case

pytestmark = pytest.mark.thorough


def copy(table: str, where: str, **changes: str) -> str:
    """Insert a copy of a row with other values."""
    values = ", ".join(f"'{name}', {value}" for name, value in changes.items())
    return (
        f"insert into fairlead.{table} select (jsonb_populate_record(r, jsonb_build_object({values}))).* "
        f"from fairlead.{table} r where {where}"
    )


def delete(table: str, where: str) -> str:
    return f"delete from fairlead.{table} where {where}"


def change_job(job: str, change: str) -> str:
    return f"update fairlead.job_records set {change} where id = %({job})s"


def change_attempts(job: str, change: str, where: str = "true") -> str:
    return f"update fairlead.job_attempts set {change} where job_id = %({job})s and {where}"


def begin_early(job: str, *, hours: int = 1) -> str:
    """As if the job had been started hours before."""
    return change_attempts(job, f"started_at = started_at - interval '{hours} hours'")


def repeat_start(job: str, *, times: int) -> str:
    """As if the job had been started more often, always at the same moment."""
    return (
        "insert into fairlead.job_attempts select (jsonb_populate_record(r, jsonb_build_object('attempt_no', n))).* "
        f"from fairlead.job_attempts r, generate_series(2, {times + 1}) n where r.job_id = %({job})s"
    )


def audit(action: str, *, times: int) -> str:
    """Insert entries about a job."""
    return (
        "insert into fairlead.audit_log (tenant_id, actor, action, resource_type, resource_id, details) "
        f"select tenant_id, 'x', '{action}', 'job', id::text, '{{\"definition_key\": \"chaos.quick\"}}' "
        f"from fairlead.job_records, generate_series(1, {times}) where id = %(single_0)s"
    )


def log(job: str, *, of: int, at: str) -> str:
    """Insert a line into the log of the first attempt, at a time of one of the job's attempts."""
    return (
        "insert into fairlead.log_chunks (job_id, attempt_no, seq, tenant_id, at, text) "
        f"select job_id, 1, 99, tenant_id, {at}, 'late' "
        f"from fairlead.job_attempts where job_id = %({job})s and attempt_no = {of}"
    )


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
    return change_job("durable_0", f"output = {output}")


JOIN_JOB = (
    "(select j.id from fairlead.job_records j join fairlead.job_definitions d on d.id = j.definition_id "
    "where d.key = 'chaos.join')"
)
NEW_ID = "gen_random_uuid()"
FIRST_FIRING = (
    "(select f.id from fairlead.trigger_firings f join fairlead.job_triggers g on g.id = f.trigger_id "
    "where g.label = 'chaos-clock' order by f.scheduled_at limit 1)"
)

# The rule that must notice, and what is changed.
BREAKAGES: list[tuple[str, ...]] = [
    # lost
    ("job_lost", delete("job_records", "id = %(single_0)s")),
    ("job_differs", change_job("single_0", "payload = payload || '{\"fail\": 9}'")),
    ("job_not_ended", change_job("single_0", "status = 'queued'")),
    ("bulk_torn", delete("job_records", "id = %(bulk_1)s")),
    ("bulk_torn_by_key", delete("job_records", "id = %(mixed_1)s")),
    ("order_lost", "delete from public.chaos_orders where call_id = %(call_order)s"),
    ("order_torn", delete("job_records", "id = %(order_0)s")),
    ("order_event_torn", delete("events", "correlation_id = %(call_order)s::text")),
    ("event_lost", delete("events", "id = %(emit_0)s")),
    ("run_lost", delete("workflow_runs", "id = %(run_0)s")),
    ("cancel_lost", change_job("canceled_0", "status = 'succeeded'")),
    (
        "started_after_cancel",
        copy(
            "job_attempts",
            "job_id = %(single_0)s",
            job_id="%(canceled_0)s::uuid",
            started_at="now() + interval '1 hour'",
        ),
    ),
    ("retry_lost", delete("audit_log", "action = 'JOB_RETRIED' and resource_id = %(fatal_0)s::text")),
    # unexpected
    ("job_unexpected", copy("job_records", "id = %(single_0)s", id=NEW_ID, correlation_id="'nobody'")),
    ("job_repeated", copy("job_records", "id = %(single_0)s", id=NEW_ID)),
    ("event_unexpected", copy("events", "id = %(emit_0)s", id=NEW_ID, correlation_id="'nobody'")),
    ("event_repeated", copy("events", "id = %(emit_0)s", id=NEW_ID)),
    ("run_unexpected", "update fairlead.workflow_runs set unique_key = 'nobody'"),
    (
        "run_repeated",
        "drop index fairlead.workflow_runs_by_unique_key",
        copy("workflow_runs", "id = %(run_0)s", id=NEW_ID),
    ),
    # outcomes
    ("succeeded_twice", change_attempts("flaky_0", "status = 'succeeded'", "attempt_no = 1")),
    ("outcome_twice", audit("JOB_FAILED", times=1)),
    ("success_overwritten", change_job("single_0", "status = 'canceled'")),
    ("outcome_unplanned", change_job("single_0", "status = 'failed'")),
    # attempts
    ("attempt_gap", change_attempts("flaky_0", "attempt_no = 5", "attempt_no = 1")),
    ("attempt_repeated", change_job("single_0", "success_token = gen_random_uuid()")),
    ("attempt_without_job", delete("job_records", "id = %(single_0)s")),
    (
        "attempts_overlap",
        change_attempts("flaky_0", "started_at = started_at - interval '1 hour'", "attempt_no = 2"),
    ),
    # stale writes
    ("outcome_after_loss", change_attempts("single_0", "status = 'lost'")),
    ("log_after_end", log("single_0", of=1, at="finished_at + interval '3 s'")),
    ("log_after_end", log("flaky_0", of=2, at="started_at + interval '1 ms'")),
    ("output_of_other_attempt", change_job("single_0", "output = '{\"attempt\": 9}'")),
    (
        "progress_of_other_attempt",
        change_job("single_0", 'progress = \'{"percent": 50, "message": "attempt 9"}\''),
    ),
    # dedupe
    (
        "key_active_twice",
        change_attempts(
            "after_0",
            "started_at = (select a.started_at from fairlead.job_attempts a where a.job_id = %(keyed_0)s)",
        ),
    ),
    ("duplicate_of_other_key", change_job("keyed_0", "dedupe_key = 'another'")),
    ("duplicate_of_ended_job", change_job("keyed_0", "finished_at = queued_at - interval '1 hour'")),
    ("unique_taken_twice", change_job("unique_0", "dedupe_key = 'k'")),
    # limits
    ("limit_exceeded", together("t.slug = 'globex'")),
    ("limit_exceeded", together("d.key = 'chaos.slow'")),
    ("limit_exceeded", together("d.key = 'chaos.narrow'")),
    ("limit_exceeded", together("j.host_id is not null")),
    # limits by key
    ("key_limit_exceeded", together("d.key = 'chaos.line'")),
    ("key_limit_exceeded", together("d.key = 'chaos.paired'")),
    ("key_overtaken", begin_early("line_0_0", hours=2), begin_early("line_1_0")),
    (
        "key_stood_still",
        change_job("line_2_0", "queued_at = queued_at - interval '1 hour'"),
        change_attempts("line_2_0", "started_at = now() + interval '1 hour'"),
    ),
    ("dropped_for_other_key", change_job("kept_0", 'payload = payload || \'{"customer": "c9"}\'')),
    ("dropped_for_other_key", delete("job_records", "id = %(kept_0)s")),
    # rates
    ("rate_exceeded", repeat_start("rated_0", times=6)),
    ("rate_exceeded", change_job("costly_0", "payload = payload || '{\"cost\": 31}'")),
    ("rate_exceeded", repeat_start("paced_0", times=1)),
    # expiry
    ("started_after_expiry", change_attempts("in_time_0", "started_at = now() + interval '2 hours'")),
    ("expired_early", change_job("expired_0", "finished_at = queued_at - interval '1 hour'")),
    ("expired_early", change_job("canceled_0", 'error = \'{"type": "expired"}\'')),
    ("expired_early", copy("job_attempts", "job_id = %(single_0)s", job_id="%(expired_0)s::uuid")),
    # debounced jobs
    ("debounced_early", begin_early("settled_0")),
    (
        "debounce_payload_lost",
        change_job("settled_0", "payload = payload || jsonb_build_object('call', %(call_settled)s::text)"),
    ),
    # edited jobs
    ("edit_lost", change_job("edited_0", "payload = payload || '{\"edit\": 0}'")),
    ("edit_of_refusal", change_job("edited_0", "payload = payload || '{\"edit\": 2}'")),
    ("edited_too_late", change_job("edited_0", "output = output || '{\"edit\": 0}'")),
    # jobs that end in a transaction
    ("commit_torn", "delete from public.chaos_commits"),
    ("commit_unfounded", change_attempts("committed_0", "status = 'failed'")),
    ("commit_unfounded", "insert into public.chaos_commits select * from public.chaos_commits"),
    # secrets
    ("secret_wrong", change_job("secret_0", "payload = payload || '{\"edit\": 1}'")),
    ("secret_shown", change_job("secret_0", "output = '\"chaos-secret:x\"'")),
    (
        "sealed_with_retired_key",
        "update fairlead.tenant_keys set superseded_at = now(), retired_at = now() where tenant_id is not null",
    ),
    # upgrades
    (
        "upgrade_noticed",
        change_job("single_0", "last_error = 'function fairlead.claim(text) does not exist'"),
    ),
    # firings
    ("instant_missed", delete("trigger_firings", f"id = {FIRST_FIRING}")),
    ("schedule_missing", "update fairlead.job_triggers set label = 'renamed' where label = 'chaos-event'"),
    ("instant_doubled", copy("trigger_firings", f"r.id = {FIRST_FIRING}", id=NEW_ID, slot="'another'")),
    (
        "instant_run_twice",
        copy(
            "trigger_firings",
            f"r.id = {FIRST_FIRING}",
            id=NEW_ID,
            slot="'backfill:another'",
            outcome="'enqueued'",
            job_id="%(single_0)s::uuid",
        ),
    ),
    (
        "fired_early",
        f"update fairlead.trigger_firings set fired_at = scheduled_at - interval '1 hour' where id = {FIRST_FIRING}",
    ),
    ("firing_without_job", delete("job_records", "source = 'schedule'")),
    ("firing_shares_job", "update fairlead.trigger_firings set job_id = %(single_0)s where event_id is null"),
    ("job_without_firing", delete("trigger_firings", f"id = {FIRST_FIRING}")),
    ("event_not_dispatched", "update fairlead.events set dispatched_at = null where id = %(emit_0)s"),
    ("event_firing_missed", delete("trigger_firings", "event_id = %(emit_0)s")),
    ("event_firing_doubled", copy("trigger_firings", "event_id = %(emit_0)s", id=NEW_ID, slot="'another'")),
    # audit
    (
        "creation_unaudited",
        delete(
            "audit_log",
            "ctid = (select ctid from fairlead.audit_log where action = 'jobs_created' limit 1) and action = 'jobs_created'",
        ),
    ),
    ("creation_audited_twice", audit("job_created", times=2)),
    ("end_unaudited", delete("audit_log", "action = 'JOB_EXHAUSTED_RETRIES'")),
    (
        "audit_order",
        delete(
            "audit_log",
            "action = 'JOB_FAILED' and resource_id = %(fatal_0)s::text and at = ("
            "select min(at) from fairlead.audit_log where action = 'JOB_FAILED')",
        ),
    ),
    ("cancel_unaudited", delete("audit_log", "action = 'JOB_CANCELED'")),
    ("event_unaudited", delete("audit_log", "action = 'event_emitted' and resource_id = %(emit_0)s::text")),
    ("run_unaudited", delete("audit_log", "action = 'WORKFLOW_RUN_SUCCEEDED'")),
    ("audit_unprotected", "alter table fairlead.audit_log_rest disable trigger audit_stays"),
    ("audit_unprotected", "alter table fairlead.audit_log_rest disable trigger audit_rows_stay"),
    # innocent jobs
    ("failures_overcharged", change_job("single_0", "failure_count = 4")),
    ("losses_overcharged", change_job("single_0", "lost_count = 2")),
    (
        "charged_beside_others",
        "update fairlead.lost_workers set charged_job = %(beside_0)s, charged_attempt = 1 where worker_id like '%%:again'",
    ),
    ("condemned_innocent", change_job("single_0", "status = 'dead_letter'")),
    ("poison_not_contained", change_job("poison_0", "status = 'failed'")),
    # usage
    (
        "usage_differs",
        "update fairlead.counts set cost_cents = cost_cents + 1 where ctid = (select ctid from fairlead.counts where runs > 0 limit 1)",
    ),
    ("cost_differs", change_job("single_0", "cost_cents = cost_cents + 1")),
    (
        "level_differs",
        "update fairlead.counts set queued = queued + 1 where ctid = (select ctid from fairlead.counts where not leveled limit 1)",
    ),
    # workflows
    ("run_not_ended", "update fairlead.workflow_runs set status = 'running', finished_at = null"),
    ("run_unplanned_end", "update fairlead.workflow_runs set status = 'failed'"),
    ("step_not_once", copy("job_records", f"id = {JOIN_JOB}", id=NEW_ID)),
    ("step_not_once", delete("job_records", f"id = {JOIN_JOB}")),
    (
        "step_early",
        f"update fairlead.job_records set queued_at = queued_at - interval '1 hour' where id = {JOIN_JOB}",
    ),
    ("join_output", f"update fairlead.job_records set output = '99' where id = {JOIN_JOB}"),
    # durable functions
    ("step_repeated", change_step("name = 'step-0'", "attempt_no = 0")),
    ("step_repeated", change_step("name = 'tried'", "tries = 1")),
    ("step_of_other_attempt", change_step("name = 'step-0'", "ended_at = ended_at + interval '1 hour'")),
    ("step_of_other_attempt", change_step("name = 'step-0'", "ended_at = ended_at - interval '1 hour'")),
    ("step_of_other_attempt", change_step("name = 'step-0'", "attempt_no = 99")),
    ("step_of_other_attempt", change_step("kind = 'event'", "started_at = started_at - interval '1 hour'")),
    ("step_unfounded", change_step("name = 'step-0'", """result = '"forged"'""")),
    ("function_steps", change_output("""jsonb_set(output, '{steps,step-0}', '"forged"')""")),
    ("function_steps", delete("job_steps", "job_id = %(durable_0)s and name = 'step-0'")),
    ("function_result", change_output("output - 'event'")),
    ("function_result", change_output("""output || '{"signal": "another"}'""")),
    ("function_result", change_output("""output || '{"child": "failed"}'""")),
    ("function_result", change_output("""output || '{"late": {"id": 1}}'""")),
    ("function_result", change_output("""output || '{"undone": false}'""")),
    ("answer_lost", change_output("""output || '{"approval": null}'""")),
    ("child_repeated", copy("job_records", "parent_id = %(durable_0)s", id=NEW_ID)),
    ("child_repeated", delete("job_records", "parent_id = %(durable_0)s")),
    (
        "wait_in_vain",
        copy(
            "events",
            "id = %(emit_0)s",
            id=NEW_ID,
            name="'chaos.confirmed'",
            data="(select request -> 'where' from fairlead.job_steps where job_id = %(vain_0)s and kind = 'event')",
            recorded_at="now()",
        ),
    ),
    (
        "wait_in_vain",
        "update fairlead.job_steps set kind = 'signal', name = 'go-on' where job_id = %(vain_0)s and kind = 'event'",
        copy(
            "job_signals",
            "job_id = %(durable_0)s",
            id=NEW_ID,
            job_id="%(vain_0)s::uuid",
            taken_at="null",
        ),
    ),
    ("woke_early", change_step("kind = 'sleep' and branch = ''", "due_at = due_at + interval '1 hour'")),
    ("woke_early", change_step("kind = 'event' and name = 'chaos.confirmed'", "ended_at = null")),
    ("received_twice", copy("job_steps", "job_id = %(durable_0)s and kind = 'signal'", position="99")),
    ("signal_lost", delete("job_signals", "job_id = %(durable_0)s")),
]


@each_case("breakage", BREAKAGES)
async def test_a_changed_row_is_found(tampering: Tampering, breakage: tuple[str, ...]) -> None:
    assert await tampering.find(*breakage)


async def test_a_hot_row_without_a_job_is_found(tampering: Tampering) -> None:
    result = await tampering.check(delete("job_records", "id = %(keyed_0)s"), copy_of_key())

    assert result.finding_counts[INCONSISTENT] > 0
    assert not result.is_clean


def copy_of_key() -> str:
    return (
        "insert into fairlead.active_keys (tenant_id, key_hash, job_id) "
        "select tenant_id, sha256('k'), %(keyed_0)s::uuid from fairlead.job_records where id = %(single_0)s"
    )


async def test_a_process_that_refuses_the_database_of_an_upgrade_is_found(
    tampering: Tampering, tmp_path: Path
) -> None:
    (tmp_path / "server-1.log").write_text("error [schema_outdated] The schema lacks …\n")
    (tmp_path / "worker-1.log").write_text("ERROR:  cached plan must not change result type\n" * 2)

    result = await tampering.check(logs=tmp_path)

    assert [(one.name, one.subject) for one in result.findings] == [
        ("upgrade_noticed", f"{tmp_path.name}/server-1.log: schema_outdated"),
        ("upgrade_noticed", f"{tmp_path.name}/worker-1.log: cached plan"),
    ]


async def test_a_secret_in_a_log_of_the_run_is_found(tampering: Tampering, tmp_path: Path) -> None:
    (tmp_path / "worker-1.log").write_text(f"a line\nit got {build_secret('acme', 2)}\n")

    result = await tampering.check(logs=tmp_path)

    [found] = result.findings
    assert (found.name, found.subject) == ("secret_shown", f"{tmp_path.name}/worker-1.log")
    assert build_secret("acme", 2) not in found.text


async def test_a_job_whose_worker_a_fault_killed_three_times_is_counted_and_no_finding(
    tampering: Tampering,
) -> None:
    quick = "(select id from fairlead.job_definitions where key = 'chaos.quick')"
    as_if_harmless = change_job("poison_0", f"definition_id = {quick}")

    result = await tampering.check(as_if_harmless)

    assert result.finding_counts["condemned_innocent"] == 0
    assert result.counts["condemned by kills while it ran alone"] == 1
    assert await tampering.find("condemned_innocent", as_if_harmless, edit=test_checks_history.without_faults)


def test_every_rule_has_a_breakage() -> None:
    tested = {name for name, *_ in BREAKAGES} | {name for name, _ in test_checks_history.BREAKAGES}

    assert MEANINGS.keys() - tested == {INCONSISTENT, NOT_DRAINED, ORPHANED, SLOW, IDLE}
