"""Leases in a transaction that began long before: the clock counts, not the transaction's start."""

from fairlead.db.tx import Tx
from fairlead.store import queue, rescue
from tests import given


async def test_a_claim_in_an_old_transaction_gets_a_whole_lease(tx: Tx) -> None:
    await given.queued_job(tx)
    [(asked_at,)] = await tx.values("select clock_timestamp()")

    claim = await queue.claim(tx, worker="w", wanted=1, lease_seconds=30)

    [(started_at, seconds)] = await tx.values(
        "select started_at, extract(epoch from expires_at - started_at)::float8 from fairlead.leases where job_id = %s",
        [claim.jobs[0].job_id],
    )
    assert started_at >= asked_at
    assert seconds == 30


async def test_a_heartbeat_in_an_old_transaction_does_not_renew_what_expired_since(tx: Tx) -> None:
    lease = await given.claimed_job(tx)
    await tx.run("update fairlead.leases set expires_at = clock_timestamp()")

    assert await queue.heartbeat(tx, [lease], lease_seconds=30) == {}
    assert list(await rescue.rescue(tx)) == [lease.job_id]


async def test_a_heartbeat_in_an_old_transaction_renews_for_a_whole_lease(tx: Tx) -> None:
    lease = await given.claimed_job(tx)
    [(asked_at,)] = await tx.values("select clock_timestamp()")

    assert list(await queue.heartbeat(tx, [lease], lease_seconds=30)) == [lease]

    [(seconds,)] = await tx.values(
        "select extract(epoch from expires_at - %s)::float8 from fairlead.leases", [asked_at]
    )
    assert seconds >= 30
