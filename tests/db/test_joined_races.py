"""Jobs that join a transaction while their tenant or definition is changed by another."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from fairlead import Fairlead, Settings
from fairlead.actions import definitions
from fairlead.errors import TenantMoving
from tests import given
from tests.given import TESTER
from tests.waiting import until_somebody_waits

MOVES_MEANWHILE = """
    create or replace function fairlead.room_of(tenant uuid, more bigint, settings jsonb default '{}') returns jsonb
    language plpgsql volatile as $$
    begin
        update fairlead.tenants t set placement = 'leaving' where t.id = room_of.tenant;
        return null;
    end
    $$
"""


@pytest.fixture
async def fl(database_url: str) -> AsyncIterator[Fairlead]:
    async with Fairlead(settings=Settings(database_url=database_url), actor="tester") as opened:
        yield opened


async def test_a_tenant_that_begins_to_move_after_the_checks_is_refused(
    fl: Fairlead, database_url: str
) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as mine:
        await mine.execute(MOVES_MEANWHILE)

        with pytest.raises(TenantMoving):
            await fl.submit(given.request(), tx=mine)

        [(jobs,)] = await (await mine.execute("select count(*) from fairlead.jobs")).fetchall()
        assert jobs == 0


async def test_a_load_of_which_a_part_is_refused_after_the_checks_ends_the_transaction(
    fl: Fairlead, database_url: str
) -> None:
    first = await psycopg.AsyncConnection.connect(database_url)
    async with first, await psycopg.AsyncConnection.connect(database_url) as second:
        await fl.submit(given.request(dedupe_key="one"), tx=first)
        load = [given.request(dedupe_key="one"), given.request()]
        enqueued = asyncio.create_task(fl.enqueue_many(load, tx=second))
        async with fl.transaction() as tx:
            await until_somebody_waits(tx)
            await definitions.patch(tx, TESTER, "greet", {"is_active": False})
        await first.rollback()

        with pytest.raises(psycopg.errors.TransactionRollback, match="changed at the same time"):
            await enqueued
