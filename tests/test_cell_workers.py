"""One worker process serves all cells."""

import asyncio
import os
import signal
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
import structlog.testing

from fairlead import Context, Fairlead
from fairlead.actions import cells as directory
from fairlead.chaos.site.ports import find_free_ports
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.scratch import scratch_folder
from fairlead.errors import DatabaseUnreachable, FairleadError, JobFailed
from fairlead.library.cell_group import CellGroup, ServedCell
from fairlead.library.cell_setup import prepare_cell
from fairlead.model.job import NewJob
from fairlead.runtime import shared_capacity
from tests import given
from tests.server.cells import add_cell
from tests.waiting import SECONDS, eventually
from tests.working import until_asleep, working

pytestmark = pytest.mark.thorough


async def add_tenant(fl: Fairlead, slug: str, cell: str, *, weight: int = 1) -> None:
    if cell not in fl.cells.by_name:
        await add_cell(fl, cell)
    await fl.add_tenant(slug, cell=cell, weight=weight)


@pytest.fixture
async def ran(fl: Fairlead) -> list[str]:
    """The tenants of the runs of `noop`, in their order."""
    runs: list[str] = []

    @fl.job
    async def noop(ctx: Context) -> None:
        runs.append(ctx.tenant)
        await asyncio.sleep(0.02)  # its work

    await fl.close()
    await fl.open()
    return runs


async def enqueue(fl: Fairlead, tenant: str, number: int = 1) -> None:
    await fl.enqueue_many([NewJob(definition="noop", tenant=tenant, payload={}) for _ in range(number)])


async def test_tenants_of_different_cells_get_shares_by_their_weights(
    fl: Fairlead, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # on a busy machine a claim may take longer than a second: its cell is not left out for that
    monkeypatch.setattr(shared_capacity, "STALL_SECONDS", 60.0)
    number, warm_up = 1000, 200
    await fl.add_tenant("light")
    await add_tenant(fl, "heavy", "b", weight=3)
    for slug in ("light", "heavy"):
        await enqueue(fl, slug, number)
    async with working(fl, concurrency=10):
        await eventually(lambda: ran.count("heavy") == number, "the heavy tenant's jobs")
    heavy_runs = [at for at, slug in enumerate(ran) if slug == "heavy"]
    seen = Counter(ran[heavy_runs[warm_up] : heavy_runs[-1]])
    assert 2.8 <= seen["heavy"] / seen["light"] <= 3.2, seen


async def test_the_metrics_of_a_worker_are_of_all_cells(fl: Fairlead, ran: list[str]) -> None:
    await fl.add_tenant("near")
    await add_tenant(fl, "far", "b")
    [port] = find_free_ports(1)
    fl.settings = replace(fl.settings, metrics_port=port)

    async def scrape(client: httpx2.AsyncClient) -> str:
        expected = ('status="succeeded"} 2.0', 'cell="b"', 'cell="home"')
        text = ""
        while not all(part in text for part in expected):
            await asyncio.sleep(0.05)
            text = str((await client.get(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS)).text)
        return text

    async with working(fl, concurrency=10):
        for slug in ("near", "far"):
            await enqueue(fl, slug)
        await eventually(lambda: len(ran) == 2, "the jobs of both cells")
        async with httpx2.AsyncClient() as client, asyncio.timeout(SECONDS):
            text = await scrape(client)
    assert sorted(ran) == ["far", "near"]
    assert "fairlead_queue_seconds_count 2.0" in text
    assert text.count("# TYPE fairlead_check gauge") == 1
    assert 'fairlead_check{cell="b",check="checks"}' in text


async def test_a_worker_that_fails_leaves_the_stop_of_its_caller_alone(fl: Fairlead) -> None:
    """`fairlead dev` starts it again; once it ended instead, with code 0, when the database went away at a bad moment."""
    await add_cell(fl, "far")
    stop = asyncio.Event()
    served = list[str]()

    async def serve(_: Fairlead, cell: ServedCell) -> None:
        served.append(cell.name)
        await cell.over.wait()
        served.remove(cell.name)

    with pytest.raises(DatabaseUnreachable):
        async with CellGroup(fl.cells, serve).run(stop, grace_seconds=SECONDS):
            await eventually(lambda: served or None, "the cells to be served")
            raise DatabaseUnreachable("It went away.")

    assert not stop.is_set()
    assert served == []


async def test_a_cell_is_served_from_when_it_is_added_until_it_is_removed(
    fl: Fairlead, ran: list[str]
) -> None:
    async with working(fl, concurrency=10):
        await add_tenant(fl, "far", "b")
        await enqueue(fl, "far")
        await eventually(lambda: ran == ["far"], "the job of the new cell")


# The tables with rows of tenants, except the audit log, which stays where it was written.
OF_TENANTS = """
select c.table_name from information_schema.columns c join information_schema.tables t using (table_schema, table_name)
where c.table_schema = 'fairlead' and c.column_name = 'tenant_id' and t.table_type = 'BASE TABLE'
    and c.table_name not like 'audit%%' and c.table_name <> 'tenant_cells'
"""


async def begin_move(fl: Fairlead, slug: str) -> None:
    """Take a tenant's rows out of the home cell: they are in no cell then."""
    async with fl.transaction() as tx:
        await tx.run("set local session_replication_role = replica")
        await given.set_tenant(tx, slug, placement="leaving")
        await tx.run("create schema transit")
        for (table,) in await tx.values(OF_TENANTS):
            whose = "tenant_id = (select id from fairlead.tenants where slug = %s)"
            await tx.run(
                f"create table transit.{table} as select * from fairlead.{table} where {whose}", [slug]
            )
            await tx.run(f"delete from fairlead.{table} where {whose}", [slug])


async def end_move(fl: Fairlead, slug: str, cell: str) -> None:
    """Put the tenant's rows into their new cell."""
    async with fl.transaction() as tx:
        await tx.run("set local session_replication_role = replica")
        await tx.run(
            f"insert into cell_{cell}.tenants (id, slug, name) select id, slug, name from fairlead.tenants where slug = %s",
            [slug],
        )
        for (table,) in await tx.values(OF_TENANTS):
            columns = await tx.values(
                "select string_agg(quote_ident(column_name), ', ') from information_schema.columns"
                " where table_schema = 'fairlead' and table_name = %s and is_generated = 'NEVER'",
                [table],
            )
            names = columns[0][0]
            await tx.run(
                f"insert into cell_{cell}.{table} ({names}) select {names} from jsonb_populate_recordset("
                f"null::cell_{cell}.{table}, (select jsonb_agg(to_jsonb(t)) from transit.{table} t))"
            )
        await given.set_tenant(tx, slug, placement="moved", moved_to=cell)
        await tx.run(
            "insert into fairlead.tenant_cells (tenant_id, slug, cell, epoch)"
            " select id, slug, %s, 1 from fairlead.tenants where slug = %s",
            [cell, slug],
        )


async def test_running_jobs_are_followed_to_the_new_cell_of_their_tenant(fl: Fairlead) -> None:
    go, started = asyncio.Event(), set[str]()

    @fl.job(max_attempts=1)
    async def follow(ctx: Context, name: str) -> str:
        started.add(name)
        await (asyncio.Event() if name == "canceled" else go).wait()
        if name == "parent":
            await ctx.enqueue("follow", payload={"name": "child"})
        return name

    await add_cell(fl, "b")
    await fl.add_tenant("mover")
    await fl.close()
    fl.settings = replace(fl.settings, lease_seconds=60.0)
    await fl.open()
    names = ("early", "parent", "canceled")
    jobs = {name: await follow.enqueue(tenant="mover", name=name) for name in names}
    with structlog.testing.capture_logs() as logs:

        async def wait_for(event: str) -> None:
            await eventually(lambda: any(one["event"] == event for one in logs), event)

        async with working(fl, concurrency=10):
            await eventually(lambda: len(started) == len(names), "the jobs to start")
            await begin_move(fl, "mover")
            go.set()
            await wait_for("finish_postponed")  # in no cell
            await end_move(fl, "mover", "b")
            assert await jobs["early"].result(timeout=SECONDS) == "early"
            assert await jobs["parent"].result(timeout=SECONDS) == "parent"
            await eventually(lambda: "child" in started, "the child, in the new cell")
            await fl.cancel(jobs["canceled"].id)
            with pytest.raises(JobFailed, match="canceled"):
                await jobs["canceled"].result(timeout=SECONDS)
    assert not [one for one in logs if one["event"] in ("lease_lost", "stale_write_refused")]
    assert (await jobs["parent"].read()).attempt_count == 1


async def test_a_job_ends_in_a_transaction_of_its_cell_also_after_a_move(fl: Fairlead) -> None:
    """A handler whose lease is in another cell by now changes nothing; the job runs again there, and is not charged."""
    go, started = asyncio.Event(), set[str]()

    @fl.job(max_attempts=1)
    async def pay(ctx: Context) -> None:
        started.add(ctx.tenant)
        if ctx.tenant == "mover":
            await go.wait()
        async with ctx.tx() as connection:
            await connection.execute(
                "insert into public.effects values (%s, %s)", [ctx.tenant, ctx.attempt_no]
            )
            await ctx.succeed(ctx.tenant, tx=connection)

    async with fl.transaction() as tx:
        await tx.run("create table public.effects (tenant text, attempt_no integer)")
    await add_tenant(fl, "far", "b")
    await fl.add_tenant("mover")
    await fl.close()
    await fl.open()
    mover = await pay.enqueue(tenant="mover")
    async with working(fl, concurrency=10):
        assert await (await pay.enqueue(tenant="far")).result(timeout=SECONDS) == "far"
        await eventually(lambda: "mover" in started, "the job to start")
        await begin_move(fl, "mover")
        await end_move(fl, "mover", "b")
        go.set()
        assert await mover.result(timeout=SECONDS) == "mover"
    async with fl.transaction() as tx:
        assert await tx.values("select * from public.effects order by 1") == [("far", 1), ("mover", 2)]


async def test_a_durable_function_goes_on_in_the_new_cell_of_its_tenant(fl: Fairlead) -> None:
    """Its steps are recorded where its lease is, a sleeping one is woken there, and no step runs again."""
    go, ran = asyncio.Event(), list[str]()

    async def hold(name: str) -> str:
        ran.append(name)
        await go.wait()
        return name

    @fl.job(max_attempts=1, durable=True)
    async def travel(ctx: Context) -> list[str]:
        first = await ctx.step("first", hold, "first")
        second = await ctx.step("second", hold, "second")
        signal = await ctx.wait_for_signal("arrived")
        return [first, second, await ctx.step("third", hold, signal.data)]

    @fl.job(max_attempts=1, durable=True)
    async def sleeper(ctx: Context) -> str:
        await ctx.step("before", ran.append, "before")
        signal = await ctx.wait_for_signal("morning")
        await ctx.step("after", ran.append, "after")
        return str(signal.data)

    await add_cell(fl, "b")
    await fl.add_tenant("mover")
    await fl.close()
    fl.settings = replace(fl.settings, lease_seconds=60.0)
    await fl.open()
    asleep, awake = await sleeper.enqueue(tenant="mover"), await travel.enqueue(tenant="mover")

    with structlog.testing.capture_logs() as logs:
        async with working(fl, concurrency=10):
            await until_asleep(fl, asleep.id)
            await eventually(lambda: "first" in ran, "the second function to start")
            await begin_move(fl, "mover")
            go.set()
            await end_move(fl, "mover", "b")
            await fl.signal(asleep.id, "morning", "up")
            assert await asleep.result(timeout=SECONDS) == "up"
            await fl.signal(awake.id, "arrived", "third")
            assert await awake.result(timeout=SECONDS) == ["first", "second", "third"]
    assert not [one for one in logs if one["event"] in ("lease_lost", "stale_write_refused")]
    assert sorted(ran) == ["after", "before", "first", "second", "third"]


async def test_a_cell_that_is_away_costs_the_others_nothing_and_is_served_when_it_is_back(
    fl: Fairlead, ran: list[str]
) -> None:
    with scratch_folder() as folder, ExitStack() as stack:
        server = EmbeddedPostgres(folder / "data")
        url = server.start()
        stack.callback(server.stop)
        cell_id = await prepare_cell(url, "fairlead")
        async with fl.transaction() as tx:
            await directory.add(tx, fl.principal, name="away", cell_id=cell_id, url=url, schema="fairlead")
        await fl.cells.refresh()
        await fl.add_tenant("near")
        await fl.add_tenant("far", cell="away")
        with structlog.testing.capture_logs() as logs:
            async with working(fl, concurrency=10):
                await enqueue(fl, "far")
                await eventually(lambda: ran == ["far"], "a job of the cell")
                kill_server(server.pid)
                async with asyncio.timeout(SECONDS):  # not even the time to connect for each
                    for number in range(1, 11):
                        await enqueue(fl, "near")
                        await eventually(lambda number=number: ran.count("near") == number, "a job of home")  # type: ignore[misc]
                server.stop()
                server.start()
                async with asyncio.timeout(SECONDS):
                    while ran.count("far") < 2:
                        with suppress(FairleadError):
                            await enqueue(fl, "far")
                        await asyncio.sleep(0.1)
        assert len(logs) < 60, Counter(one["event"] for one in logs)


def kill_server(pid: int) -> None:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    for one in (pid, *map(int, children)):
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
