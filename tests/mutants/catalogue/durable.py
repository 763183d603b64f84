"""Durable functions: mutants that run a recorded step again, let a stale attempt record one, or lose a wake-up."""

from tests.mutants.catalogue.runs import step
from tests.mutants.mutant import Mutant, Suite

_STORE = "store/durable.sql"
_GUARD = "l.job_id = o.job_id and l.attempt_no = o.attempt_no and l.token = o.token and l.expires_at > clock_timestamp()"
_DURABLE = Suite(("tests/test_durable.py",))
_EXACT = "tests/test_durable_exact.py"
_DEADLINES = "tests/test_durable_deadlines.py"
_RUNS_STEP = "                result = self._encode_result(asked, await call_step(function, args, kwargs, options.timeout))\n"

MUTANTS = (
    Mutant(
        name="step_without_token",
        breaks=("I16", "I4"),
        wrong="A step names its job only, so an attempt that lost its lease records steps of the next one.",
        file=_STORE,
        old=f"    where {_GUARD}",
        new="    where l.job_id = o.job_id",
        catchers=(step("stale step × claim", "late step × rescue"), _DURABLE),
    ),
    Mutant(
        name="recorded_step_again",
        breaks=("I16",),
        wrong="An attempt does not read what earlier ones have recorded, so it runs their steps again.",
        file="handlers/durable.py",
        old="        if self._attempt_no > 1 or self._ctx.parent_id is not None:\n            await self.load()\n        yield\n",
        new="        yield\n",
        catchers=(_DURABLE,),
    ),
    Mutant(
        name="steps_without_lease",
        breaks=("I16", "I17"),
        wrong="An attempt reads its earlier steps without its lease: after a move there are none, and all run again.",
        file="store/durable.py",
        old="    if len(steps) == len(found):\n        return None\n",
        new="",
        catchers=(Suite(("tests/test_durable_safety.py",)),),
    ),
    Mutant(
        name="sleep_without_lock",
        breaks=("I16",),
        wrong="A function goes to sleep without a lock on its waits, so one that is completed meanwhile never wakes it.",
        file="store/queue.py",
        old="        await durable.lock_waits(tx, waits)\n",
        new="",
        catchers=(step("suspend × signal", "suspend × children"),),
    ),
    Mutant(
        name="ended_wait_overwritten",
        breaks=("I16",),
        wrong="A wait that timed out, or has its result, gets that of an event that comes later.",
        file="db/functions/complete_waits.sql",
        old=" and s.position = w.position and s.status = 'waiting'\n        returning",
        new=" and s.position = w.position\n        returning",
        catchers=(
            step("give up × dispatch, late"),
            Suite(("tests/test_durable_safety.py::test_a_wait_that_is_over_keeps_its_result",)),
        ),
    ),
    Mutant(
        name="child_with_random_id",
        breaks=("I16", "I1"),
        wrong="A child has a random id: a function whose worker died before it recorded the call enqueues a second one.",
        file="handlers/durable.py",
        old='        return uuid5(self._job_id, f"{name}/{self._restarts}" if self._restarts else name)\n',
        new='        return uuid5(self._token, f"{name}/{self._restarts}" if self._restarts else name)\n',
        catchers=(
            Suite(
                (
                    "tests/test_durable_safety.py::test_a_child_whose_call_was_not_recorded_is_not_enqueued_twice",
                )
            ),
        ),
    ),
    Mutant(
        name="first_attempt_gets_another_value",
        breaks=("I16",),
        wrong="The attempt that runs a step gets the value of its function, and not what is stored.",
        file="handlers/durable.py",
        old="        return msgspec.json.decode(text)\n",
        new="        return plain\n",
        catchers=(Suite((f"{_EXACT}::test_each_attempt_gets_the_same_values_in_the_same_order",)),),
    ),
    Mutant(
        name="result_in_another_form",
        breaks=("I16",),
        wrong="Results pass through jsonb, so that replays get other numbers and another order of names.",
        file=_STORE,
        old="secret boolean, result json, error jsonb)",
        new="secret boolean, result jsonb, error jsonb)",
        catchers=(Suite((f"{_EXACT}::test_each_attempt_gets_the_same_values_in_the_same_order",)),),
    ),
    Mutant(
        name="recorded_step_fails_in_its_type",
        breaks=("I16",),
        wrong="A result is converted where failures of the step are caught: its record becomes a failure, and it runs again.",
        file="handlers/durable.py",
        old=_RUNS_STEP,
        new=f"{_RUNS_STEP}                await self._succeed(asked, result, began, tries, options)\n"
        "                return convert_result(result, function, asked.name)\n",
        catchers=(
            Suite((f"{_EXACT}::test_a_recorded_step_whose_result_cannot_be_converted_does_not_run_again",)),
        ),
    ),
    Mutant(
        name="stored_event_times_out",
        breaks=("I1",),
        wrong="A function that gives up does not look at events that were stored in time and not dispatched.",
        file=_STORE,
        old="where <counts> and e.recorded_at <= (",
        new="where false and <counts> and e.recorded_at <= (",
        catchers=(
            step("give up × dispatch"),
            Suite((f"{_DEADLINES}::test_an_event_that_was_stored_in_time_is_received_once",)),
        ),
    ),
    Mutant(
        name="event_received_again",
        breaks=("I8",),
        wrong="A late dispatch gives a function an event that it has received already.",
        file=_STORE,
        old="    where o.job_id = s.job_id and o.kind = 'event' and o.name = %(name)s and o.result ->> 'id' = %(event_id)s)\nor",
        new="    where false)\nor",
        catchers=(Suite((f"{_DEADLINES}::test_an_event_that_was_stored_in_time_is_received_once",)),),
    ),
    Mutant(
        name="signal_taken_by_a_timeout",
        breaks=("I1",),
        wrong="A signal is given to a wait that times out at this moment, and is lost.",
        file=_STORE,
        old="    for no key update\n), signal as (\n",
        new="), signal as (\n",
        catchers=(step("give up × signal"),),
    ),
    Mutant(
        name="awaited_names_before_the_lock",
        breaks=("I16",),
        wrong="The dispatcher looks which names are awaited before it has their locks: a wait that begins meanwhile misses its event.",
        file="store/durable.py",
        old=(
            "    await tx.values(sql.lock_event_names, values)\n"
            "    # a statement of its own, which sees the waits that began before the lock was had\n"
            "    return {(tenant_id, name) for tenant_id, name in await tx.values(sql.awaited_names, values)}\n"
        ),
        new=(
            "    found = {(tenant_id, name) for tenant_id, name in await tx.values(sql.awaited_names, values)}\n"
            "    await tx.values(sql.lock_event_names, values)\n"
            "    return found\n"
        ),
        catchers=(step("begin a wait × dispatch"),),
    ),
)
