"""Keys of the system's own are out of everybody's reach."""

from typing import Any

import psycopg
import pytest

from fairlead import Context, Fairlead
from fairlead.actions import schedule_firing
from fairlead.db.tx import Tx
from fairlead.errors import KeyReserved
from fairlead.model.reserved_key import build_part_key, build_trigger_key
from fairlead.model.trigger import FiringOutcome
from fairlead.store import firings
from tests import given
from tests.given import TENANT
from tests.runs import ANY, published


async def test_a_dedupe_key_of_a_users_cannot_silence_a_schedule(fl: Fairlead) -> None:
    trigger = await fl.database.transact(given.due_trigger)
    for key in (f"trigger:{trigger.id}", str(trigger.id)):
        await fl.enqueue(ANY, tenant=TENANT, dedupe_key=key)
    with pytest.raises(KeyReserved):
        await fl.enqueue(ANY, tenant=TENANT, dedupe_key=build_trigger_key(trigger.id))

    async def fire(tx: Tx) -> Any:
        await schedule_firing.fire_due(tx, given.catalog(), limit=10, grace_seconds=60)
        return await firings.list_recent(tx, [trigger.id], each=1)

    [last] = await fl.database.transact(fire)
    assert last.outcome is FiringOutcome.ENQUEUED


async def test_every_way_in_refuses_a_dedupe_key_that_is_reserved(fl: Fairlead) -> None:
    request = {"definition": ANY, "tenant": TENANT, "dedupe_key": "fairlead:mine"}
    with pytest.raises(KeyReserved, match="fairlead:"):
        await fl.enqueue_many([request])
    async with await psycopg.AsyncConnection.connect(fl.database.url) as connection:
        with pytest.raises(KeyReserved):
            await fl.enqueue(**request, tx=connection)  # type: ignore[arg-type]
    with pytest.raises(psycopg.Error) as refused:
        async with fl.transaction() as tx:
            await tx.run("select fairlead.enqueue('acme', 'anything', dedupe_key => 'fairlead:mine')")
    assert refused.value.diag.message_detail == "key_reserved"


async def test_a_run_with_a_key_of_a_users_cannot_stand_for_one_that_a_job_starts(fl: Fairlead) -> None:
    fl.workflow("w").step("a", ANY)
    started: list[Any] = []

    @fl.job
    async def starter(ctx: Context) -> None:
        started.append(await ctx.start("w"))

    await published(fl)
    job = await starter.enqueue(tenant=TENANT)
    taken = await fl.start("w", tenant=TENANT, key=f"job:{job.id}:start:w#1")
    with pytest.raises(KeyReserved):
        await fl.start("w", tenant=TENANT, key=build_part_key(job.id, "start:w#1"))

    await fl.tick()

    [run] = started
    assert run.id != taken.id
