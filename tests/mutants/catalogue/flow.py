"""Rates and limits by key are exact: mutants that count without locks, spend too little, or hold jobs for ever."""

from tests.mutants.mutant import Edit, Mutant, Suite

RATE_ROOM = "db/functions/rate_room.sql"
KEEP_KEYS = "db/functions/keep_keys.sql"
RELEASE_KEYS = "db/functions/release_keys.sql"
_RATES = Suite(("tests/store/test_rates.py",))
_KEYS = Suite(("tests/store/test_key_limits.py",))

MUTANTS = (
    Mutant(
        name="rate_counted_without_lock",
        breaks=("I15",),
        wrong="Claims read the bucket of a rate without its lock, several at the same time.",
        edits=(Edit(RATE_ROOM, "        for update of k skip locked\n", ""),),
        catchers=(_RATES, Suite(("tests/store/test_flow_exact.py",))),
    ),
    Mutant(
        name="bucket_refilled_by_a_change",
        breaks=("I15",),
        wrong="A bucket forgets what was taken from it when it was counted last, so that it is full after a change of its rate.",
        edits=(
            Edit(
                "db/functions/tokens_in.sql",
                "tokens + greatest(0, date_part('epoch', moment - counted_at))\n",
                "greatest(0, tokens) + 1 + greatest(0, date_part('epoch', moment - counted_at))\n",
            ),
        ),
        catchers=(_RATES,),
    ),
    Mutant(
        name="rate_never_opens",
        breaks=("I15",),
        wrong="A claim that a rate holds back does not say when the rate opens, so that workers find the job by polling.",
        edits=(
            Edit(
                "db/functions/claim.sql",
                "                'again', again, 'busy', held_limits <> '{}' or key_busy, 'crowded', crowded or resumed,\n"
                "                'opens_in', date_part('epoch', opens_at - claimed_at));\n",
                "                'again', again, 'busy', held_limits <> '{}' or key_busy, 'crowded', crowded or resumed);\n",
            ),
        ),
        catchers=(_RATES,),
    ),
    Mutant(
        name="key_counted_without_lock",
        breaks=("I15",),
        wrong="Claims count the running jobs of a key without its lock, several at the same time.",
        edits=(
            Edit(KEEP_KEYS, "            for update skip locked) o\n", "            ) o\n"),
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
        edits=(
            Edit(
                RELEASE_KEYS,
                "case when c.by_key is not null then greatest(0, least(",
                "case when true then greatest(0, least(",
            ),
        ),
        catchers=(_KEYS,),
    ),
)
