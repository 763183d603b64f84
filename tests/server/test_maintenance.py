"""A server keeps the database in order where no worker process runs."""

import asyncio
from typing import Any
from uuid import UUID

import psycopg
import pytest

from fairlead import Settings
from fairlead.db.database import Database
from fairlead.runtime.maintenance import run_maintenance
from fairlead.store import checks, jobs
from tests import given
from tests.processes import FAIRLEAD, free_port, started, until
from tests.server.world import BASE, world_on
from tests.waiting import SECONDS

QUICK: dict[str, Any] = {"sweep_seconds": 0.1}


async def neglected(database: Database) -> tuple[UUID, UUID]:
    """A database that nothing has maintained: a job whose retention is over, an expired lease, unfolded counts."""
    async with database.transaction() as tx:
        old = await given.age_job(tx, await given.ended_job(tx, "succeeded"), days=40)
        left = await given.running_job(tx)
        await given.end_leases(tx)
        await given.age(tx, "counts", seconds=1200)
    return old, left


async def kept(database: Database, old: UUID, left: UUID) -> None:
    """Until all of it has been seen to."""
    async with asyncio.timeout(SECONDS):
        while True:
            async with database.transaction() as tx:
                gone = await jobs.get(tx, old) is None
                back = (await given.read_job(tx, left)).status == "queued"
                folded = await checks.count_unfolded(tx) == 0
            if gone and back and folded:
                return
            await asyncio.sleep(0.05)


async def test_a_server_alone_folds_retains_and_rescues(database_url: str) -> None:
    async with world_on(database_url, maintenance=True, **QUICK) as world:
        old, left = await neglected(world.fl.database)

        assert (
            await world.client.get(f"{BASE}/healthz")
        ).status_code == 200  # as a mounted application is called

        await kept(world.fl.database, old, left)


@pytest.mark.parametrize("maintains", [True, False])
async def test_it_is_left_to_other_processes_by_the_setting_and_when_it_is_closed(
    database_url: str, *, maintains: bool
) -> None:
    def watches() -> bool:
        return "fairlead-watchdog" in {one.get_name() for one in asyncio.all_tasks()}

    async with world_on(database_url, maintenance=maintains, **QUICK) as world:
        await world.client.get(f"{BASE}/healthz")
        assert watches() == maintains

    assert not watches()


async def test_a_scheduler_maintains_too(database_url: str) -> None:
    settings = Settings(database_url=database_url, **QUICK)
    async with Database(database_url, settings) as database:
        old, left = await neglected(database)

        async with run_maintenance(database):
            await kept(database, old, left)


@pytest.mark.parametrize("command", [("serve", "--port"), ("scheduler",)])
def test_the_command_does_the_duties(database_url: str, command: tuple[str, ...]) -> None:
    argv = [*command, str(free_port())] if "--port" in command else [*command]
    with (
        psycopg.connect(database_url, autocommit=True) as connection,
        started([FAIRLEAD, *argv], env={"FAIRLEAD_DATABASE_URL": database_url}),
    ):
        due = "select from fairlead.duties where name = 'count_history' and due_at > clock_timestamp()"
        until(lambda: connection.execute(due).fetchall(), "the duties")
