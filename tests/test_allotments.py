"""A definition's max_running holds over all cells together."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from hypothesis import given as given_values
from hypothesis import strategies as st

from fairlead import Fairlead
from fairlead.actions import definitions, gates
from fairlead.library.cell_rounds import CellRounds
from fairlead.model.allotment import divide
from fairlead.model.job import NewJob
from fairlead.store import allotments
from tests import given
from tests.processes import environment
from tests.server.cells import add_cell
from tests.test_cell_workers import add_tenant
from tests.waiting import SECONDS
from tests.working import working

pytestmark = pytest.mark.thorough

CELLS = {"near": "home", "far": "b", "farther": "c"}
RUNNING = """
select (select count(*) from fairlead.leases) + (select count(*) from cell_b.leases) + (select count(*) from cell_c.leases),
    (select sum(greatest(coalesce(a.number, 0), l.running)) from (
        select 'home' as cell, (select count(*) from fairlead.leases) as running
        union all select 'b', (select count(*) from cell_b.leases)
        union all select 'c', (select count(*) from cell_c.leases)) l
    left join (
        select 'home' as cell, number from fairlead.allotments union all select 'b', number from cell_b.allotments
        union all select 'c', number from cell_c.allotments) a using (cell))
"""


@given_values(st.integers(0, 50), st.dictionaries(st.text(max_size=2), st.integers(0, 30), max_size=5))
def test_a_limit_is_divided_without_a_rest(total: int, wanted: dict[str, int]) -> None:
    parts = divide(total, wanted)
    assert sum(parts.values()) == (total if wanted else 0)
    waiting = [cell for cell, want in wanted.items() if want]
    if len(waiting) <= total:
        assert all(parts[cell] for cell in waiting)


@pytest.fixture
async def limited(fl: Fairlead) -> Fairlead:
    """A Fairlead with a tenant in each of three cells, and a definition of which at most six jobs may run."""

    @fl.job
    async def limited() -> None:
        await asyncio.sleep(0.015)

    await fl.close()
    await fl.open()
    await set_limit(fl, 6)
    for slug, cell in CELLS.items():
        await (fl.add_tenant(slug) if cell == "home" else add_tenant(fl, slug, cell))
    return fl


async def set_limit(fl: Fairlead, number: int | None) -> None:
    async with fl.transaction() as tx:
        await definitions.patch(tx, fl.principal, "limited", {"max_running": number})


async def enqueue(fl: Fairlead, number: int) -> None:
    for slug in CELLS:
        await fl.enqueue_many([NewJob(definition="limited", tenant=slug, payload={}) for _ in range(number)])


class Watch:
    """The most jobs that ran at the same time, and the most that could have."""

    def __init__(self) -> None:
        self.running = self.allowed = 0

    def forget(self) -> None:
        self.running = self.allowed = 0


@asynccontextmanager
async def watching(fl: Fairlead) -> AsyncIterator[Watch]:
    """Count what runs in all cells, as often as possible, during the block."""
    watch = Watch()

    async def look() -> None:
        while True:
            [(running, allowed)] = await fl.database.single(lambda tx: tx.values(RUNNING))
            watch.running, watch.allowed = max(watch.running, running), max(watch.allowed, allowed)

    looking = asyncio.create_task(look())
    try:
        yield watch
        if looking.done():
            looking.result()
    finally:
        looking.cancel()


async def read_queued(fl: Fairlead) -> int:
    [(number,)] = await fl.database.single(
        lambda tx: tx.values(
            "select (select count(*) from fairlead.ready) + (select count(*) from cell_b.ready)"
            " + (select count(*) from cell_c.ready)"
        )
    )
    return int(number)


async def until_queued(fl: Fairlead, most: int) -> None:
    async with asyncio.timeout(SECONDS):
        while await read_queued(fl) > most:
            await asyncio.sleep(0.02)


async def until_seen(fl: Fairlead, watch: Watch, least: int) -> None:
    """Until the watch has seen so many jobs run at the same time, however seldom it looks."""
    async with asyncio.timeout(SECONDS):
        while watch.running < least:
            if await read_queued(fl) < 10:
                await enqueue(fl, 10)
            await asyncio.sleep(0.02)


@contextmanager
def allotting(url: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "tests.allotting", url]
    with subprocess.Popen(argv, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_the_limit_of_a_definition_holds_in_all_cells_together(limited: Fairlead) -> None:
    fl = limited
    await enqueue(fl, 80)
    async with working(fl, concurrency=30), watching(fl) as watch:
        with allotting(fl.database.url) as process:
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.readline)
            await until_queued(fl, 160)
        # killed in any step: what it had begun does not raise the sum
        await until_queued(fl, 100)
        await until_seen(fl, watch, 3)
        assert watch.running <= watch.allowed <= 6
        await set_limit(fl, 9)
        await until_queued(fl, 20)
        assert watch.allowed <= 9
        await set_limit(fl, 3)
        await eventually_allowed(watch, 3)
        watch.forget()
        await enqueue(fl, 10)
        await until_seen(fl, watch, 1)
        await until_queued(fl, 0)
        assert watch.running <= watch.allowed <= 3


async def test_a_new_cell_has_the_limits_of_the_home_cell_before_the_first_round(limited: Fairlead) -> None:
    await add_cell(limited, "d")
    member = await limited.cells.member("d")
    [(most,)] = await member.database.single(
        lambda tx: tx.values("select max_running from cell_d.job_definitions where key = 'limited'")
    )
    assert most == 6


async def eventually_allowed(watch: Watch, number: int) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            watch.forget()
            await asyncio.sleep(0.1)
            if 0 < watch.allowed <= number:
                return


async def test_a_late_round_cannot_raise_what_a_later_one_has_lowered(limited: Fairlead) -> None:
    fl = limited
    member = await fl.cells.member("b")
    definition = await given.definition_id(fl, "limited")
    await member.database.transact(lambda tx: allotments.set_higher(tx, definition, 4, 7))
    assert await member.database.transact(lambda tx: allotments.lower(tx, definition, 1, 9)) == 1
    await member.database.transact(lambda tx: allotments.set_higher(tx, definition, 6, 8))
    assert await member.database.transact(lambda tx: allotments.lower(tx, definition, 0, 8)) is None
    demand = await member.database.single(lambda tx: allotments.read_demand(tx, [definition]))
    assert demand[definition].number == 1


async def test_changes_of_definitions_and_of_the_gate_reach_all_cells(limited: Fairlead) -> None:
    fl = limited
    await fl.pause(definition="limited", note="later")
    async with fl.transaction() as tx:
        await gates.pause(tx, fl.principal, note="closed")
    rounds = CellRounds(fl.cells)
    assert await rounds() > 0
    found = "select (select pause_note from fairlead.job_definitions where key = 'limited'), online, note from fairlead.system"
    member = await fl.cells.member("b")
    assert await member.database.single(lambda tx: tx.values(found)) == [("later", False, "closed")]
