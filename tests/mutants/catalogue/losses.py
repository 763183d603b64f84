"""Lost workers: mutants of the watchdog, and of what a loss means for the jobs that were lost."""

from tests.mutants.catalogue.runs import KILLS, POISON, step
from tests.mutants.mutant import Edit, Mutant, Suite

RESCUE = "store/rescue.sql"
OUTCOME = "model/outcome.py"
_SUSPECTS = Suite(("tests/store/test_suspects.py",))

MUTANTS = (
    Mutant(
        name="rescue_of_living_leases",
        breaks=("I3", "I19"),
        wrong="As soon as one lease has expired, the watchdog rescues those of living workers, too.",
        file=RESCUE,
        old="where l.expires_at < clock_timestamp() - make_interval(secs => %(grace_seconds)s)\n"
        "    and l.expires_at <= %(until)s::timestamptz and l.job_id = coalesce(%(only)s, l.job_id)\n"
        "    and not l.job_id = any(%(but)s::uuid[])",
        new="where l.job_id = coalesce(%(only)s, l.job_id)\n    and not l.job_id = any(%(but)s::uuid[])",
        catchers=(step("heartbeat × rescue, live"), KILLS, Suite(("tests/store/test_queue.py",))),
        findings=("handlers_overlap", "charged_beside_others", "condemned_innocent"),
    ),
    Mutant(
        name="no_wait_after_outage",
        breaks=("I19", "I11"),
        wrong="After an outage of the database the watchdog rescues all leases at once, before their owners can report.",
        file=RESCUE,
        old="coalesce(p.pulse_at < clock_timestamp() - make_interval(secs => %(gap_seconds)s), false) as is_gap",
        new="false as is_gap",
        catchers=(Suite(("tests/runtime/test_watchdog.py",)),),
    ),
    Mutant(
        name="loss_charges_failure",
        breaks=("I19",),
        wrong="A lost attempt uses up one of the job's attempts, like a failure.",
        file=OUTCOME,
        old="        loss=int(charged),\n",
        new="        loss=int(charged),\n        charge=1,\n",
        catchers=(KILLS, _SUSPECTS),
        findings=("failures_overcharged", "condemned_innocent"),
    ),
    Mutant(
        name="companions_blamed",
        breaks=("I19", "I12"),
        wrong="Every job that a lost worker held is charged with its loss.",
        file="model/blame.py",
        old="    if before is None and len(held) == 1:\n",
        new="    if held:\n",
        catchers=(KILLS, _SUSPECTS),
        findings=("charged_beside_others", "condemned_innocent"),
    ),
    Mutant(
        name="suspects_not_alone",
        breaks=("I12",),
        wrong="A job whose workers keep dying runs beside others again and again, and its loss is never its own.",
        file=OUTCOME,
        old="alone=is_suspect and not is_over and not outcome.on_host,",
        new="alone=False,",
        catchers=(POISON, _SUSPECTS),
        findings=("poison_not_contained",),
    ),
    Mutant(
        name="suspects_forgotten",
        breaks=("I1", "I11"),
        wrong="A suspect goes neither to ready nor to later: it waits for ever.",
        file="store/queue.sql",
        old="    where status = 'queued' and (delay > 0 or alone)\n",
        new="    where status = 'queued' and delay > 0 and not alone\n",
        catchers=(POISON, _SUSPECTS),
        findings=("job_not_ended", "inconsistent"),
    ),
    Mutant(
        name="charge_of_living_worker_kept",
        breaks=("I19",),
        wrong="A job stays charged with the loss of a worker that was only disconnected and is back.",
        file=RESCUE,
        old="    where w.charged_job is not null and (\n",
        new="    where w.charged_job is not null and false and (\n",
        catchers=(_SUSPECTS,),
    ),
    Mutant(
        name="poison_never_contained",
        breaks=("I12",),
        wrong="A job that kills every worker it runs on is tried without end.",
        file=OUTCOME,
        old="        if losses < MAX_LOST:\n",
        new="        if losses < 1000:\n",
        catchers=(POISON, _SUSPECTS),
        findings=("poison_not_contained",),
    ),
    Mutant(
        name="release_charges_failure",
        breaks=("I19",),
        wrong="A job that is snoozed or given back uses up one of its attempts.",
        file=OUTCOME,
        old="                message=why,\n",
        new="                message=why,\n                charge=1,\n",
        more=(
            Edit(
                OUTCOME,
                'return Change(status=JobStatus.QUEUED, attempt_status="released", cost_cents=cost)',
                'return Change(status=JobStatus.QUEUED, attempt_status="released", cost_cents=cost, charge=1)',
            ),
        ),
        catchers=(KILLS, Suite(("tests/store/test_queue.py",))),
        findings=("failures_overcharged", "condemned_innocent"),
    ),
)
