"""Definitions in the database."""

import asyncio
from functools import partial

from fairlead.db.database import Database
from fairlead.model.definition import DefinitionSpec
from fairlead.store import definitions
from tests.waiting import until_somebody_waits

SERVERS = 8
KEYS = 30


async def test_servers_that_start_at_once_may_all_put_the_same_new_definitions(db: Database) -> None:
    """A definition has two unique columns, of which `on conflict` covers one: the inserts have to take turns."""
    together = asyncio.Barrier(SERVERS)

    async def put_all() -> None:
        for number in range(KEYS):
            await together.wait()
            spec = DefinitionSpec(key=f"new.{number}")
            await db.transact(partial(definitions.upsert, spec=spec))

    async with asyncio.TaskGroup() as group:
        for _ in range(SERVERS):
            group.create_task(put_all())


async def test_inserts_of_the_same_definition_take_turns_before_they_meet_in_an_index(db: Database) -> None:
    spec = DefinitionSpec(key="new")
    async with db.transaction() as first:
        await definitions.upsert(first, spec)
        second = asyncio.create_task(db.transact(partial(definitions.upsert, spec=spec)))
        await until_somebody_waits(first)
        assert await first.values("select distinct locktype from pg_locks where not granted") == [
            ("advisory",)
        ]
    assert await second is None
