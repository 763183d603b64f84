"""Batch handlers: mutants of what keeps the jobs of one call apart."""

from tests.mutants.catalogue.runs import OPTIONS
from tests.mutants.mutant import Mutant, Suite

WITH_WORKERS = "tests/test_batches.py"
ALONE = "tests/handlers/test_batch.py"

MUTANTS = (
    Mutant(
        name="batch_of_any_tenant",
        breaks=("I10",),
        wrong="A batch has jobs of several tenants although its definition does not say so.",
        file="handlers/batch.py",
        old="        key = (handler.key, None if options.across_tenants else tenant_id)\n",
        new="        key = (handler.key, None)\n",
        catchers=(
            OPTIONS,
            Suite((f"{WITH_WORKERS}::test_a_batch_is_of_one_tenant_unless_the_definition_says_otherwise",)),
        ),
        findings=("batch_mixed",),
    ),
    Mutant(
        name="batch_error_names_secrets",
        breaks=("I14",),
        wrong="The error of a batch is masked with the secrets of only one of its jobs.",
        file="model/secrets/redact.py",
        old="    if len(found) <= 1:\n        return found[0] if found else None\n",
        new="    if found:\n        return found[0]\n",
        catchers=(Suite((f"{WITH_WORKERS}::test_an_exception_names_no_secret_of_any_job",)),),
    ),
    Mutant(
        name="suspect_in_a_batch",
        breaks=("I12", "I19"),
        wrong="A job that may have killed a worker waits for a batch, and runs beside others.",
        file="runtime/execution.py",
        old="alone=bool(job.probation)",
        new="alone=False",
        catchers=(Suite(("tests/runtime/test_execution.py",)),),
    ),
    Mutant(
        name="canceled_job_stops_its_batch",
        breaks=("I19",),
        wrong="A cancel of one job stops the handler of all jobs of its batch.",
        file="handlers/batch.py",
        old="        if not all(member.must_stop for member in self._members):\n",
        new="        if not any(member.must_stop for member in self._members):\n",
        catchers=(
            Suite((f"{WITH_WORKERS}::test_a_canceled_job_leaves_its_batch_and_the_others_go_on", ALONE)),
        ),
    ),
    Mutant(
        name="batch_outcomes_mixed_up",
        breaks=("I4",),
        wrong="Each job of a batch ends with the outcome of the first one.",
        file="handlers/batch.py",
        old="            member.end(None if outcomes is None else outcomes[place])\n",
        new="            member.end(None if outcomes is None else outcomes[0])\n",
        catchers=(Suite((f"{WITH_WORKERS}::test_a_batch_gives_an_outcome_for_each_job",)),),
    ),
    Mutant(
        name="batch_without_timeouts",
        breaks=("I11",),
        wrong="The timeouts of the jobs of a batch never begin.",
        file="handlers/batch.py",
        old="            if not member.must_stop:\n                member.running()\n",
        new="            pass\n",
        catchers=(Suite((f"{WITH_WORKERS}::test_a_batch_whose_jobs_are_all_out_of_time_is_stopped",)),),
    ),
)
