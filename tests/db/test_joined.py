"""Jobs inside somebody else's transaction: any driver, any role with EXECUTE, any search_path."""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from psycopg import conninfo

from fairlead import Fairlead, Settings
from fairlead.actions import definitions, enqueue, jobs
from fairlead.db.scratch import replace_database
from fairlead.errors import DedupeClash, FairleadError, JobUnknown, PayloadInvalid, TenantUnknown
from fairlead.keys.keyring import Keyring
from fairlead.model.job import Job, JobStatus
from tests import drivers, given
from tests.drivers import Caller
from tests.given import GREET, OTHER, TENANT, TESTER
from tests.tables import each_case
from tests.waiting import SECONDS

ADA = {"name": "Ada"}

# A role that may do nothing but enqueue, in a schema whose names lie in wait for careless SQL.
SHOP = """
create schema shop;
create table shop.orders (id integer primary key);
grant usage on schema shop, fairlead to shop;
grant select, insert on shop.orders to shop;
grant execute on function fairlead.enqueue_joined(text) to shop;
grant execute on function fairlead.finish_joined(text) to shop;
grant execute on function fairlead.read_joined(text) to shop;
create table shop.jobs (trap integer);
create table shop.tenants (trap integer);
create table shop.ready (trap integer);
create function shop.trapped() returns text language plpgsql as
    $$ begin raise exception 'fell into the trap'; end $$;
create function shop.now() returns timestamptz language sql as $$ select shop.trapped()::timestamptz $$;
create function shop.clock_timestamp() returns timestamptz language sql as $$ select shop.trapped()::timestamptz $$;
create function shop.sha256(bytea) returns bytea language sql as $$ select shop.trapped()::bytea $$;
create function shop.gen_random_uuid() returns uuid language sql as $$ select shop.trapped()::uuid $$;
create function shop.jsonb_array_elements(jsonb) returns jsonb language sql as $$ select shop.trapped()::jsonb $$;
create function shop.pg_notify(text, text) returns text language sql as $$ select shop.trapped() $$;
"""
FILLED = (
    "fairlead.leases",
    "fairlead.job_attempts",
    "fairlead.job_records",
    "fairlead.ready",
    "fairlead.later",
    "fairlead.active_keys",
    "fairlead.counts",
    "shop.orders",
)
SESSION = """
select current_user, session_user, current_setting('search_path'), pg_current_xact_id_if_assigned()::text,
    (select json_object_agg(name, setting)::text from pg_settings)
"""


@pytest.fixture(scope="module")
def shop_database(server: str, template: str) -> Iterator[str]:
    """One database for this file: its role has no rights but its own, and traps first in its search_path."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database shop template {template}".encode())
        connection.execute("create role shop login")
        connection.execute("alter role shop in database shop set search_path = shop, pg_catalog")
        with psycopg.connect(replace_database(server, "shop"), autocommit=True) as inside:
            inside.execute(SHOP)
        yield replace_database(server, "shop")
        connection.execute("drop database shop with (force)")
        connection.execute("drop role shop")


@pytest.fixture(scope="module")
async def opened(shop_database: str) -> AsyncIterator[Fairlead]:
    async with Fairlead(settings=Settings(database_url=shop_database), actor="tester") as one:
        yield one


@pytest.fixture
def fl(opened: Fairlead) -> Fairlead:
    """The same Fairlead for every test, too."""
    return opened


@pytest.fixture(scope="module")
def shop_url(shop_database: str) -> str:
    """The database as the shop sees it."""
    return conninfo.make_conninfo(shop_database, user="shop")


Test = Callable[..., Coroutine[Any, Any, None]]


def with_every_driver(test: Test) -> Callable[..., Any]:
    """One test that tries every driver as the caller. The database is emptied for each: a copy each would take longer.

    Queue and record must agree when the caller has gone.
    """

    async def try_driver(driver: str, fl: Fairlead, shop_url: str, **more: Any) -> None:
        async with fl.transaction() as tx:
            for table in FILLED:
                await tx.run(f"delete from {table}")
            await definitions.patch(tx, TESTER, "greet", GREET)
        async with drivers.caller(driver, shop_url) as caller:
            await test(caller=caller, fl=fl, **more)
        await given.no_inconsistencies(fl.database)

    parameters = {**inspect.signature(try_driver).parameters, **inspect.signature(test).parameters}
    kept = [value for name, value in parameters.items() if name not in ("caller", "more")]
    functools.update_wrapper(try_driver, test)
    try_driver.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
    return each_case("driver", drivers.DRIVERS)(try_driver)


async def found(fl: Fairlead) -> list[Job]:
    async with fl.transaction() as tx:
        return (await jobs.list_jobs(tx, TESTER, jobs.JobFilter())).items


async def orders(fl: Fairlead) -> list[int]:
    async with fl.transaction() as tx:
        return [number for (number,) in await tx.values("select id from shop.orders order by id")]


async def change(fl: Fairlead, **changes: Any) -> None:
    async with fl.transaction() as tx:
        await definitions.patch(tx, TESTER, "greet", changes)


# One fate


@each_case("level", ["read committed", "repeatable read", "serializable"])
@with_every_driver
async def test_a_commit_leaves_exactly_the_job_and_the_callers_own_row_and_a_rollback_neither(
    caller: Caller, fl: Fairlead, level: str
) -> None:
    await caller.run("insert into orders values (0)")
    await caller.enqueue("greet", tenant=TENANT, payload=ADA)
    await caller.rollback()

    await caller.run(f"set transaction isolation level {level}")
    await caller.run("insert into orders values (1)")
    job = await caller.enqueue("greet", tenant=TENANT, payload=ADA, priority=7, correlation_id="order 1")
    assert await found(fl) == []

    await caller.commit()

    [kept] = await found(fl)
    assert (kept.id, kept.tenant, kept.definition_key, kept.payload) == (job.id, TENANT, "greet", ADA)
    assert (kept.priority, kept.correlation_id, kept.created_by) == (7, "order 1", "shop")
    assert not job.deduplicated
    assert await orders(fl) == [1]


@with_every_driver
async def test_a_transaction_reads_the_job_that_it_enqueued(caller: Caller, fl: Fairlead) -> None:
    job = await caller.enqueue("greet", tenant=TENANT, payload={"name": "Zoë 🚀"}, tags=["new"])
    shown, attempts = await caller.show(job.id)
    with pytest.raises(JobUnknown):
        await fl.show(job.id)

    await caller.commit()

    assert (shown, attempts) == await fl.show(str(job.id))
    assert (shown.payload, shown.tags, attempts) == ({"name": "Zoë 🚀"}, ("new",), [])


@pytest.mark.thorough
@with_every_driver
async def test_a_job_is_read_with_its_attempts_and_without_its_secrets(caller: Caller, fl: Fairlead) -> None:
    secret = {"properties": {"name": {"type": "string", "x-secret": True}}}
    await change(fl, arg_schema={"type": "object", **secret}, max_attempts=5)
    job = await fl.enqueue("greet", tenant=TENANT, payload={"name": "Ada Lovelace of London"})
    [lease] = await fl.claim()
    await lease.fail("nobody is called Ada Lovelace of London")
    shown, [attempt] = await caller.show(job.id)

    assert (shown, [attempt]) == await fl.show(job.id)
    assert (shown.status, shown.payload) == (JobStatus.QUEUED, {"name": "[redacted]"})
    assert (attempt.attempt_no, attempt.status, "Ada Lovelace" in (attempt.error_text or "Ada Lovelace")) == (
        1,
        "failed",
        False,
    )
    with pytest.raises(JobUnknown):
        await caller.show(UUID(int=0))


@pytest.mark.thorough
@with_every_driver
async def test_many_jobs_share_the_fate_of_the_transaction(caller: Caller, fl: Fairlead) -> None:
    many = [
        {"definition": "greet", "tenant": TENANT, "payload": {"name": "Ada Lovelace — 数"}},
        given.request(tenant=OTHER, dedupe_key="one"),
        {"definition": "anything", "tenant": OTHER, "delay": 3600},
        given.request(tenant=OTHER, dedupe_key="one"),
    ]
    await caller.run("insert into orders values (1)")
    await caller.enqueue_many(many)
    await caller.rollback()
    assert await found(fl) == []

    before = datetime.now(UTC)
    await caller.run("insert into orders values (2)")
    answers = await caller.enqueue_many(many)
    assert await caller.enqueue_many([]) == []
    await caller.commit()

    assert [answer.deduplicated for answer in answers] == [False, False, False, True]
    assert answers[3].id == answers[1].id
    assert {job.id for job in await found(fl)} == {answer.id for answer in answers[:3]}
    assert (await fl.read(answers[0].id)).payload == {"name": "Ada Lovelace — 数"}
    delayed = await fl.read(answers[2].id)
    assert before <= delayed.scheduled_for - timedelta(hours=1) <= delayed.queued_at
    assert await orders(fl) == [2]


def test_a_delay_is_counted_by_the_database_and_not_here() -> None:
    delayed = given.request(delay=timedelta(minutes=5))

    [sent] = msgspec.json.decode(
        next(enqueue.enqueue_joined(given.TESTER, given.catalog(), [delayed], Keyring(Settings())))
    )

    assert sent["delay"] == 300
    assert "scheduled_for" not in sent


# Nothing else about the transaction


@pytest.mark.thorough
@each_case("level", ["read committed", "repeatable read", "serializable"])
@with_every_driver
async def test_role_search_path_settings_and_transaction_are_as_before(
    caller: Caller, fl: Fairlead, level: str
) -> None:
    await caller.run(f"set transaction isolation level {level}")
    await caller.run("insert into orders values (1)")
    await caller.run("do 'begin end'")  # the first use of PL/pgSQL makes its settings known
    [before] = await caller.run(SESSION)

    job = await caller.enqueue("greet", tenant=TENANT, payload=ADA, dedupe_key="order 1")
    await caller.enqueue_many([given.request(), given.request()])
    with pytest.raises(TenantUnknown):
        await caller.enqueue("greet", tenant="nobody", payload=ADA)

    assert await caller.run(SESSION) == [before]
    assert tuple(before)[:3] == ("shop", "shop", "shop, pg_catalog")
    await caller.commit()
    # a row made within a savepoint would carry the number of a subtransaction
    assert await transaction_of(fl, job.id) == int(before[3])


async def transaction_of(fl: Fairlead, job_id: UUID) -> int:
    async with fl.transaction() as tx:
        [(number,)] = await tx.values("select xmin::text from fairlead.job_records where id = %s", [job_id])
    return int(number)


async def test_the_traps_in_the_search_path_are_real(shop_url: str) -> None:
    with psycopg.connect(shop_url, autocommit=True) as connection:
        for trap in ("now()", "clock_timestamp()", "sha256('x')", "pg_notify('fairlead', 'ready')"):
            with pytest.raises(psycopg.errors.RaiseException, match="fell into the trap"):
                connection.execute(f"select {trap}".encode())
        assert connection.execute("select to_regclass('jobs')::text").fetchone() == ("jobs",)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select from fairlead.jobs")


# Refusals

REFUSALS: list[tuple[str, dict[str, Any]]] = [
    ("tenant_unknown", {"definition": "greet", "tenant": "nobody", "payload": ADA}),
    ("tenant_unknown", {"definition": "greet", "tenant": "No Slug!", "payload": ADA}),
    ("definition_unknown", {"definition": "no-such-thing", "tenant": TENANT}),
    ("definition_inactive", {"definition": "retired", "tenant": TENANT}),
    ("payload_invalid", {"definition": "greet", "tenant": TENANT, "payload": {"name": 1}}),
    ("payload_not_json", {"definition": "greet", "tenant": TENANT, "payload": {"name": object()}}),
    ("invalid_input", {"definition": "greet", "tenant": TENANT, "payload": ADA, "max_attempts": 0}),
]


@with_every_driver
@pytest.mark.parametrize("many", [False, True])
async def test_a_refusal_leaves_the_transaction_usable_and_no_job_not_even_of_many(
    caller: Caller, fl: Fairlead, *, many: bool
) -> None:
    for code, request in [*REFUSALS, *REFUSALS]:  # the second time around the catalog is warm
        with pytest.raises(FairleadError) as refusal:
            await (
                caller.enqueue_many([given.request(), request, given.request(dedupe_key="one")])
                if many
                else caller.enqueue(**request)
            )
        assert refusal.value.code == code

    await caller.run("insert into orders values (1)")
    await caller.commit()

    assert await orders(fl) == [1]
    assert await found(fl) == []


# The catalog


@pytest.mark.thorough
@with_every_driver
async def test_a_definition_that_changed_is_learnt_through_the_callers_connection(
    caller: Caller, fl: Fairlead
) -> None:
    first = await caller.enqueue("greet", tenant=TENANT, payload=ADA)
    await caller.commit()
    await change(fl, arg_schema={**GREET["arg_schema"], "required": ["name", "n"]})  # type: ignore[dict-item]

    with pytest.raises(PayloadInvalid, match="n"):
        await caller.enqueue("greet", tenant=TENANT, payload=ADA)
    second = await caller.enqueue("greet", tenant=TENANT, payload={**ADA, "n": 2})
    await caller.commit()
    await change(fl, arg_schema={})
    # it fits only the changed definition
    third = await caller.enqueue("greet", tenant=TENANT, payload={"full_name": "Ada Lovelace"})
    await caller.commit()

    assert {job.id for job in await found(fl)} == {first.id, second.id, third.id}
    assert (await fl.read(third.id)).payload == {"full_name": "Ada Lovelace"}


@pytest.mark.thorough
@each_case("level", ["read committed", "repeatable read"])
@with_every_driver
async def test_an_older_snapshot_is_validated_by_the_definition_that_it_sees(
    caller: Caller, fl: Fairlead, level: str
) -> None:
    await caller.run(f"set transaction isolation level {level}")
    await caller.enqueue("greet", tenant=TENANT, payload=ADA)
    await change(fl, description="another version, the same schema")

    await caller.enqueue("greet", tenant=TENANT, payload=ADA)
    await caller.commit()
    await caller.enqueue("greet", tenant=TENANT, payload=ADA)
    await caller.commit()

    assert len(await found(fl)) == 3


# Dedupe keys


@pytest.mark.thorough
@with_every_driver
async def test_a_key_is_taken_within_the_transaction_and_after_it(caller: Caller, fl: Fairlead) -> None:
    first = await caller.enqueue("greet", tenant=TENANT, payload=ADA, dedupe_key="one")
    again = await caller.enqueue("greet", tenant=TENANT, payload=ADA, dedupe_key="one")
    await caller.commit()
    later = await caller.enqueue("greet", tenant=TENANT, payload=ADA, dedupe_key="one")
    other = await caller.enqueue("greet", tenant=OTHER, payload=ADA, dedupe_key="one")
    await caller.commit()

    assert [first.deduplicated, again.deduplicated, later.deduplicated] == [False, True, True]
    assert first.id == again.id == later.id
    assert not other.deduplicated
    assert {job.id for job in await found(fl)} == {first.id, other.id}


@pytest.mark.thorough
@each_case("level", ["repeatable read", "serializable"])
@with_every_driver
async def test_a_key_taken_after_the_snapshot_is_a_clash_that_a_new_transaction_resolves(
    caller: Caller, fl: Fairlead, level: str
) -> None:
    await caller.run(f"set transaction isolation level {level}")
    await caller.run("select * from orders")  # takes the snapshot
    taken = await fl.enqueue("greet", tenant=TENANT, payload=ADA, dedupe_key="one")

    with pytest.raises(DedupeClash) as clash:
        await caller.enqueue("greet", tenant=TENANT, payload=ADA, dedupe_key="one")
    assert clash.value.code == "dedupe_clash"
    await caller.rollback()
    again = await caller.enqueue("greet", tenant=TENANT, payload=ADA, dedupe_key="one")
    await caller.commit()

    assert again.deduplicated
    assert again.id == taken.id
    assert [job.id for job in await found(fl)] == [taken.id]


# Notifications


@pytest.mark.thorough
@with_every_driver
async def test_listeners_hear_of_the_job_only_after_the_commit(
    caller: Caller, fl: Fairlead, shop_database: str
) -> None:
    async with await psycopg.AsyncConnection.connect(shop_database, autocommit=True) as listener:
        await listener.execute("listen fairlead")

        async def next_heard(sentinel: str | None = None) -> str:
            if sentinel is not None:
                await listener.execute("select pg_notify('fairlead', %s)", (sentinel,))
            [heard] = [notice.payload async for notice in listener.notifies(timeout=SECONDS, stop_after=1)]
            return heard

        await caller.enqueue("greet", tenant=TENANT, payload=ADA)
        assert await next_heard("before the rollback") == "before the rollback"
        await caller.rollback()
        assert await next_heard("after the rollback") == "after the rollback"

        await caller.enqueue("greet", tenant=TENANT, payload=ADA)
        assert await next_heard("before the commit") == "before the commit"
        await caller.commit()
        assert await next_heard() == "ready"


@with_every_driver
async def test_a_lease_ends_when_the_caller_commits(fl: Fairlead, caller: Caller) -> None:
    """With every driver, and with no right but to call the function."""
    job = await fl.enqueue("greet", tenant=TENANT, payload=ADA)
    [lease] = await fl.claim()
    await caller.run("insert into orders values (1)")
    await caller.run("do 'begin end'")  # the first use of PL/pgSQL makes its settings known
    before = await caller.run(SESSION)
    await caller.succeed(lease, {"greeting": "Grüße"})
    assert await caller.run(SESSION) == before
    assert (await job.read()).status is JobStatus.RUNNING
    await caller.rollback()
    assert (await job.read()).status is JobStatus.RUNNING
    assert await orders(fl) == []
    await caller.run("insert into orders values (2)")
    await caller.succeed(lease, {"greeting": "Grüße"})
    await caller.commit()
    found = await job.read()
    assert (found.status, found.output) == (JobStatus.SUCCEEDED, {"greeting": "Grüße"})
    assert await orders(fl) == [2]
