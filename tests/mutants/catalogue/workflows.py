"""Runs advance in the transaction that ends their jobs: mutants of joins, locks and waiting jobs."""

from tests.mutants.catalogue.runs import KILLS, REPLIES, step
from tests.mutants.mutant import Edit, Mutant, Suite

MOVE_ON = "db/functions/move_on.sql"
_WORKFLOWS = Suite(("tests/test_workflows.py",))

MUTANTS = (
    Mutant(
        name="run_not_locked",
        breaks=("I1",),
        wrong="Two workers that end steps of one run do not wait for each other, and one of the ends is not counted.",
        file=MOVE_ON,
        old="    perform from fairlead.workflow_runs r where r.id = any(runs) order by r.id for update;\n",
        new="",
        catchers=(KILLS, step("finish × finish of two steps before a join")),
        findings=("run_not_ended", "inconsistent", "step_not_once"),
    ),
    Mutant(
        name="join_released_early",
        breaks=("I1",),
        wrong="A step starts when the first of the steps before it has ended.",
        file=MOVE_ON,
        old="            state = case when s.pending = w.steps then 'running' else s.state end,\n"
        "            remaining = case when s.pending = w.steps then 1 else 0 end,\n"
        "            started_at = case when s.pending = w.steps then clock_timestamp() end\n",
        new="            state = 'running', remaining = 1, started_at = clock_timestamp()\n",
        more=(Edit(MOVE_ON, "        from begun b where b.pending = 0\n", "        from begun b\n"),),
        catchers=(step("finish × finish of two steps before a join"), KILLS, _WORKFLOWS),
        findings=("step_early", "handler_early", "join_output"),
    ),
    Mutant(
        name="run_advanced_in_another_transaction",
        breaks=("I1",),
        wrong="A step ends in one transaction and its run advances in others: a worker that dies in between stops the run.",
        file="actions/workflow_progress.py",
        old="        await settle_or_leave(tx, ended)\n    # the runs",
        new="    await settle_or_leave(tx, ended)\n    # the runs",
        catchers=(KILLS, REPLIES),
        findings=("run_not_ended", "inconsistent"),
    ),
    Mutant(
        name="waiting_job_not_woken",
        breaks=("I1",),
        wrong="A run that ends skips the job that waits for it if that is locked, and nothing looks again.",
        file="store/workflows.sql",
        old="    where id = %(run_id)s and exists (select from asleep) and not exists (select from woken)\n",
        new="    where id = %(run_id)s and false\n",
        catchers=(
            KILLS,
            Suite(("tests/test_workflows_from_jobs.py", "tests/test_workflow_faults.py")),
        ),
        findings=("job_not_ended",),
    ),
    Mutant(
        name="rescue_does_not_advance_runs",
        breaks=("I1", "I11"),
        wrong="A step that the watchdog ends for good does not end in its run, which waits for ever.",
        file="runtime/watchdog.py",
        old="            await workflow_progress.settle_or_leave(tx, rescued)\n",
        new="",
        catchers=(Suite(("tests/runtime/test_watchdog.py",)),),
    ),
)
