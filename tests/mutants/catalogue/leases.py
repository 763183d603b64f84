"""A lease is (job, attempt, token): mutants that let a stale owner write, or end what is not theirs to end."""

from tests.mutants.catalogue.runs import KILLS, STOPS, step
from tests.mutants.mutant import Edit, Mutant, Suite

QUEUE = "store/queue.sql"
_OLD = Suite(("tests/store/test_old_transactions.py",))
_GUARD = "l.job_id = o.job_id and l.attempt_no = o.attempt_no and l.token = o.token"

MUTANTS = (
    Mutant(
        name="success_without_token",
        breaks=("I4", "I2"),
        wrong="A success names the job only, so a worker that lost its lease ends the attempt of the next owner.",
        file=QUEUE,
        old=f"    where {_GUARD}\n    returning l.job_id, l.attempt_no, l.token, l.tenant_id",
        new="    where l.job_id = o.job_id\n    returning l.job_id, l.attempt_no, l.token, l.tenant_id",
        catchers=(step("stale finish (success) × claim"), STOPS, Suite(("tests/store/test_queue.py",))),
        findings=("output_of_other_attempt", "success_unfounded"),
    ),
    Mutant(
        name="finish_without_token",
        breaks=("I4", "I3"),
        wrong="A failure, snooze or release names the job only, so a worker that lost its lease ends the next attempt.",
        file=QUEUE,
        old=f"    where {_GUARD}\n    returning o.*, l.tenant_id",
        new="    where l.job_id = o.job_id\n"
        "    returning o.job_id, l.attempt_no, l.token, o.status, o.attempt_status, o.delay, o.charge, o.loss,\n"
        "        o.suspicion, o.alone, o.accused, o.output, o.error, o.message, o.cost, o.log, o.ran, l.tenant_id",
        catchers=(step("stale finish (failure) × claim"), STOPS, Suite(("tests/store/test_queue.py",))),
        findings=("failure_unfounded",),
    ),
    Mutant(
        name="heartbeat_by_job",
        breaks=("I4", "I3"),
        wrong="A heartbeat names the job only, so a worker that lost its lease renews that of the next owner.",
        file=QUEUE,
        old=f"        where {_GUARD}\n            and l.expires_at > clock_timestamp()\n        limit 1) held",
        new="        where l.job_id = o.job_id\n            and l.expires_at > clock_timestamp()\n        limit 1) held",
        more=(
            Edit(
                QUEUE,
                "where l.job_id = o.job_id and l.token = o.token and l.expires_at > clock_timestamp()",
                "where l.job_id = o.job_id and l.expires_at > clock_timestamp()",
            ),
        ),
        catchers=(step("stale heartbeat × claim"), STOPS, Suite(("tests/store/test_queue.py",))),
        findings=("handlers_overlap",),
    ),
    Mutant(
        name="progress_without_token",
        breaks=("I4",),
        wrong="Progress names the job only, so a worker that lost its lease overwrites the progress of the next attempt.",
        file=QUEUE,
        old="where l.job_id = p.job_id and l.attempt_no = p.attempt_no and l.token = p.token and l.expires_at",
        new="where l.job_id = p.job_id and l.expires_at",
        catchers=(STOPS, Suite(("tests/store/test_queue.py", "tests/test_leases.py"))),
        findings=("progress_of_other_attempt",),
    ),
    Mutant(
        name="log_without_token",
        breaks=("I4",),
        wrong="The log of an attempt that is over still grows while another attempt of the job runs.",
        file="db/functions/append_log.sql",
        old="where l.job_id = of_job and l.attempt_no = of_attempt and l.token = lease_token and l.expires_at",
        new="where l.job_id = of_job and l.expires_at",
        more=(
            Edit(
                "store/logs.sql",
                "join fairlead.leases l on l.job_id = a.job_id and l.attempt_no = a.attempt_no and l.token = a.token\n"
                "    where l.expires_at > clock_timestamp()\n    for key share",
                "join fairlead.leases l on l.job_id = a.job_id\n"
                "    where l.expires_at > clock_timestamp()\n    for key share",
            ),
        ),
        catchers=(STOPS, Suite(("tests/store/test_logs.py",))),
        findings=("log_after_end",),
    ),
    Mutant(
        name="lost_finish_believed",
        breaks=("I4",),
        wrong="A finish reports ends as written although their leases were gone, and the worker believes it.",
        file="store/queue.py",
        old="    if not ends:\n        return {}\n    [(text,)] = await tx.run_quick(sql.finished_before",
        new="    if ends:\n"
        "        return {lease.job_id: change.status for lease, change in ends}\n"
        "    [(text,)] = await tx.run_quick(sql.finished_before",
        catchers=(step("stale finish (success) × claim"), Suite(("tests/store/test_queue.py",))),
    ),
    Mutant(
        name="repeated_finish_refused",
        breaks=("I4", "I11"),
        wrong="A finish that is sent again because its answer was lost is refused like that of a stale owner.",
        file=QUEUE,
        old="where a.job_id = o.job_id and a.attempt_no = o.attempt_no and a.token = o.token\n"
        "        and a.status <> 'lost'",
        new="where a.job_id = o.job_id and a.attempt_no = o.attempt_no and a.token = o.token and false\n"
        "        and a.status <> 'lost'",
        catchers=(step("finish (success) × the same finish"), Suite(("tests/store/test_queue.py",))),
    ),
    Mutant(
        name="lease_from_transaction_start",
        breaks=("I4", "I11"),
        wrong="A lease begins at the start of its transaction: a claim in an old transaction gets one that has ended.",
        file="db/functions/claim.sql",
        old="    claimed_at := case when keyed then coalesce(started_at, clock_timestamp()) else clock_timestamp() end;\n",
        new="    claimed_at := now();\n",
        catchers=(_OLD,),
    ),
    Mutant(
        name="renewal_from_transaction_start",
        breaks=("I4", "I11"),
        wrong="A heartbeat compares and renews with the start of its transaction: in an old one it renews what has expired.",
        file=QUEUE,
        old="            and l.expires_at > clock_timestamp()\n        limit 1) held",
        new="            and l.expires_at > now()\n        limit 1) held",
        more=(
            Edit(
                QUEUE,
                "l.token = o.token and l.expires_at > clock_timestamp()\n        limit 1 for no key update",
                "l.token = o.token and l.expires_at > now()\n        limit 1 for no key update",
            ),
            Edit(
                QUEUE,
                "set expires_at = clock_timestamp() + make_interval",
                "set expires_at = now() + make_interval",
            ),
        ),
        catchers=(_OLD,),
    ),
    Mutant(
        name="cancel_ends_running_job",
        breaks=("I2", "I3"),
        wrong="The cancel of a running job ends it in the database at once, while its handler runs on.",
        file="store/jobs.sql",
        old="update fairlead.job_records set cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())\n"
        "where id = %(id)s\nreturning id;",
        new="with gone as (delete from fairlead.leases where job_id = %(id)s)\n"
        "update fairlead.job_records set cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),\n"
        "    status = 'canceled', troubled = true, finished_at = clock_timestamp()\n"
        "where id = %(id)s\nreturning id;",
        catchers=(
            step("finish (success) × cancel"),
            KILLS,
            Suite(("tests/store/test_life.py", "tests/store/test_queue_machine.py")),
        ),
        findings=("inconsistent", "attempt_gap", "start_unrecorded", "level_differs"),
    ),
    Mutant(
        name="cancel_request_forgotten",
        breaks=("I2",),
        wrong="A job that was asked to stop is queued again when its attempt fails or its worker is lost.",
        file=QUEUE,
        old="    set status = case when j.cancel_requested_at is not null and e.status <> 'succeeded' then 'canceled'\n"
        "            else e.status end,",
        new="    set status = e.status,",
        more=(
            Edit(
                QUEUE,
                "troubled = e.status > 'succeeded' or (j.cancel_requested_at is not null and e.status <> 'succeeded'),",
                "troubled = e.status > 'succeeded',",
            ),
            Edit(
                QUEUE,
                "case when e.status > 'running' or j.cancel_requested_at is not null then (select now from moment) end",
                "case when e.status > 'running' then (select now from moment) end",
            ),
            Edit(
                QUEUE,
                "case when e.status = 'queued' and j.cancel_requested_at is null\n",
                "case when e.status = 'queued'\n",
            ),
        ),
        catchers=(step("finish (failure) × cancel"), KILLS, Suite(("tests/store/test_queue.py",))),
        findings=("cancel_lost", "started_after_cancel", "inconsistent"),
    ),
    Mutant(
        name="retry_of_any_job",
        breaks=("I2",),
        wrong="A retry by hand queues a job again whatever its status: also one that waits, runs or has succeeded.",
        file="store/jobs.sql",
        old="where id = %(id)s and status in ('failed', 'dead_letter', 'canceled') for update;",
        new="where id = %(id)s for update;",
        catchers=(
            step("retry × retry"),
            KILLS,
            Suite(("tests/store/test_jobs.py", "tests/store/test_life.py")),
        ),
        findings=("inconsistent", "success_overwritten", "outcome_twice", "audit_order"),
    ),
    Mutant(
        name="cancel_without_lease_lock",
        breaks=("I2",),
        wrong="A cancel does not hold the lease while it asks, so a job that goes back to the queue meanwhile waits although it was canceled.",
        file="store/jobs.sql",
        old="select job_id from fairlead.leases where job_id = %(id)s for key share;",
        new="select job_id from fairlead.leases where job_id = %(id)s;",
        catchers=(step("finish (failure) × cancel"),),
    ),
    Mutant(
        name="joined_end_without_fence",
        breaks=("I4",),
        wrong="A handler's transaction commits although its lease is lost, so its changes are made by two attempts.",
        file="runtime/joined_ends.py",
        old="        if self._attempt.held.lease.job_id not in done:\n",
        new="        if self._attempt.held.lease.job_id not in done and False:\n",
        catchers=(Suite(("tests/test_transaction_ends.py::test_a_lost_lease_rolls_everything_back",)),),
    ),
    Mutant(
        name="joined_end_assumed",
        breaks=("I1", "I2"),
        wrong="A worker takes an end that its handler wrote for committed, although the transaction was rolled back.",
        file="runtime/joined_attempts.py",
        old="        if attempt.has_ended:\n            state = JoinedEnd.ENDED\n",
        new="        if attempt.joined is not None:\n            state = JoinedEnd.ENDED\n",
        catchers=(
            Suite(("tests/test_transaction_ends.py::test_after_a_rollback_what_the_handler_returns_counts",)),
        ),
    ),
)
