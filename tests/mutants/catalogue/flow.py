"""Rates and limits by key are exact: mutants that count without locks, spend too little, or hold jobs for ever."""

from tests.mutants.mutant import Edit, Mutant, Suite

RATE_ROOM = "db/functions/rate_room.sql"
KEEP_KEYS = "db/functions/keep_keys.sql"
RELEASE_KEYS = "db/functions/release_keys.sql"
START_ALONE = "db/functions/start_alone.sql"
_SUSPECTS = Suite(("tests/store/test_suspects.py",))
_RATES = Suite(("tests/store/test_rates.py",))
_KEYS = Suite(("tests/store/test_key_limits.py",))

MUTANTS = (
    Mutant(
        name="rate_counted_without_lock",
        breaks=("I15",),
        wrong="Claims read the bucket of a rate without its lock, several at the same time.",
        file=RATE_ROOM,
        old="        for update of k skip locked\n",
        new="",
        catchers=(_RATES, Suite(("tests/store/test_flow_exact.py",))),
    ),
    Mutant(
        name="bucket_refilled_by_a_change",
        breaks=("I15",),
        wrong="A bucket forgets what was taken from it when it was counted last, so that it is full after a change of its rate.",
        file="db/functions/tokens_in.sql",
        old="tokens + greatest(0, date_part('epoch', moment - counted_at))\n",
        new="greatest(0, tokens) + 1 + greatest(0, date_part('epoch', moment - counted_at))\n",
        catchers=(_RATES,),
    ),
    Mutant(
        name="rate_never_opens",
        breaks=("I15",),
        wrong="A claim that a rate holds back does not say when the rate opens, so that workers find the job by polling.",
        file="db/functions/claim.sql",
        old="                'again', again, 'busy', held_limits <> '{}' or key_busy, 'crowded', crowded or resumed,\n"
        "                'opens_in', date_part('epoch', opens_at - claimed_at));\n",
        new="                'again', again, 'busy', held_limits <> '{}' or key_busy, 'crowded', crowded or resumed);\n",
        catchers=(_RATES,),
    ),
    Mutant(
        name="key_counted_without_lock",
        breaks=("I15",),
        wrong="Claims count the running jobs of a key without its lock, several at the same time.",
        file=KEEP_KEYS,
        old="            for update skip locked) o\n",
        new="            ) o\n",
        more=(
            Edit(
                KEEP_KEYS,
                "        then pg_try_advisory_xact_lock(fairlead.key_lock_of(k.definition_id, k.tenant_id, k.limit_key)) end\n"
                "        on conflict do nothing\n",
                "        then false end\n        on conflict do nothing\n",
            ),
            Edit(
                KEEP_KEYS,
                "    from (select * from known union all select * from added) h;\n",
                "    from unnest(definitions, tenants, limit_keys) as h(definition_id, tenant_id, limit_key);\n",
            ),
        ),
        catchers=(_KEYS, Suite(("tests/store/test_flow_exact.py",))),
    ),
    Mutant(
        name="key_without_limit_holds_jobs",
        breaks=("I15",),
        wrong="When a definition no longer limits its jobs by key, those that wait are never let go.",
        file=RELEASE_KEYS,
        old="case when c.by_key is not null then greatest(0, least(",
        new="case when true then greatest(0, least(",
        catchers=(_KEYS,),
    ),
    Mutant(
        name="newer_jobs_block_a_key_in_order",
        breaks=("I15",),
        wrong="In strict order, jobs that no claim has seen yet take the place of an older one that is held back.",
        file=RELEASE_KEYS,
        old="                and (not k.fifo or r.job_id < (\n",
        new="                and (true or r.job_id < (\n",
        catchers=(_KEYS,),
    ),
    Mutant(
        name="expired_job_blocks_its_key",
        breaks=("I15",),
        wrong="A claim cancels an expired job of a key, and nothing lets the next job of the key go.",
        file="db/functions/leave_expired.sql",
        old="(where j.is_over and j.limit_key is null)",
        new="(where j.is_over)",
        catchers=(_KEYS,),
    ),
    Mutant(
        name="key_in_order_parts_from_its_oldest_job",
        breaks=("I11",),
        wrong="In strict order, jobs are held back behind one that another transaction cancels just then, and nothing lets them go.",
        file="db/functions/keep_keys.sql",
        old="    if in_order then\n",
        new="    if false then\n",
        catchers=(_KEYS,),
    ),
    Mutant(
        name="replaced_only_where_no_claim_looks",
        breaks=("I15",),
        wrong="replace_queued and cancel_running leave a waiting job that a claim has locked.",
        file="db/functions/apply_key_strategy.sql",
        old="        if waits and strategy <> 'drop_new' then\n",
        new="        if false then\n",
        catchers=(_KEYS,),
    ),
    Mutant(
        name="cost_lifted_by_a_job_without_a_rate",
        breaks=("I15",),
        wrong="A job without a rate lifts the costs of the jobs behind it in the same claim.",
        file="db/functions/spend_rates.sql",
        old="                if job.costs is not null then\n",
        new="                if true then\n",
        catchers=(_RATES,),
    ),
    Mutant(
        name="suspect_starts_below_its_cost",
        breaks=("I15",),
        wrong="A suspect needs one token of its rate, whatever it costs.",
        file=START_ALONE,
        old="            < least(fairlead.cost_of(b.rate ->> 'cost', about.payload), (b.rate ->> 'burst')::float8);\n",
        new="            < 1;\n",
        catchers=(_SUSPECTS,),
    ),
    Mutant(
        name="suspect_beyond_its_key",
        breaks=("I15",),
        wrong="A suspect starts although as many jobs of its key run as may run.",
        file=START_ALONE,
        old="        if running >= (about.by_key ->> 'max_running')::integer then\n",
        new="        if running > (about.by_key ->> 'max_running')::integer then\n",
        catchers=(_SUSPECTS,),
    ),
    Mutant(
        name="load_ignores_strategies",
        breaks=("I15",),
        wrong="A load of jobs does nothing to the other jobs of their keys.",
        file="actions/enqueue.py",
        old="        or _find_strategic_pointer(definition) is not None\n",
        new="",
        catchers=(Suite(("tests/server/test_ways_in.py",)),),
    ),
    Mutant(
        name="key_with_a_locked_job_forgotten",
        breaks=("I15",),
        wrong="A key whose next job was locked when its turn came is not looked at again before the sweep of each minute.",
        file="db/functions/release_keys.sql",
        old="        where n.number > (select count(*) from due u\n",
        new="        where false and n.number > (select count(*) from due u\n",
        catchers=(
            Suite(
                (
                    "tests/store/test_key_limits.py::test_a_job_that_was_locked_when_its_turn_came_goes_when_the_lock_is_given_up",
                )
            ),
        ),
    ),
)
