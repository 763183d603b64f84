"""Durable functions: mutants that run a recorded step again, let a stale attempt record one, or lose a wake-up."""

from tests.mutants.catalogue.runs import step
from tests.mutants.mutant import Edit, Mutant, Suite

_STORE = "store/durable.sql"
_GUARD = "l.job_id = o.job_id and l.attempt_no = o.attempt_no and l.token = o.token and l.expires_at > clock_timestamp()"
_DURABLE = Suite(("tests/test_durable.py",))

MUTANTS = (
    Mutant(
        name="step_without_token",
        breaks=("I16", "I4"),
        wrong="A step names its job only, so an attempt that lost its lease records steps of the next one.",
        edits=(Edit(_STORE, f"    where {_GUARD}", "    where l.job_id = o.job_id"),),
        catchers=(step("stale step × claim", "late step × rescue"), _DURABLE),
    ),
    Mutant(
        name="recorded_step_again",
        breaks=("I16",),
        wrong="An attempt does not read what earlier ones have recorded, so it runs their steps again.",
        edits=(
            Edit(
                "handlers/durable.py",
                "        if self._attempt_no > 1 or self._ctx.parent_id is not None:\n            await self.load()\n        yield\n",
                "        yield\n",
            ),
        ),
        catchers=(_DURABLE,),
    ),
    Mutant(
        name="steps_without_lease",
        breaks=("I16", "I17"),
        wrong="An attempt reads its earlier steps without its lease: after a move there are none, and all run again.",
        edits=(
            Edit(
                "store/durable.py",
                "    if len(steps) == len(found):\n        return None\n",
                "",
            ),
        ),
        catchers=(Suite(("tests/test_durable_safety.py",)),),
    ),
    Mutant(
        name="sleep_without_lock",
        breaks=("I16",),
        wrong="A function goes to sleep without a lock on its waits, so one that is completed meanwhile never wakes it.",
        edits=(
            Edit(
                "store/queue.py",
                "        await durable.lock_waits(tx, waits)\n",
                "",
            ),
        ),
        catchers=(step("suspend × signal", "suspend × children"),),
    ),
)
