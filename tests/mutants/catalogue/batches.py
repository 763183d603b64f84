"""Batch handlers: mutants of what keeps the jobs of one call apart."""

from tests.mutants.mutant import Edit, Mutant, Suite

WITH_WORKERS = "tests/test_batches.py"
ALONE = "tests/handlers/test_batch.py"

MUTANTS = (
    Mutant(
        name="batch_of_any_tenant",
        breaks=("I10",),
        wrong="A batch has jobs of several tenants although its definition does not say so.",
        edits=(
            Edit(
                "handlers/batch.py",
                "        key = (handler.key, None if options.across_tenants else tenant_id)\n",
                "        key = (handler.key, None)\n",
            ),
        ),
        catchers=(
            Suite((f"{WITH_WORKERS}::test_a_batch_is_of_one_tenant_unless_the_definition_says_otherwise",)),
        ),
    ),
    Mutant(
        name="batch_error_names_secrets",
        breaks=("I14",),
        wrong="The error of a batch is masked with the secrets of only one of its jobs.",
        edits=(
            Edit(
                "model/secrets/redact.py",
                "    if len(found) <= 1:\n        return found[0] if found else None\n",
                "    if found:\n        return found[0]\n",
            ),
        ),
        catchers=(Suite((f"{WITH_WORKERS}::test_an_exception_names_no_secret_of_any_job",)),),
    ),
    Mutant(
        name="suspect_in_a_batch",
        breaks=("I12", "I19"),
        wrong="A job that may have killed a worker waits for a batch, and runs beside others.",
        edits=(Edit("runtime/execution.py", "alone=bool(job.probation)", "alone=False"),),
        catchers=(Suite(("tests/runtime/test_execution.py",)),),
    ),
    Mutant(
        name="canceled_job_stops_its_batch",
        breaks=("I19",),
        wrong="A cancel of one job stops the handler of all jobs of its batch.",
        edits=(
            Edit(
                "handlers/batch.py",
                "        if not all(member.must_stop for member in self._members):\n",
                "        if not any(member.must_stop for member in self._members):\n",
            ),
        ),
        catchers=(
            Suite((f"{WITH_WORKERS}::test_a_canceled_job_leaves_its_batch_and_the_others_go_on", ALONE)),
        ),
    ),
)
