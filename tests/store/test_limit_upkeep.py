"""Upkeep of rates and limits by key: held jobs whose key is free go on, and unused rows are deleted, in bounded rounds."""

import json
from typing import Any
from uuid import UUID

import pytest

from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.runtime.duties import Duties
from fairlead.store import limit_upkeep, queue
from fairlead.store.limit_upkeep import LimitPlace, read_place
from tests import given

ONE: dict[str, Any] = {"pointer": "/name", "max_running": 1}
SLOW = {"limit": 1, "per_seconds": 3600, "burst": 1}


async def set_by_key(tx: Tx, rule: dict[str, Any] | None) -> None:
    """Without the action, which would let jobs go."""
    await given.set_definition(tx, "greet", by_key=rule)


async def hold(tx: Tx, *names: str, jobs: int = 3) -> list[UUID]:
    """One running job for each name, and the others held back."""
    made = [await given.queued_job(tx, payload={"name": name}) for name in names for _ in range(jobs)]
    again = True
    while again:
        again = (await queue.claim(tx, worker="w", wanted=100, lease_seconds=600)).again
    return made


async def count_held(tx: Tx) -> int:
    [(number,)] = await tx.values("select count(*) from fairlead.later where held")
    return int(number)


async def release(tx: Tx, *, look: int = 100) -> int:
    released, place = 0, LimitPlace()
    while True:
        done = await limit_upkeep.release_free_keys(tx, place, look=look)
        released += done.released
        if done.place is None:
            return released
        place = done.place


async def test_keys_that_are_busy_hold_their_jobs_back(tx: Tx) -> None:
    await set_by_key(tx, ONE)
    await hold(tx, "a", "b")
    assert await count_held(tx) == 4
    assert await release(tx) == 0


@pytest.mark.parametrize("look", [1, 2, 100])
async def test_the_next_jobs_of_every_free_key_go_on(tx: Tx, look: int) -> None:
    await set_by_key(tx, ONE)
    await hold(tx, "a", "b", "c")
    await tx.run("delete from fairlead.leases")  # their ends were lost
    assert await release(tx, look=look) == 3
    assert (await given.count(tx, "ready"), await count_held(tx)) == (3, 3)
    assert await release(tx, look=look) == 0  # the ready ones take the room


async def test_a_key_with_a_closed_rate_holds_its_jobs_back_until_there_is_a_token(tx: Tx) -> None:
    await set_by_key(tx, {"pointer": "/name", "rate": SLOW})
    await hold(tx, "a")
    await tx.run("update fairlead.rate_buckets set wake_at = null")
    assert await release(tx) == 0
    [(wakes,)] = await tx.values("select wake_at - counted_at from fairlead.rate_buckets")
    assert wakes.total_seconds() == 3600
    await tx.run("update fairlead.rate_buckets set counted_at = clock_timestamp() - interval '1 day'")
    assert (await release(tx), await count_held(tx)) == (1, 1)


async def test_in_strict_order_held_jobs_wait_for_the_retry_of_an_older_one(tx: Tx) -> None:
    await set_by_key(tx, {**ONE, "fifo": True})
    made = await hold(tx, "a")
    await tx.run("delete from fairlead.leases")
    await tx.run("update fairlead.later set held = false where job_id = %s", [made[1]])
    assert await release(tx) == 0
    await tx.run("update fairlead.later set held = true")
    assert await release(tx) == 1


async def test_keys_that_a_definition_limits_no_longer_are_free(tx: Tx) -> None:
    await set_by_key(tx, ONE)
    await hold(tx, "a", "b", jobs=5)
    await set_by_key(tx, {**ONE, "max_running": 3})
    assert (await release(tx), await count_held(tx)) == (4, 4)
    await set_by_key(tx, None)
    assert (await release(tx), await count_held(tx)) == (4, 0)


async def remove_all(tx: Tx, *, look: int) -> None:
    place: LimitPlace | None = LimitPlace()
    while place is not None:
        place = await limit_upkeep.remove_full_buckets(tx, place, look=look, seconds=600)
    place = LimitPlace()
    while place is not None:
        place = await limit_upkeep.remove_unused_locks(tx, place, look=look)


@pytest.mark.parametrize("look", [1, 100])
async def test_buckets_that_are_full_for_long_and_unused_locks_are_deleted(tx: Tx, look: int) -> None:
    await set_by_key(tx, {"pointer": "/name", "max_running": 5, "rate": {**SLOW, "burst": 2}})
    await given.set_tenant(tx, rate={**SLOW, "burst": 100})
    await hold(tx, "a", "b", jobs=1)
    assert (await given.count(tx, "rate_buckets"), await given.count(tx, "key_locks")) == (3, 2)
    await remove_all(tx, look=look)
    assert (await given.count(tx, "rate_buckets"), await given.count(tx, "key_locks")) == (3, 2)

    # full, but its keys have running jobs
    await tx.run("update fairlead.rate_buckets set counted_at = clock_timestamp() - interval '1 day'")
    await remove_all(tx, look=look)
    assert (await given.count(tx, "rate_buckets"), await given.count(tx, "key_locks")) == (2, 2)

    await tx.run("delete from fairlead.leases")  # without a release
    await remove_all(tx, look=look)
    await remove_all(tx, look=look)
    assert (await given.count(tx, "rate_buckets"), await given.count(tx, "key_locks")) == (0, 0)


@pytest.mark.parametrize(
    "column", ["system.rate", "tenants.rate", "job_definitions.rate", "job_definitions.rate_per_tenant"]
)
async def test_a_bucket_is_unused_when_it_is_full_by_the_rate_of_its_scope(tx: Tx, column: str) -> None:
    table, name = column.split(".")
    definition = await given.definition_id(tx) if table == "job_definitions" else UUID(int=0)
    tenant = await given.tenant_id(tx) if column.endswith(("tenants.rate", "per_tenant")) else UUID(int=0)

    async def is_unused(tokens: int) -> bool:
        unused = "select fairlead.is_unused_bucket(%s, %s, %s, %s, clock_timestamp() - interval '1 day', 600)"
        [(answer,)] = await tx.values(unused, [definition, tenant, UUID(int=0), tokens])
        return bool(answer)

    assert await is_unused(0)  # there is no rate
    rate = json.dumps({"limit": 1, "per_seconds": 2_592_000, "burst": 100})
    await tx.run(f"update fairlead.{table} set {name} = %s", [rate])
    assert not await is_unused(0)
    assert await is_unused(100)


async def test_a_bucket_that_a_claim_holds_is_kept(db: Database) -> None:
    async with db.transaction() as tx:
        await given.set_tenant(tx, rate={**SLOW, "burst": 100})
        await hold(tx, "a", jobs=1)
        await tx.run("update fairlead.rate_buckets set counted_at = clock_timestamp() - interval '1 day'")
    async with db.transaction() as claiming, db.transaction() as tx:
        await claiming.values("select from fairlead.rate_buckets for update")
        await remove_all(tx, look=100)
        assert await given.count(tx, "rate_buckets") == 1


async def test_a_key_that_a_claim_begins_to_use_keeps_its_bucket(db: Database) -> None:
    async with db.transaction() as tx:
        await set_by_key(tx, {"pointer": "/name", "rate": SLOW})
        made = await hold(tx, "a", jobs=1)
        await tx.run("delete from fairlead.leases")
        await tx.run("delete from fairlead.key_locks")
        await tx.run("delete from fairlead.job_records where id = any(%s)", [made])
        await tx.run("delete from fairlead.counts")
        await tx.run("update fairlead.rate_buckets set counted_at = clock_timestamp() - interval '1 day'")
        await given.queued_job(tx, payload={"name": "a"})
    async with db.transaction() as claiming, db.transaction() as tx:
        [job] = (await queue.claim(claiming, worker="w", wanted=1, lease_seconds=600)).jobs
        assert job.payload == {"name": "a"}
        await remove_all(tx, look=100)
        assert await given.count(tx, "rate_buckets") == 1


async def test_the_duties_walk_in_rounds_and_remember_their_place(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.runtime.duties.LIMIT_ROWS", 1)
    monkeypatch.setattr("fairlead.runtime.duties.LOOKING_SECONDS", 0.0)
    async with db.transaction() as tx:
        await set_by_key(tx, {"pointer": "/name", "rate": SLOW})
        await hold(tx, "a", "b", jobs=1)
        await tx.run("delete from fairlead.leases")
        await tx.run("delete from fairlead.key_locks")
        await tx.run("update fairlead.rate_buckets set counted_at = clock_timestamp() - interval '1 day'")
        await tx.run("delete from fairlead.job_records")
        await tx.run("delete from fairlead.counts")
    duties = Duties(db, retention_days=0, audit_retention_days=0)
    while await duties() == 0:
        pass
    async with db.transaction() as tx:
        assert await given.count(tx, "rate_buckets") == 0
        [(place,)] = await tx.values("select place from fairlead.duties where name = 'limit_rows'")
        assert place is None


def test_a_place_survives_being_stored() -> None:
    place = LimitPlace(UUID(int=1), UUID(int=2), UUID(int=3))
    assert read_place(str(place)) == place
    assert read_place(None) == read_place("") == LimitPlace()
