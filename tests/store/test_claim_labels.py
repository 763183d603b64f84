"""Labels: a definition's jobs go only to workers that have the required ones, and first to those with the preferred ones."""

import json
from typing import Any

from fairlead.db.tx import Tx
from fairlead.store import queue, workers
from tests import given
from tests.given import OTHER, TENANT
from tests.store.test_claim_fairness import add_tenants, fill

GPU = {"gpu": "true"}


async def set_labels(tx: Tx, column: str, labels: dict[str, str] | None, key: str = "anything") -> None:
    text = None if labels is None else json.dumps(labels)
    await tx.run(f"update fairlead.job_definitions set {column} = %s where key = %s", [text, key])


async def register(tx: Tx, labels: dict[str, str], **options: Any) -> None:
    values = {
        "worker_id": "labelled",
        "hostname": "h",
        "version": "",
        "keys": [],
        "running": 0,
        "concurrency": 4,
    }
    await workers.register(tx, **{**values, "labels": labels, **options})


async def take(tx: Tx, labels: dict[str, str] | None = None, wanted: int = 10, **options: Any) -> list[str]:
    claim = await queue.claim(
        tx, worker="w", wanted=wanted, lease_seconds=600, labels=labels, prefer_seconds=3600, **options
    )
    return sorted(job.definition_key for job in claim.jobs)


async def test_only_workers_with_the_required_labels_claim(tx: Tx) -> None:
    await set_labels(tx, "requires", {**GPU, "region": "eu"})
    await fill(tx, TENANT, 1, definition="anything")
    for labels in (None, GPU, {"gpu": "true", "region": "us"}, {"gpu": "false", "region": "eu"}):
        assert await take(tx, labels) == []
    await fill(tx, TENANT, 1)
    assert await take(tx, GPU) == ["greet"]
    assert await take(tx, {**GPU, "region": "eu", "disk": "ssd"}) == ["anything"]


async def test_many_pairs_that_need_other_labels_are_passed_over(tx: Tx) -> None:
    await set_labels(tx, "requires", GPU)
    slugs = await add_tenants(tx, 40)
    for slug in slugs:
        await fill(tx, slug, 1, definition="anything")
    await fill(tx, slugs[-1], 1)
    assert await take(tx) == ["greet"]
    assert await take(tx) == []
    assert await take(tx, GPU, wanted=50) == ["anything"] * 40


async def test_a_suspect_needs_its_labels(tx: Tx) -> None:
    await set_labels(tx, "requires", GPU)
    await given.queued_job(tx, definition="anything", payload={})
    await given.wait_again(tx, alone=True)
    asked: dict[str, Any] = {"worker": "w", "lease_seconds": 30}
    assert not await queue.has_suspect(tx, **asked)
    assert (await queue.claim_suspect(tx, **asked, idle=True)).jobs == []
    assert await queue.has_suspect(tx, **asked, labels=GPU)
    assert len((await queue.claim_suspect(tx, **asked, idle=True, labels=GPU)).jobs) == 1


async def test_a_host_uses_its_own_labels_whatever_their_types(tx: Tx) -> None:
    await set_labels(tx, "requires", {**GPU, "cores": "8"})
    host = await given.host(tx)
    await fill(tx, TENANT, 1, definition="anything", host=host)
    assert await take(tx, {**GPU, "cores": "8"}, host=host) == []
    await given.set_hosts(tx, labels={"gpu": True, "cores": 8})
    assert await take(tx, host=host) == ["anything"]


async def test_preferred_labels_come_first_while_a_live_worker_has_them(tx: Tx) -> None:
    await set_labels(tx, "prefers", GPU)
    await fill(tx, TENANT, 3, definition="anything")
    assert await take(tx, wanted=1) == ["anything"]  # no live worker has them
    await register(tx, GPU)
    claim = await queue.claim(tx, worker="w", wanted=9, lease_seconds=600, prefer_seconds=3600)
    assert claim.jobs == []
    assert claim.opens_in is not None
    assert 0 < claim.opens_in <= 3600
    assert await take(tx, GPU, wanted=1) == ["anything"]
    # a job that has waited for long enough is for every worker
    await tx.run("update fairlead.ready set scheduled_for = scheduled_for - interval '2 hours'")
    assert await take(tx) == ["anything"]


async def test_jobs_are_not_left_to_a_worker_that_could_not_run_them(tx: Tx) -> None:
    await set_labels(tx, "prefers", GPU)
    for change in (
        {"last_seen_at": "clock_timestamp() - interval '2 minutes'"},
        {"drain_requested_at": "clock_timestamp()"},
        {"queues": "'{greet}'"},
        {"tenant_id": f"(select id from fairlead.tenants where slug = '{OTHER}')"},
        {"concurrency": "0"},
        {"labels": "'{}'"},
    ):
        await fill(tx, TENANT, 1, definition="anything")
        await register(tx, GPU)
        [(column, value)] = change.items()
        await tx.run(f"update fairlead.job_workers set {column} = {value}")
        assert await take(tx) == ["anything"], change
        await workers.remove(tx, "labelled")


async def test_many_pairs_that_are_left_to_others_do_not_hide_the_rest(tx: Tx) -> None:
    await set_labels(tx, "prefers", GPU)
    await register(tx, GPU)
    slugs = await add_tenants(tx, 100)
    for slug in slugs:
        await fill(tx, slug, 1, definition="anything")
    await fill(tx, slugs[-1], 1)
    assert await take(tx) == ["greet"]
    assert await take(tx) == []
    assert len(await take(tx, GPU, wanted=200)) == 100
