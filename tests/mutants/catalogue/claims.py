"""Claims are fair, and limits exact: mutants that count wrongly, lock too late, or number attempts wrongly."""

from tests.mutants.catalogue.runs import COMMANDS, KILLS, POISON, step
from tests.mutants.mutant import Edit, Mutant, Suite

CLAIM = "db/functions/claim.sql"
BUDGETS = "db/functions/budgets.sql"
_EXACT = Suite(("tests/store/test_claim_exact.py",))

MUTANTS = (
    Mutant(
        name="limit_counted_before_lock",
        breaks=("I6",),
        wrong="The running jobs of a limit are counted before its lock is taken: the claim that had the lock is not in the count.",
        file=BUDGETS,
        old="    held text[] := '{}';\nbegin",
        new="    held text[] := '{}';\n    counted bigint[];\nbegin",
        more=(
            Edit(
                BUDGETS,
                "    got := array_fill(null::integer, array[cardinality(names)]);\n",
                "    got := array_fill(null::integer, array[cardinality(names)]);\n"
                "    counted := array(\n"
                "        select fairlead.running_in(s.scope, s.id, s.other)\n"
                "        from unnest(scopes, ids, others) with ordinality as s(scope, id, other, n) order by s.n);\n",
            ),
            Edit(
                BUDGETS,
                "select s.*, fairlead.running_in(s.scope, s.id, s.other) as running,",
                "select s.*, counted[array_position(names, s.name)] as running,",
            ),
        ),
        catchers=(step("claim × claim, limit of tenant"), KILLS, _EXACT),
        findings=("limit_exceeded", "sample_exceeded"),
    ),
    Mutant(
        name="limit_without_lock",
        breaks=("I6",),
        wrong="Claims count the running jobs of a limit without its lock, several at the same time.",
        file=BUDGETS,
        old="            where s.got is null\n            for update of k skip locked\n",
        new="            where s.got is null\n",
        catchers=(step("claim × claim, limit of tenant"), KILLS, _EXACT),
        findings=("limit_exceeded", "sample_exceeded"),
    ),
    Mutant(
        name="count_and_claim_in_one_snapshot",
        breaks=("I6",),
        wrong="Sessions are REPEATABLE READ, so a claim counts in the snapshot that it took before it had the lock.",
        file="db/database.py",
        old="set_isolation_level(IsolationLevel.READ_COMMITTED)",
        new="set_isolation_level(IsolationLevel.REPEATABLE_READ)",
        more=(
            Edit(
                "db/session.py",
                '"default_transaction_isolation": "read committed",',
                '"default_transaction_isolation": "repeatable read",',
            ),
            *(
                Edit(f"db/functions/{name}.sql", "    perform fairlead.need_read_committed();\n", "")
                for name in ("claim", "claim_suspect")
            ),
        ),
        catchers=(step("claim × claim, limit of tenant"), KILLS, _EXACT),
        findings=("limit_exceeded", "sample_exceeded"),
    ),
    Mutant(
        name="isolation_not_set",
        breaks=("I6",),
        wrong="Sessions use the default isolation level of the database, whatever its owner has set.",
        file="db/database.py",
        old="        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)\n",
        new="",
        more=(Edit("db/session.py", '        "default_transaction_isolation": "read committed",\n', ""),),
        catchers=(
            Suite(("tests/db/test_connections.py", "tests/db/test_tx.py", "tests/db/test_session.py")),
        ),
    ),
    Mutant(
        name="suspects_beyond_limits",
        breaks=("I6",),
        wrong="A suspect is claimed although the limits of its tenant and definition are full.",
        file="db/functions/claim_suspect.sql",
        old="        if pair.limited then\n",
        new="        if false then\n",
        more=(
            Edit(
                "db/functions/claim_suspect.sql",
                "            and fairlead.closed_until(\n                t.id, t.max_running, t.rate, d.id, d.max_running, d.rate, d.max_running_per_tenant, d.rate_per_tenant,\n                clock_timestamp()) is null\n",
                "",
            ),
        ),
        catchers=(POISON, Suite(("tests/store/test_suspects.py",))),
        findings=("limit_exceeded", "sample_exceeded"),
    ),
    Mutant(
        name="host_limit_ignored",
        breaks=("I6",),
        wrong="An agent is given as many jobs as it asks for, whatever the limit of its host.",
        file=CLAIM,
        old="limit least(most_jobs, (room ->> claim.host::text)::integer,\n"
        "                        (room ->> p.definition_id::text)::integer,",
        new="limit least(most_jobs,\n                        (room ->> p.definition_id::text)::integer,",
        more=(
            Edit(
                CLAIM,
                "limit least(most_jobs, (room ->> claim.host::text)::integer, (room ->> tenants[1]::text)::integer)",
                "limit least(most_jobs, (room ->> tenants[1]::text)::integer)",
            ),
        ),
        catchers=(COMMANDS, Suite(("tests/store/test_claim_limits.py",))),
        findings=("limit_exceeded", "sample_exceeded"),
    ),
    Mutant(
        name="tenant_limit_ignored_in_turns",
        breaks=("I6",),
        wrong="With work of several definitions or tenants, a claim does not keep to the limit of a tenant.",
        file=CLAIM,
        old="                where not limited\n"
        "                    or coalesce(r.of_tenant <= (room ->> r.tenant_id::text)::integer, true)\n",
        new="",
        catchers=(KILLS, Suite(("tests/store/test_claim_limits.py",)), _EXACT),
        findings=("limit_exceeded", "sample_exceeded"),
    ),
    Mutant(
        name="claim_without_row_lock",
        breaks=("I3", "I11"),
        wrong="A claim chooses jobs without locking them, so two claims take the same ones.",
        file=CLAIM,
        old="                limit most for update skip locked) h;",
        new="                limit most) h;",
        more=(
            Edit(
                CLAIM,
                "limit least(p.part, most_jobs, p.budget) for update skip locked) h",
                "limit least(p.part, most_jobs, p.budget)) h",
            ),
        ),
        catchers=(step("claim × claim"), KILLS, Suite(("tests/store/test_queue_machine.py",))),
        findings=("process_crashed", "inconsistent", "job_not_ended"),
    ),
    Mutant(
        name="attempt_number_repeated_after_loss",
        breaks=("I3",),
        wrong="A lost attempt does not count, so the next one has its number again.",
        file="store/queue.sql",
        old="        attempt_count = e.attempt_no, started_at = e.started_at, claimed_by_worker = e.worker_id, progress = e.progress,\n"
        "        troubled = e.status",
        new="        attempt_count = case e.attempt_status when 'lost' then j.attempt_count else e.attempt_no end,\n"
        "        started_at = e.started_at, claimed_by_worker = e.worker_id, progress = e.progress,\n"
        "        troubled = e.status",
        catchers=(
            step("stale finish (success) × claim"),
            KILLS,
            Suite(("tests/store/test_queue.py", "tests/store/test_queue_machine.py")),
        ),
        findings=("attempt_repeated", "start_repeated", "attempt_gap", "inconsistent"),
    ),
    Mutant(
        name="attempt_number_left_out_after_loss",
        breaks=("I3",),
        wrong="After a loss the next attempt skips a number.",
        file=CLAIM,
        old="j.attempt_count + 1 as attempt_no",
        new="j.attempt_count + 1 + (j.lost_count + j.suspected > 0)::int as attempt_no",
        catchers=(
            step("stale finish (success) × claim"),
            KILLS,
            Suite(("tests/store/test_queue_machine.py",)),
        ),
        findings=("attempt_gap", "inconsistent"),
    ),
    Mutant(
        name="no_turns_between_tenants",
        breaks=("I13",),
        wrong="A claim takes all it wants from the first tenant that has work, and tenants do not take turns.",
        file=CLAIM,
        old="                order by q.round, q.place, q.of_tenant\n                limit most_jobs",
        new="                order by q.place, q.of_tenant\n                limit most_jobs",
        more=(
            Edit(
                CLAIM,
                "                    greatest(n.weight, ceil(\n"
                "                        claim.wanted::float8 * n.weight / sum(n.weight) filter (where n.is_first) over ())::integer) as part,",
                "                    claim.wanted as part,",
            ),
        ),
        catchers=(Suite(("tests/store/test_claim_fairness.py",)),),
    ),
)
