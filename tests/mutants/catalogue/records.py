"""Audit log and usage: mutants that leave an entry out, or count a run twice."""

from tests.mutants.catalogue.runs import KILLS
from tests.mutants.mutant import Mutant, Suite

MUTANTS = (
    Mutant(
        name="cancel_of_running_job_not_audited",
        breaks=("I9",),
        wrong="A running job that ends as canceled has no entry in the audit log.",
        file="store/queue.sql",
        old="            when 'failed' then 'JOB_FAILED' when 'canceled' then 'JOB_CANCELED' end as action\n",
        new="            when 'failed' then 'JOB_FAILED' end as action\n",
        catchers=(KILLS, Suite(("tests/store/test_queue.py",))),
        findings=("end_unaudited",),
    ),
    Mutant(
        name="bulk_enqueue_not_audited",
        breaks=("I9",),
        wrong="A bulk enqueue has no entry in the audit log.",
        file="actions/enqueue.py",
        old="    await _audit_bulk(tx, principal, places)\n",
        new="",
        catchers=(KILLS, Suite(("tests/actions/test_enqueue.py",))),
        findings=("creation_unaudited",),
    ),
    Mutant(
        name="grouped_enqueue_not_audited",
        breaks=("I9",),
        wrong="Jobs of several tasks that are enqueued by one statement have no entries in the audit log.",
        file="store/jobs.sql",
        old="    select moment, tenant_id, %(actor)s::text, 'job_created', 'job', id::text,\n"
        "        jsonb_build_object('definition_key', key) from about\n",
        new="    select moment, tenant_id, %(actor)s::text, 'job_created', 'job', id::text,\n"
        "        jsonb_build_object('definition_key', key) from about limit 1\n",
        catchers=(KILLS, Suite(("tests/actions/test_enqueue_groups.py",))),
        findings=("creation_unaudited",),
    ),
    Mutant(
        name="lost_runs_counted_twice",
        breaks=("I9",),
        wrong="Usage counts a run when it is claimed and again when it is lost.",
        file="store/queue.sql",
        old="        count(*), count(*) filter (where status = 'queued' and ended_as <> 'released'), sum(duration_ms::float8),\n",
        new="        count(*) + count(*) filter (where ended_as = 'lost'),\n"
        "        count(*) filter (where status = 'queued' and ended_as <> 'released'), sum(duration_ms::float8),\n",
        catchers=(KILLS, Suite(("tests/store/test_usage.py", "tests/store/test_queue_machine.py"))),
        findings=("usage_differs",),
    ),
    Mutant(
        name="counts_of_rescued_jobs_wrong",
        breaks=("I6",),
        wrong="A rescued job still counts as running in the summaries of its tenant.",
        file="store/queue.sql",
        old="    select tenant_id, definition_id, (select date_trunc('minute', now) from moment), -count(*),\n"
        "        count(*) filter (where status = 'queued'), count(*)",
        new="    select tenant_id, definition_id, (select date_trunc('minute', now) from moment),\n"
        "        -count(*) filter (where ended_as <> 'lost'),\n"
        "        count(*) filter (where status = 'queued'), count(*)",
        catchers=(KILLS, Suite(("tests/store/test_queue.py", "tests/store/test_queue_machine.py"))),
        findings=("level_differs", "inconsistent"),
    ),
)
