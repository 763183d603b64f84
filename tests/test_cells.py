"""Cells: tenants of one Fairlead in several databases."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from uuid import uuid4

import psycopg
import pytest

from fairlead import Fairlead, Settings
from fairlead.actions import cells as directory
from fairlead.actions import tenants
from fairlead.db.database import Database
from fairlead.errors import (
    DatabaseUnreachable,
    JobUnknown,
    TenantExists,
    TenantMoved,
    TenantMoving,
    TenantUnknown,
    WrongCell,
)
from fairlead.library import cells as cells_of_library
from fairlead.library.cell_setup import prepare_cell
from fairlead.model.job import JobStatus, NewJob
from tests import given
from tests.databases import Databases
from tests.server.cells import add_cell


@pytest.fixture
async def cells(fl: Fairlead) -> Fairlead:
    """A Fairlead whose tenant `far` lives in the cell `b`, and `near` in the home cell."""
    await add_cell(fl, "b")
    await fl.add_tenant("near")
    await fl.add_tenant("far", cell="b")
    return fl


@pytest.mark.thorough
async def test_the_first_cell_also_names_the_home_cell(fl: Fairlead) -> None:
    assert not fl.cells
    await add_cell(fl, "b")
    assert {cell.name: cell.is_home for cell in fl.cells.by_name.values()} == {"home": True, "b": False}


async def test_a_job_is_stored_in_the_cell_of_its_tenant(cells: Fairlead) -> None:
    fl = cells

    @fl.job
    async def noop() -> str:
        return "done"

    await fl.close()
    await fl.open()
    far = await noop.enqueue(tenant="far")
    near = await noop.enqueue(tenant="near")
    member = await fl.cells.member("b")
    assert [job.id for job in await given.all_jobs(member)] == [far.id]
    assert [job.id for job in await given.all_jobs(fl)] == [near.id]
    assert (await far.read()).status is JobStatus.QUEUED
    assert (await fl.cancel(far.id)).status is JobStatus.CANCELED


@pytest.mark.thorough
async def test_a_slug_is_unique_in_all_cells(cells: Fairlead) -> None:
    for cell in (None, "b", "home"):
        with pytest.raises(TenantExists):
            await cells.add_tenant("far", cell=cell)
    with pytest.raises(TenantExists):
        await cells.add_tenant("near", cell="b")
    for cell in (None, "b", "home"):
        assert (await cells.add_tenant("far", cell=cell, exist_ok=True)).slug == "far"


async def test_a_tenant_that_is_elsewhere_can_be_neither_read_nor_changed_here(fl: Fairlead) -> None:
    await fl.add_tenant("movable")
    for placement, moved_to, reading, writing in (
        ("leaving", None, None, TenantMoving),
        ("arriving", None, TenantMoving, TenantMoving),
        ("moved", "b", TenantMoved, TenantMoved),
    ):
        await given.place_tenant(fl, "movable", placement, moved_to)
        for work, refusal in (
            (lambda tx: tenants.find(tx, fl.principal, "movable"), reading),
            (lambda tx: tenants.change(tx, fl.principal, "movable", {"weight": 7}), writing),
        ):
            with pytest.raises(refusal) if refusal else nullcontext():
                await fl.database.transact(work)


@pytest.fixture
async def apart(fl: Fairlead, databases: Databases) -> AsyncIterator[Fairlead]:
    """A Fairlead whose cell `b` is another database, with the tenant `far`; its schema has the same name."""
    with databases.lend() as url:
        async with Database(url, Settings()) as database, database.transaction() as tx:
            # the test's databases are copies of one
            await tx.run("update fairlead.system set cell_id = gen_random_uuid()")
        cell_id = await prepare_cell(url, "fairlead")
        async with fl.transaction() as tx:
            await directory.add(tx, fl.principal, name="b", cell_id=cell_id, url=url, schema="fairlead")
        await fl.cells.refresh()
        await fl.add_tenant("near")
        await fl.add_tenant("far", cell="b")
        yield fl
        await fl.cells.close()


async def test_a_transaction_joins_only_on_the_database_of_the_tenants_cell(apart: Fairlead) -> None:
    fl = apart
    near, far = await fl.for_tenant("near"), await fl.for_tenant("far")
    assert (near.cell, far.cell) == ("home", "b")
    assert near.database_url != far.database_url
    assert far.database_url not in repr(far)
    for place, other in ((near, "far"), (far, "near")):
        async with await psycopg.AsyncConnection.connect(place.database_url) as connection:
            with pytest.raises(WrongCell):
                await fl.enqueue("greet", tenant=other, payload={"name": "Ada"}, tx=connection)
            with pytest.raises(WrongCell):
                await fl.emit("order.paid", tenant=other, tx=connection)
            job = await fl.enqueue("greet", tenant=place.tenant, payload={"name": "Ada"}, tx=connection)
            await fl.emit("order.paid", tenant=place.tenant, tx=connection)
            await connection.commit()
            with pytest.raises(WrongCell):
                await fl.enqueue_many(
                    [
                        NewJob(definition="greet", tenant=one, payload={"name": "Ada"})
                        for one in ("near", "far")
                    ],
                    tx=connection,
                )
        assert (await job.read()).tenant == place.tenant


async def test_the_library_finds_and_follows_tenants(apart: Fairlead) -> None:
    fl = apart
    jobs = await fl.enqueue_many(
        [
            NewJob(definition="greet", tenant=one, payload={"name": "Ada"})
            for one in ("near", "far", "near", "far")
        ]
    )
    assert [(await one.read()).tenant for one in jobs] == ["near", "far", "near", "far"]
    await fl.pause(tenant="far")
    assert (await fl.why(jobs[1].id)).reasons[0].code == "tenant_paused"
    assert (await fl.cancel(jobs[1].id)).status is JobStatus.CANCELED
    assert (await fl.retry(jobs[1].id)).status is JobStatus.QUEUED
    assert {one.quota for one in await fl.quotas("far")}
    with pytest.raises(TenantUnknown):
        await fl.enqueue("greet", tenant="nobody", payload={"name": "Ada"})
    with pytest.raises(JobUnknown):
        await fl.read(uuid4())

    # the tenant moves while this process remembers its old cell: here its row only, by hand
    member = await fl.cells.member("b")
    tenant_id = await given.tenant_id(member, "far")
    await given.place_tenant(member, "far", "moved", "home")
    async with fl.transaction() as tx:
        await tx.run("insert into fairlead.tenants (id, slug, name) values (%s, 'far', 'far')", [tenant_id])
        await tx.run("insert into fairlead.tenant_use (tenant_id) values (%s)", [tenant_id])
        await tx.run("update fairlead.tenant_cells set cell = 'home', epoch = 1 where slug = 'far'")
    job = await fl.enqueue("greet", tenant="far", payload={"name": "Ada"})
    assert (await given.read_job(fl, job.id)).tenant_id == tenant_id


async def test_a_write_waits_for_a_move_and_then_follows(apart: Fairlead) -> None:
    fl = apart
    await given.place_tenant(fl, "near", "leaving")
    writing = asyncio.create_task(fl.enqueue("greet", tenant="near", payload={"name": "Ada"}))
    assert (await fl.quotas("near")) is not None  # reads go on
    await given.place_tenant(fl, "near", "here")
    assert (await (await writing).read()).tenant == "near"
    await given.place_tenant(fl, "near", "leaving")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(TenantMoving):
        patch.setattr(cells_of_library, "MOVE_WAIT_SECONDS", 0.1)
        await fl.enqueue("greet", tenant="near", payload={"name": "Ada"})


async def test_a_cell_that_is_away_concerns_only_its_tenants(apart: Fairlead) -> None:
    fl = apart
    await fl.cells.close()
    await given.set_cell_url(fl, "b", "postgresql://x@127.0.0.1:1/x?connect_timeout=1")
    await fl.cells.refresh()
    with pytest.raises(DatabaseUnreachable):
        await fl.enqueue("greet", tenant="far", payload={"name": "Ada"})
    job = await fl.enqueue("greet", tenant="near", payload={"name": "Ada"})
    assert (await job.read()).tenant == "near"
    answers = await fl.cells.gather(lambda one: one.read(job.id))
    assert {one.cell: one.error is None for one in answers} == {"home": True, "b": False}
