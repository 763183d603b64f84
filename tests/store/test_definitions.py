"""Definitions in the database."""

import asyncio
from functools import partial

from fairlead.db.database import Database
from fairlead.model.definition import DefinitionSpec
from fairlead.store import definitions
from tests.waiting import until_somebody_waits


async def test_inserts_of_the_same_definition_take_turns_before_they_meet_in_an_index(db: Database) -> None:
    """A definition has two unique columns, of which `on conflict` covers one: servers that start at once would fail."""
    spec = DefinitionSpec(key="new")
    async with db.transaction() as first:
        await definitions.upsert(first, spec)
        second = asyncio.create_task(db.transact(partial(definitions.upsert, spec=spec)))
        await until_somebody_waits(first)
        assert await first.values("select distinct locktype from pg_locks where not granted") == [
            ("advisory",)
        ]
    assert await second is None
