"""A distributed schema on a real Citus cluster: a coordinator and two workers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import UUID

import psycopg
import pytest
from psycopg import conninfo

from fairlead import Fairlead, Settings
from fairlead.db import citus, migrate
from fairlead.db.addresses import describe_address
from fairlead.db.citus import replace_node
from fairlead.db.listen import Listener
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.errors import DatabaseRefused
from fairlead.model.job import JobStatus
from tests import given
from tests.citus import CitusCluster, citus_cluster, find_citus
from tests.cli.test_commands import Shell
from tests.waiting import SECONDS
from tests.working import working

pytestmark = pytest.mark.thorough

SCHEMA = "cell_one"
# Citus itself refuses to truncate a shard
REFUSED = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.CheckViolation,
    psycopg.errors.InternalError_,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[CitusCluster]:
    binaries = find_citus()
    if binaries is None:
        pytest.skip("no PostgreSQL with the extension citus is installed here")
    with citus_cluster(binaries) as made:
        yield made


@pytest.fixture(scope="module")
def coordinator(cluster: CitusCluster) -> str:
    """The coordinator's URL, for a role that is not a superuser, with the schema installed."""
    url = cluster.for_application
    asyncio.run(migrate.up(url, SCHEMA, citus=True))
    return url


@pytest.fixture
async def fl(coordinator: str) -> AsyncIterator[Fairlead]:
    settings = Settings(
        database_url=coordinator, schema=SCHEMA, citus=True, poll_seconds=0.2, sweep_seconds=0.5
    )
    fl = Fairlead(settings=settings, actor="tester")

    @fl.job
    async def double(n: int) -> int:
        return n * 2

    async with fl:
        await fl.add_tenant("acme", exist_ok=True)
        await fl.add_tenant("umbrella", exist_ok=True)
        yield fl
        await given.no_inconsistencies(fl.database)


async def move(cluster: CitusCluster) -> str:
    """Let Citus move the schema to the other worker; the old node's URL."""
    old = await citus.find_node(cluster.for_application, SCHEMA)
    port = conninfo.conninfo_to_dict(old)["port"]
    [other] = [one for one in cluster.workers if conninfo.conninfo_to_dict(one)["port"] != port]
    target = conninfo.conninfo_to_dict(other)
    async with await psycopg.AsyncConnection.connect(cluster.coordinator, autocommit=True) as connection:
        await connection.execute(
            "select citus_schema_move(%s::regnamespace, %s::text, %s::integer)",
            [SCHEMA, target["host"], target["port"]],
        )
    return old


def test_only_host_and_port_differ_in_the_address_of_a_node() -> None:
    url = "postgresql://app:p%40ss%2F@10.0.0.1:5432/jobs?sslmode=require&options=-c%20jit%3Doff&hostaddr=10.0.0.1"

    parts = conninfo.conninfo_to_dict(replace_node(url, "10.0.0.7", 5433))

    assert parts == {
        "user": "app",
        "password": "p@ss/",
        "dbname": "jobs",
        "sslmode": "require",
        "options": "-c jit=off",
        "host": "10.0.0.7",
        "port": "5433",
    }


async def test_the_schema_is_installed_once_and_is_distributed(
    coordinator: str, cluster: CitusCluster
) -> None:
    again = await migrate.up(coordinator, SCHEMA, citus=True)

    node = await citus.find_node(coordinator, SCHEMA)
    assert again == []
    assert describe_address(node) in map(describe_address, cluster.workers)
    await migrate.check(coordinator, SCHEMA)


async def test_a_schema_that_is_not_distributed_is_refused(coordinator: str) -> None:
    async with await psycopg.AsyncConnection.connect(coordinator, autocommit=True) as connection:
        await connection.execute("create schema ordinary")
        await connection.execute("create table ordinary.function_sources ()")
        await connection.execute("create table ordinary.migrations (needs integer)")

    with pytest.raises(DatabaseRefused, match="does not distribute"):
        await migrate.up(coordinator, "ordinary", citus=True)


async def test_only_the_coordinator_migrates(coordinator: str) -> None:
    with pytest.raises(DatabaseRefused, match="coordinator"):
        await migrate.up(await citus.find_node(coordinator, SCHEMA), SCHEMA, citus=True)


async def test_a_database_without_citus_is_refused(server: str) -> None:
    with pytest.raises(DatabaseRefused, match="no Citus"):
        await citus.find_node(server, SCHEMA)
    with pytest.raises(DatabaseRefused, match="no Citus"):
        await migrate.up(server, "on_nothing", citus=True)


async def test_jobs_run(fl: Fairlead) -> None:
    async with working(fl):
        handles = [await fl.enqueue("double", tenant="acme", payload={"n": n}) for n in range(20)]
        results = [await handle.result(timeout=SECONDS) for handle in handles]

    assert results == [2 * n for n in range(20)]


async def test_a_tenant_sees_its_own_rows_only(fl: Fairlead) -> None:
    handle = await fl.enqueue("double", tenant="acme", payload={"n": 1}, delay=3600)
    async with fl.transaction() as tx:
        ids: dict[str, UUID] = dict(await tx.values("select slug, id from fairlead.tenants"))

    async def count(tenant: str) -> int:
        async with fl.database.transaction(TransactionIdentity(ids[tenant])) as tx:
            [(number,)] = await tx.values("select count(*) from fairlead.jobs where id = %s", [handle.id])
            return int(number)

    assert await count("acme") == 1
    assert await count("umbrella") == 0
    await fl.cancel(handle.id)


@pytest.mark.parametrize(
    "statement",
    [
        "delete from fairlead.tenants",
        "delete from fairlead.job_definitions",
        "update fairlead.job_definitions set key = 'other' where key = 'double'",
        "update fairlead.audit_log set actor = 'other'",
        "delete from fairlead.audit_log",
        "truncate fairlead.audit_log",
        "delete from fairlead.audit_log_rest",
        "truncate fairlead.audit_log_rest",
    ],
)
async def test_what_triggers_refuse_elsewhere_is_not_allowed(fl: Fairlead, statement: str) -> None:
    for name in (None, "coordinator"):
        with pytest.raises(REFUSED):
            if name is None:  # on the node, by the names of the shards
                async with fl.transaction() as tx:
                    await tx.run(statement)
            else:
                async with await psycopg.AsyncConnection.connect(str(fl.settings.database_url)) as connection:
                    await connection.execute(statement.replace("fairlead.", f"{SCHEMA}.").encode())


async def test_nor_is_it_in_a_day_of_the_audit_log(fl: Fairlead, coordinator: str) -> None:
    async with await psycopg.AsyncConnection.connect(coordinator, autocommit=True) as connection:
        cursor = await connection.execute(
            "select inhrelid::regclass::text from pg_inherits where inhparent = %s::regclass",
            [f"{SCHEMA}.audit_log"],
        )
        days = [name for (name,) in await cursor.fetchall()]
        assert len(days) > migrate.AUDIT_DAYS_AHEAD
        for day in days:
            for statement in ("delete from", "truncate"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    await connection.execute(f"{statement} {day}".encode())


async def test_each_change_of_a_definition_raises_its_version(fl: Fairlead) -> None:
    async def version(tx: Tx) -> int:
        [(number,)] = await tx.values("select version from fairlead.job_definitions where key = 'double'")
        return int(number)

    before = await fl.database.transact(version)
    await fl.pause(definition="double")
    await fl.resume(definition="double")

    assert await fl.database.transact(version) == before + 2


async def test_the_days_of_the_audit_log_are_prepared_and_dropped_from_the_node(fl: Fairlead) -> None:
    async def run(query: str) -> object:
        async with fl.transaction() as tx:
            [(value,)] = await tx.values(query)
            return value

    days = migrate.AUDIT_DAYS_AHEAD
    assert await run(f"select fairlead.prepare_audit_days({days + 2})") == 2
    assert await run("select fairlead.drop_audit_day(-1000)") is not None
    assert await run("select fairlead.drop_audit_rest(30, 100)") == 0


async def test_a_day_of_the_audit_log_that_is_being_read_is_not_waited_for(fl: Fairlead) -> None:
    async with fl.transaction() as reader:
        await reader.values("select from fairlead.audit_entries limit 1")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            async with asyncio.timeout(SECONDS), fl.transaction() as tx:
                await tx.wait_for_locks(0.1)
                await tx.values("select fairlead.drop_audit_day(-1000)")


def test_a_distributed_schema_is_a_cell(
    coordinator: str, cluster: CitusCluster, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITUS_URL", coordinator)
    shell = Shell(database_url)

    added = shell.json("cells", "add", "far", "env:CITUS_URL", "--schema", SCHEMA, "--citus")
    listed = {cell["name"]: cell for cell in shell.json("cells", "list")}

    assert added["citus"] is True
    assert listed["far"]["database"] in map(describe_address, cluster.workers)
    assert listed["far"]["state"] == "open"
    assert listed["far"]["bytes"] > 0

    shell.json("tenants", "add", "shop")
    job = shell.json("jobs", "enqueue", "anything", "--tenant", "shop")["id"]
    moved = shell("tenants", "move", "shop", "--to", "far")
    assert moved.exit_code == 0, moved.output
    assert shell.json("jobs", "show", job)["status"] == "queued"
    assert {cell["name"]: cell["tenants"] for cell in shell.json("cells", "list")}["far"] >= 1
    moved = shell("tenants", "move", "shop", "--to", "home")
    assert moved.exit_code == 0, moved.output
    assert shell.json("jobs", "show", job)["status"] == "queued"


async def test_the_database_of_a_tenant_is_the_node(fl: Fairlead) -> None:
    place = await fl.for_tenant("acme")

    async with await psycopg.AsyncConnection.connect(place.database_url) as connection:
        job = await fl.enqueue("double", tenant="acme", payload={"n": 1}, delay=3600, tx=connection)
        await connection.commit()
    assert (await fl.read(job.id)).status is JobStatus.QUEUED
    await fl.cancel(job.id)


async def test_a_worker_follows_the_schema_to_another_node(fl: Fairlead, cluster: CitusCluster) -> None:
    heard = asyncio.Event()
    async with (
        Listener(cluster.for_application, SCHEMA, citus=True) as listener,
        working(fl),
    ):
        await listener.connected.wait()
        handles = [await fl.enqueue("double", tenant="acme", payload={"n": 0})]

        async def go_on() -> None:
            for n in range(1, 200):
                handles.append(await fl.enqueue("double", tenant="acme", payload={"n": n}))  # noqa: PERF401

        async with asyncio.TaskGroup() as group:
            group.create_task(go_on())
            moved = group.create_task(move(cluster))
        old = moved.result()
        results = [await handle.result(timeout=SECONDS) for handle in handles]
        # the listener is on the new node
        with listener.subscribe(lambda word: heard.set() if word == "after the move" else None):
            async with asyncio.timeout(SECONDS):
                while not heard.is_set():
                    await fl.database.single(
                        lambda tx: tx.run(f"select pg_notify('{SCHEMA}', 'after the move')")
                    )
                    await asyncio.sleep(0.1)  # the listener looks once a second

    assert results == [2 * n for n in range(200)]
    new = await citus.find_node(cluster.for_application, SCHEMA)
    assert conninfo.conninfo_to_dict(new)["port"] != conninfo.conninfo_to_dict(old)["port"]

    # jobs that join a transaction on the old node would be lost there
    async with await psycopg.AsyncConnection.connect(old) as connection:
        with pytest.raises(psycopg.Error, match="moved the schema") as refused:
            await connection.execute(f"select {SCHEMA}.enqueue('acme', 'double', '{{\"n\": 1}}')".encode())
    assert refused.value.sqlstate == citus.MOVED


async def test_citus_cannot_move_the_schema_while_a_transaction_is_open(
    fl: Fairlead, cluster: CitusCluster
) -> None:
    """Citus takes this lock on the node before it makes the other node the schema's own."""
    node = await citus.find_node(cluster.coordinator, SCHEMA)
    lock = (
        "select lock_shard_metadata(7, array[shardid]) from pg_dist_shard "
        f"where logicalrelid = '{SCHEMA}.tenants'::regclass"
    )
    async with await psycopg.AsyncConnection.connect(node, autocommit=True) as connection:
        await connection.execute("set lock_timeout = '100ms'")
        async with fl.transaction():
            with pytest.raises(psycopg.errors.LockNotAvailable):
                await connection.execute(lock.encode())
        await connection.execute(lock.encode())


async def test_a_read_of_an_old_snapshot_cannot_join(fl: Fairlead) -> None:
    place = await fl.for_tenant("acme")

    async with await psycopg.AsyncConnection.connect(place.database_url) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            await connection.execute(f"select {SCHEMA}.enqueue('acme', 'double', '{{\"n\": 1}}')".encode())
