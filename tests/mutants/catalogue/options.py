"""Options of jobs, slots, labels, edits and moves: mutants that forget one of them on one path."""

from tests.mutants.mutant import Mutant, Suite

_OPTIONS = Suite(("tests/actions/test_enqueue_options.py",))
_FREED = "                and k.job_id = c.id\n"
_KEPT = "                and k.job_id = c.id and coalesce(k.unique_until <= clock_timestamp(), true)\n"

MUTANTS = (
    Mutant(
        name="debounced_for_ever",
        breaks=("I1",),
        wrong="A debounced job is moved again and again, past the longest time that it may wait.",
        file="db/functions/debounce_job.sql",
        old="        moment + pause, first + make_interval(secs => (debounce_job.debounce ->> 'max_seconds')::float8));\n",
        new="        moment + pause);\n",
        catchers=(_OPTIONS,),
    ),
    Mutant(
        name="expired_job_starts",
        breaks=("I15",),
        wrong="A claim starts a job whose time is over.",
        file="db/functions/claim.sql",
        old="        if any_expired and ready_rows is not null then\n",
        new="        if false then\n",
        catchers=(_OPTIONS,),
    ),
    Mutant(
        name="started_job_expires",
        breaks=("I1",),
        wrong="A job that waits for its second attempt expires.",
        file="db/functions/expire_jobs.sql",
        old="            where j.id = any(due) and j.status = 'queued' and j.attempt_count = 0 and j.expires_at",
        new="            where j.id = any(due) and j.status = 'queued' and j.expires_at",
        catchers=(_OPTIONS,),
    ),
    Mutant(
        name="unique_key_free_after_plain_success",
        breaks=("I5",),
        wrong="A success without output, cost and log frees a key that is kept for a time (unique_for).",
        file="store/queue.sql",
        old=f"{_KEPT}            limit 1) held\n        where c.dedupe_key is not null))\n",
        new=f"{_FREED}            limit 1) held\n        where c.dedupe_key is not null))\n",
        catchers=(_OPTIONS,),
    ),
    Mutant(
        name="slots_not_counted",
        breaks=("I6",),
        wrong="A claim takes jobs that need more slots than the worker has.",
        file="db/functions/fit_slots.sql",
        old="    select array_agg(s.spot order by s.at) filter (where s.total <= fit_slots.free),\n",
        new="    select array_agg(s.spot order by s.at),\n",
        catchers=(Suite(("tests/store/test_claim_slots.py",)),),
    ),
    Mutant(
        name="labels_not_asked_for",
        breaks=("I6",),
        wrong="A worker without the labels that a definition requires claims its jobs.",
        file="db/functions/claim.sql",
        old="                        and (d.requires is null or d.requires <@ claim.labels)\n",
        new="",
        catchers=(Suite(("tests/store/test_claim_labels.py",)),),
    ),
    Mutant(
        name="edited_job_blocks_its_old_key",
        breaks=("I15",),
        wrong="A job that an edit gives another key does not let the next job of its old key go.",
        file="db/functions/edit_waiting.sql",
        old="    if old.limit_key is not null and (waits or new_key is distinct from old.limit_key) then\n",
        new="    if false then\n",
        catchers=(Suite(("tests/actions/test_edit_job.py",)),),
    ),
    Mutant(
        name="old_snapshot_writes_after_the_gate",
        breaks=("I17",),
        wrong="A transaction with an old snapshot does not lock its tenant, and writes after the tenant has moved.",
        file="db/functions/hold_tenant.sql",
        old="    if current_setting('transaction_isolation') <> 'read committed' then\n",
        new="    if false then\n",
        catchers=(Suite(("tests/test_tenant_moves.py",)),),
    ),
)
