"""Fairlead on a primary with a standby: it finds the primary, and acknowledges nothing that the standby lacks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from fairlead import Fairlead, NewJob, Settings
from fairlead.actions import doctor, idempotency, workflows
from fairlead.db import database, migrate
from fairlead.db.addresses import describe_address, primary_parameters
from fairlead.db.database import Database
from fairlead.db.listen import check_round_trip
from fairlead.db.scratch import replace_database
from fairlead.db.session_lock import hold_session_lock
from fairlead.errors import DatabaseUnreachable
from fairlead.model.finding import Verdict
from tests import given
from tests.given import TENANT
from tests.replication import PRIMARY_PORT, Pair, find_binaries, replicating_pair
from tests.waiting import SECONDS, eventually

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(find_binaries() is None, reason="needs pg_basebackup: make tools TOOLS=thorough"),
]

# A notification of an earlier change waits, too.
WAITS = "select pid from pg_stat_activity where wait_event = 'SyncRep' and query not like '%pg_notify%'"


@pytest.fixture(scope="module")
def replicating() -> Iterator[Pair]:
    with replicating_pair() as running:
        asyncio.run(migrate.up(running.url, "fairlead"))
        asyncio.run(_fill(running.url))
        yield running


async def _fill(url: str) -> None:
    async with Database(url, Settings()) as database, database.transaction() as tx:
        await given.tenants_and_definitions(tx)


@pytest.fixture
def pair(replicating: Pair) -> Iterator[Pair]:
    yield replicating
    replicating.set_on_primary(synchronous_standby_names="")


@pytest.fixture
async def fl(pair: Pair) -> AsyncIterator[Fairlead]:
    async with Fairlead(settings=Settings(database_url=pair.url, connect_timeout_seconds=60)) as opened:
        yield opened


async def test_of_several_servers_the_primary_is_used(pair: Pair) -> None:
    """The standby is the first one of the address, and accepts connections, too."""
    await migrate.check(pair.url, "fairlead")
    assert await check_round_trip(pair.url, "fairlead", seconds=SECONDS)
    async with (
        hold_session_lock(pair.url, "only-one") as held,
        hold_session_lock(pair.primary_url, "only-one") as held_too,
    ):
        assert held is not None
        assert held_too is None
    async with Fairlead(settings=Settings(database_url=pair.url)) as fl:
        job = await fl.enqueue("anything", tenant=TENANT)
        assert (await fl.read(job.id)).status == "queued"
    other = replace_database(pair.url, "template1")
    async with Database(other, Settings()) as database, database.transaction() as tx:
        assert await tx.values("select pg_is_in_recovery(), current_database()") == [(False, "template1")]


async def test_without_a_primary_the_error_names_each_server_and_what_to_do(pair: Pair) -> None:
    nowhere = f"postgresql://u:s3cr3t@/postgres?host={pair.folder},{pair.folder}&port=5433,6000&user=fairlead"
    with pytest.raises(DatabaseUnreachable) as refused:
        await migrate.check(nowhere, "fairlead")
    told = refused.value.message
    assert f"{pair.folder}:5433: session is read-only" in told
    assert f"{pair.folder}:6000: No such file or directory" in told
    assert "A failover takes some seconds: try again" in told
    assert "s3cr3t" not in told


async def test_dead_connections_of_a_pool_are_replaced_at_once(pair: Pair, fl: Fairlead) -> None:
    """However many of them are idle: the pool by itself would look at one, wait, and look at the next one.

    It would wait for twice as long each time, and so for longer than to connect may take.
    """
    number = fl.settings.pool_size - 1  # one may be kept for single statements
    barrier = asyncio.Barrier(number)

    async def connect() -> None:
        async with fl.transaction():
            await barrier.wait()

    await asyncio.gather(*(connect() for _ in range(number)))
    with psycopg.connect(pair.primary_url, autocommit=True) as other:
        other.execute(
            "select pg_terminate_backend(pid, 30000) from pg_stat_activity where application_name = 'fairlead'"
        )
    async with fl.transaction() as tx:
        await given.count(tx, "jobs")


async def test_an_enqueue_rides_out_a_failover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the pool has given up on connections several times."""
    monkeypatch.setattr(database, "RECONNECT_SECONDS", 0.2)
    with replicating_pair() as pair:
        await migrate.up(pair.url, "fairlead")
        settings = Settings(database_url=pair.url, connect_timeout_seconds=120)
        async with Fairlead(settings=settings) as fl:
            async with fl.transaction() as tx:
                await given.tenants_and_definitions(tx)
            await fl.enqueue("anything", tenant=TENANT)
            pair.set_on_primary(synchronous_standby_names="*")
            first = await fl.enqueue("anything", tenant=TENANT)
            pair.kill(PRIMARY_PORT)
            meanwhile = asyncio.create_task(fl.enqueue("anything", tenant=TENANT))
            failures = lambda: fl.database._pool.get_stats().get("connections_errors", 0) >= 12  # noqa: E731
            await eventually(failures, "the pool to try again and again")
            await asyncio.to_thread(pair.promote_standby)
            with psycopg.connect(pair.standby_url, autocommit=True) as connection:
                connection.execute("alter system set synchronous_standby_names = ''")
                connection.execute("select pg_reload_conf()")
            second = await meanwhile
            async with fl.transaction() as tx:
                there = {job_id for (job_id,) in await tx.values("select id from fairlead.jobs")}
            assert {first.id, second.id} <= there


async def test_a_lost_answer_is_acknowledged_only_when_the_standby_has_the_job(
    pair: Pair, fl: Fairlead
) -> None:
    """The commit's wait is broken off, which makes it visible here: the repeated enqueue finds its job stored."""
    pair.set_on_primary(synchronous_standby_names="no_such_standby")
    enqueueing = asyncio.create_task(fl.enqueue("anything", tenant=TENANT, correlation_id="lost"))
    with psycopg.connect(pair.primary_url, autocommit=True) as other:
        [(pid,)] = await eventually(lambda: other.execute(WAITS).fetchall(), "the commit to wait")
        other.execute("select pg_terminate_backend(%s)", [pid])
        is_another = lambda: [one for (one,) in other.execute(WAITS).fetchall() if one != pid]  # noqa: E731
        await eventually(is_another, "the repeated enqueue to wait as well")
        assert not enqueueing.done()
        visible = "select id from fairlead.jobs where correlation_id = 'lost'"
        [(stored,)] = await eventually(lambda: other.execute(visible).fetchall(), "the job to be visible")
    pair.set_on_primary(synchronous_standby_names="")
    assert (await enqueueing).id == stored


async def _enqueue(fl: Fairlead) -> object:
    return (await fl.enqueue("anything", tenant=TENANT, dedupe_key="single")).id


async def _enqueue_many(fl: Fairlead) -> object:
    return [
        one.id
        for one in await fl.enqueue_many([NewJob(definition="anything", tenant=TENANT, dedupe_key="many")])
    ]


async def _take_idempotency_key(fl: Fairlead) -> object:
    """As a create over HTTP does."""
    taking = partial(idempotency.take_key, scope_id=UUID(int=1), key="k", body_hash=b"")
    await fl.database.transact(taking)
    return "taken"


async def _start_workflow(fl: Fairlead) -> object:
    document = {"key": "w", "steps": [{"name": "a", "definition": "anything"}]}
    asked = workflows.RunRequest(tenant=TENANT, unique_key="run")
    started = await fl.database.transact(lambda tx: workflows.start_inline(tx, given.TESTER, document, asked))
    return started.id


@pytest.mark.parametrize("act", [_enqueue, _enqueue_many, _take_idempotency_key, _start_workflow])
async def test_a_repetition_is_acknowledged_only_when_the_standby_has_what_it_repeats(
    pair: Pair, fl: Fairlead, act: Callable[[Fairlead], Coroutine[Any, Any, object]]
) -> None:
    """The first call is canceled while its commit waits, which makes the commit visible here."""
    pair.set_on_primary(synchronous_standby_names="no_such_standby")
    with psycopg.connect(pair.primary_url, autocommit=True) as other:
        canceled = asyncio.create_task(act(fl))
        await eventually(lambda: other.execute(WAITS).fetchall(), "the commit to wait")
        canceled.cancel()
        await asyncio.gather(canceled, return_exceptions=True)
        assert canceled.cancelled()
        await eventually(lambda: not other.execute(WAITS).fetchall(), "the wait to end")
        again = asyncio.create_task(act(fl))
        await eventually(lambda: other.execute(WAITS).fetchall(), "the second call to wait")
        assert not again.done()
    pair.set_on_primary(synchronous_standby_names="")
    assert await again == await act(fl)


async def test_a_commit_that_waits_is_given_up_without_being_canceled(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's statement timeout does not end the wait, and neither does the client when it gives up."""
    monkeypatch.setattr(database, "GRACE_SECONDS", 0.5)
    settings = Settings(database_url=pair.url, statement_timeout_seconds=6)
    async with Fairlead(settings=settings) as fl:
        await fl.enqueue("anything", tenant=TENANT)
        # from now on: to connect may take longer
        fl.database.settings = replace(settings, connect_timeout_seconds=1)
        pair.set_on_primary(synchronous_standby_names="no_such_standby")
        with pytest.raises(DatabaseUnreachable):
            await fl.enqueue("anything", tenant=TENANT, correlation_id="given-up")
        with psycopg.connect(pair.primary_url, autocommit=True) as other:
            assert other.execute(WAITS).fetchall()
            visible = "select from fairlead.jobs where correlation_id = 'given-up'"
            assert not other.execute(visible).fetchall()
            pair.set_on_primary(synchronous_standby_names="")
            await eventually(
                lambda: other.execute(visible).fetchall(), "the job, now that the commit went on"
            )


async def test_doctor_says_what_a_failover_can_lose(pair: Pair) -> None:
    async def standby() -> tuple[Verdict, str]:
        found = [one async for one in doctor.examine(pair.url, Settings(database_url=pair.url))]
        [finding] = [one for one in found if one.check == "standby"]
        return finding.verdict, finding.advice

    verdict, advice = await standby()
    assert verdict is Verdict.WARN
    assert "a failover can lose the last jobs that were acknowledged" in advice
    pair.set_on_primary(synchronous_standby_names="no_such_standby")
    assert (await standby())[0] is Verdict.FAIL
    pair.set_on_primary(synchronous_standby_names="*")
    assert await standby() == (Verdict.OK, "")
    try:
        for level in ("local", "off"):
            pair.set_on_primary(synchronous_commit=level)
            verdict, advice = await standby()
            assert verdict is Verdict.WARN
            assert "Set synchronous_commit = on" in advice
    finally:
        pair.set_on_primary(synchronous_commit="on")


async def test_doctor_names_the_primary_and_an_address_that_may_lead_elsewhere(pair: Pair) -> None:
    found = [one async for one in doctor.examine(pair.url, Settings(database_url=pair.url))]
    assert [one.detail for one in found if one.check == "database"] == [
        f"reached at {describe_address(pair.url)}; the primary is {pair.folder}:{PRIMARY_PORT}"
    ]
    assert not [one for one in found if one.check == "address"]
    anywhere = f"{pair.url}&target_session_attrs=any"
    found = [one async for one in doctor.examine(anywhere, Settings(database_url=anywhere))]
    [wrong] = [one for one in found if one.check == "address"]
    assert wrong.verdict is Verdict.WARN
    assert "Remove target_session_attrs" in wrong.advice
    assert "not-shown" not in wrong.detail


@pytest.mark.parametrize(
    ("url", "place", "parameters"),
    [
        ("postgresql://u:p@a:1,b:2/d", "a:1,b:2/d", {"connect_timeout": 15, "target_session_attrs": "read-write"}),
        ("postgresql://a,b,c/d", "a:5432,b:5432,c:5432/d", {"connect_timeout": 10, "target_session_attrs": "read-write"}),
        ("postgresql://a,b/d?target_session_attrs=primary", "a:5432,b:5432/d", {"connect_timeout": 15}),
        ("postgresql://a,b/d?connect_timeout=3", "a:5432,b:5432/d", {"target_session_attrs": "read-write"}),
        ("host=a,b port=7 dbname=d", "a:7,b:7/d", {"connect_timeout": 15, "target_session_attrs": "read-write"}),
        ("postgresql://a/d", "a:5432/d", {"connect_timeout": 30}),
    ],
)  # fmt: skip
def test_of_several_servers_only_a_writable_one_will_do(
    url: str, place: str, parameters: dict[str, object]
) -> None:
    assert describe_address(url) == place
    assert primary_parameters(url, seconds=30) == parameters
