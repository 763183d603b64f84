"""Jobs that end in a transaction of their handler: mutants that part the end from the changes."""

from tests.mutants.catalogue.runs import ENDS
from tests.mutants.mutant import Mutant, Suite

_TESTS = "tests/test_transaction_ends.py"
_ENDS = "runtime/joined_ends.py"

MUTANTS = (
    Mutant(
        name="changes_without_the_end",
        breaks=("I4",),
        wrong="The block of ctx.tx() commits its changes, and the job ends later: a worker that dies in between makes them twice.",
        file="handlers/transaction.py",
        old="                await self._ends.confirm(self._connection)\n",
        new="                pass\n",
        catchers=(ENDS, Suite((f"{_TESTS}::test_changes_and_the_end_commit_together",))),
        findings=("commit_unfounded",),
    ),
    Mutant(
        name="changes_of_a_lost_lease",
        breaks=("I4",),
        wrong="The changes of an attempt that lost its lease are committed, beside those of the next attempt.",
        file=_ENDS,
        old="        if self._attempt.held.lease.job_id not in done:\n",
        new="        if False:\n",
        catchers=(Suite((f"{_TESTS}::test_a_lost_lease_rolls_everything_back",)),),
    ),
    Mutant(
        name="end_of_a_rolled_back_transaction",
        breaks=("I4", "I11"),
        wrong="The worker takes an end that was rolled back for written, and leaves its job running.",
        file="runtime/joined_attempts.py",
        old="        if state is JoinedEnd.ENDED:\n            self._record(",
        new="        if state is not JoinedEnd.OPEN:\n            self._record(",
        catchers=(Suite((f"{_TESTS}::test_after_a_rollback_what_the_handler_returns_counts",)),),
    ),
    Mutant(
        name="returned_output_dropped",
        breaks=("I1",),
        wrong="A function that always returns an output ends without it in ctx.tx(), and its output is lost.",
        file=_ENDS,
        old="        if self._function is not None and always_returns_value(self._function):\n",
        new="        if False:\n",
        catchers=(Suite((f"{_TESTS}::test_an_output_that_would_be_dropped_is_refused_before_the_commit",)),),
    ),
)
