"""An acknowledged enqueue is never lost and never doubled: mutants of enqueueing, dedupe and staging."""

from tests.mutants.catalogue.runs import DATABASE, KILLS, REPLIES, step
from tests.mutants.mutant import Edit, Mutant, Suite

ENQUEUE_ONE = "db/functions/enqueue_one.sql"
GROUPS = "actions/enqueue_groups.py"
_ENQUEUE = Suite(("tests/actions/test_enqueue.py",))

MUTANTS = (
    Mutant(
        name="commit_not_durable",
        breaks=("I1",),
        wrong="An enqueue is acknowledged before its commit is on disk (synchronous_commit off).",
        file="db/session.py",
        old='        "default_transaction_isolation": "read committed",\n',
        new='        "default_transaction_isolation": "read committed",\n        "synchronous_commit": "off",\n',
        catchers=(DATABASE,),
        findings=("job_lost", "order_lost", "event_lost", "run_lost", "start_unrecorded"),
    ),
    Mutant(
        name="unknown_enqueue_acknowledged",
        breaks=("I1",),
        wrong="An enqueue that lost its connection before the commit was answered is acknowledged, and not sent again.",
        file=GROUPS,
        old="            return await self._database.reach(\n"
        "                lambda tx: enqueue.enqueue(tx, self._principal, self._catalog, new, again=next(tries) > 0)\n"
        "            )\n",
        new="            return await self._database.single(\n"
        "                lambda tx: enqueue.enqueue(tx, self._principal, self._catalog, new, again=next(tries) > 0)\n"
        "            )\n"
        "        except DatabaseUnreachable:\n"
        "            return EnqueueResult(new.id)\n",
        more=(
            Edit(
                GROUPS,
                "from fairlead.model.access import Principal\n",
                "from fairlead.errors import DatabaseUnreachable\nfrom fairlead.model.access import Principal\n",
            ),
        ),
        catchers=(DATABASE, REPLIES),
        findings=("job_lost",),
    ),
    Mutant(
        name="repeated_enqueue_with_new_id",
        breaks=("I1",),
        wrong="An enqueue that is sent again because its answer was lost has another id, so that the job is there twice.",
        file=GROUPS,
        old="lambda tx: enqueue.enqueue(tx, self._principal, self._catalog, new, again=next(tries) > 0)",
        new="lambda tx: enqueue.enqueue(\n"
        "                    tx, self._principal, self._catalog,\n"
        '                    __import__("msgspec").structs.replace(new, id=__import__("uuid").uuid4())\n'
        "                    if next(tries) > 0 else new,\n"
        "                )",
        catchers=(REPLIES, Suite(("tests/actions/test_enqueue_groups.py",))),
        findings=("job_repeated", "job_unexpected"),
    ),
    Mutant(
        name="repeated_enqueue_refused",
        breaks=("I1",),
        wrong="An enqueue that is sent again because its answer was lost is refused, although its job is stored.",
        file="actions/enqueue.py",
        old="            if again:\n                return EnqueueResult(new.id)\n",
        new="",
        catchers=(REPLIES, _ENQUEUE),
        findings=("job_of_failed_call",),
    ),
    Mutant(
        name="dedupe_checked_then_taken",
        breaks=("I5",),
        wrong="A dedupe key is looked up first and taken afterwards, so two enqueues that look at the same time both take it.",
        file=ENQUEUE_ONE,
        old="            insert into fairlead.active_keys (tenant_id, key_hash, job_id, unique_until)\n"
        "                values (about.tenant_id, hash, enqueue_one.job_id, moment + make_interval(secs => enqueue_one.unique_for))\n"
        "                on conflict do nothing;\n"
        "            exit when found;\n",
        new="            perform from fairlead.active_keys k where k.tenant_id = about.tenant_id and k.key_hash = hash;\n"
        "            if not found then\n"
        "                insert into fairlead.active_keys (tenant_id, key_hash, job_id)\n"
        "                    values (about.tenant_id, hash, enqueue_one.job_id)\n"
        "                    on conflict (tenant_id, key_hash) do update set job_id = excluded.job_id;\n"
        "                exit;\n"
        "            end if;\n",
        catchers=(step("enqueue (deduplicated) × enqueue (deduplicated)"), KILLS, _ENQUEUE),
        findings=("key_active_twice", "inconsistent"),
    ),
    Mutant(
        name="dedupe_loser_not_told",
        breaks=("I1", "I5"),
        wrong="An enqueue whose dedupe key another job holds returns its own id, of a job that is not stored.",
        file=ENQUEUE_ONE,
        old="                outcome := 'deduplicated';\n",
        new="                outcome := 'deduplicated';\n"
        "                enqueue_one.job_id := coalesce(enqueue_one.id, fairlead.uuid7());\n",
        catchers=(step("enqueue (deduplicated) × enqueue (deduplicated)"), KILLS, _ENQUEUE),
        findings=("job_lost",),
    ),
    Mutant(
        name="dedupe_key_free_while_retrying",
        breaks=("I5",),
        wrong="A job that fails frees its dedupe key although it will be retried.",
        file="store/queue.sql",
        old="        where c.dedupe_key is not null and c.status > 'running'))\n",
        new="        where c.dedupe_key is not null))\n",
        catchers=(KILLS, Suite(("tests/store/test_queue.py",))),
        findings=("key_active_twice", "inconsistent"),
    ),
    Mutant(
        name="bulk_in_parts",
        breaks=("I1",),
        wrong="A bulk enqueue commits each half by itself, so that half of it may be stored.",
        file="library/client.py",
        old="            return await fl._act_unhurried(enqueue.enqueue_many, fl.catalog, part, progress=progress)\n",
        new="            middle = len(part) // 2\n"
        "            first = await fl._act_unhurried(enqueue.enqueue_many, fl.catalog, part[:middle], progress=progress)\n"
        "            return first + await fl._act_unhurried(\n"
        "                enqueue.enqueue_many, fl.catalog, part[middle:], progress=progress\n"
        "            )\n",
        catchers=(REPLIES, KILLS, Suite(("tests/actions/test_enqueue.py", "tests/test_app.py"))),
        findings=("bulk_torn", "bulk_torn_by_key"),
    ),
    Mutant(
        name="joined_on_own_connection",
        breaks=("I1",),
        wrong="A joined enqueue uses a connection of its own, so its jobs stay when the caller's transaction is rolled back.",
        file="db/joined.py",
        old="    def send_async(text: str) -> Any:\n"
        "        cursor = AsyncCursor(connection, row_factory=tuple_row)\n"
        "        return _fetch_value_async(cursor.execute(query.encode(), (text,)), cursor)\n",
        new="    async def send_async(text: str) -> Any:\n"
        "        known = {one.keyword.decode(): one.val.decode() for one in connection.pgconn.info if one.val}\n"
        "        async with await AsyncConnection.connect(**known) as own:\n"
        "            cursor = AsyncCursor(own, row_factory=tuple_row)\n"
        "            return await _fetch_value_async(cursor.execute(query.encode(), (text,)), cursor)\n",
        catchers=(REPLIES, KILLS, Suite(("tests/db/test_joined.py",))),
        findings=("order_torn", "job_of_failed_call"),
    ),
    Mutant(
        name="staged_in_two_transactions",
        breaks=("I1",),
        wrong="The stager deletes due jobs from later in one transaction and adds them to ready in the next.",
        file="store/queue.sql",
        old="), moved as (\n"
        "    insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)\n"
        "    select job_id, tenant_id, definition_id, host_id, priority, due_at, limit_key from due\n"
        "    returning 1\n"
        ")\n"
        "select (select count(*) from moved) + coalesce((\n"
        "    -- and lets go jobs of keys whose rates allow it again\n"
        "    select fairlead.release_keys(array_agg(b.definition_id), array_agg(b.tenant_id), array_agg(b.limit_key))\n"
        "    from (\n"
        "        select b.definition_id, b.tenant_id, b.limit_key from fairlead.rate_buckets b\n"
        "        where b.wake_at <= (select clock_timestamp()) order by b.wake_at limit %(limit)s) b\n"
        "    having count(*) > 0), 0) as moved;\n",
        new=")\n"
        "select job_id, tenant_id, definition_id, host_id, priority, due_at, limit_key from due;\n"
        "\n"
        "-- name: staged\n"
        "insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)\n"
        "values (%s, %s, %s, %s, %s, %s, %s);\n",
        more=(
            Edit(
                "store/queue.py",
                '    [(moved,)] = await tx.values(sql.stage, {"limit": limit})\n    return int(moved)\n',
                '    moved = await tx.values(sql.stage, {"limit": limit})\n'
                "    for one in moved:\n"
                "        await tx.run(sql.staged, one)\n"
                "    return len(moved)\n",
            ),
        ),
        catchers=(KILLS, REPLIES),
        findings=("job_not_ended", "inconsistent"),
    ),
    Mutant(
        name="idempotency_keys_in_memory",
        breaks=("I1",),
        wrong="A server remembers Idempotency-Keys itself, so a request that is repeated over another server creates again.",
        file="server/idempotency.py",
        old="NO_TENANT = UUID(int=0)\n",
        new="NO_TENANT = UUID(int=0)\n_SEEN: dict[Any, Any] = {}\n",
        more=(
            Edit(
                "server/idempotency.py",
                "        earlier = await idempotency.take_key(tx, scope_id=scope, key=key, body_hash=asked)\n",
                "        earlier = _SEEN.get((scope, key))\n",
            ),
            Edit(
                "server/idempotency.py",
                "        await idempotency.store_response(\n"
                "            tx, scope_id=scope, key=key, status_code=status, answer=_blank_secrets(body, shown_once)\n"
                "        )\n",
                "    _SEEN[scope, key] = __import__('types').SimpleNamespace(\n"
                "        body_hash=asked, status_code=status, answer=_blank_secrets(body, shown_once)\n"
                "    )\n",
            ),
        ),
        catchers=(REPLIES,),
        findings=("job_repeated",),
    ),
)
