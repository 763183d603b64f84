"""What Prometheus is told, at what cost, and what a request leaves in the log."""

import asyncio
from typing import Any
from uuid import uuid4

import httpx2
import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import LogCapture, capture_logs

from fairlead import Context, Fairlead, Settings
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.outcome import Backoff, Failed, Lost, RetryBudget, Succeeded, decide
from fairlead.runtime import meter as metering
from fairlead.server import metrics as scraping
from fairlead.store import metrics, queue, retention
from tests import given
from tests.processes import free_port
from tests.server.world import BASE, World, world_on
from tests.waiting import SECONDS
from tests.working import working

METRICS = f"{BASE}/metrics"
DAY = 86_400


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    return samples(text)[name, frozenset(labels.items())]


async def scraped(world: World, **asking: Any) -> str:
    """The figures as they are now."""
    world.app.state.metrics._fresh_until = float("-inf")
    answer = await world.call("GET", METRICS, **{"who": "super_admin", **asking})
    assert answer.status_code == 200, answer.text
    return answer.text


# Who may


async def test_nobody_gets_them_unless_the_settings_say_so(shared_world: World) -> None:
    assert await shared_world.status("GET", METRICS, who=None) == 401


async def test_in_public_no_tenant_is_named(database_url: str) -> None:
    async with world_on(database_url, metrics_public=True) as world:
        await world.fl.enqueue("greet", tenant=given.TENANT, payload={"name": "Ada"})
        await world.fl.enqueue("greet", tenant=given.OTHER, payload={"name": "Ada"})
        text = await scraped(world, who=None)

    assert value(text, "fairlead_jobs", tenant="_all", status="queued") == 2
    assert given.TENANT not in text
    assert given.OTHER not in text


# What


async def test_depth_and_age_are_told_by_tenant_and_status(world: World) -> None:
    async with world.fl.database.transaction() as tx:
        for _ in range(3):
            await given.queued_job(tx, priority=10)
        await given.wait_longer(tx, await given.queued_job(tx, priority=20), seconds=DAY)
        await given.queued_job(tx, tenant=given.OTHER, definition="anything")
        await given.ended_job(tx, "dead_letter")
    text = await scraped(world)

    assert value(text, "fairlead_jobs", tenant=given.TENANT, status="queued") == 4
    assert value(text, "fairlead_jobs", tenant=given.TENANT, status="dead_letter") == 1
    assert value(text, "fairlead_jobs", tenant=given.OTHER, status="queued") == 1
    assert DAY <= value(text, "fairlead_oldest_queued_seconds", tenant=given.TENANT) < 2 * DAY
    assert value(text, "fairlead_oldest_queued_seconds", tenant=given.OTHER) < DAY
    assert value(text, "fairlead_online") == 1


async def test_the_last_minute_tells_what_came_and_what_ended(world: World) -> None:
    async with world.fl.database.transaction() as tx:
        for _ in range(3):
            await given.queued_job(tx)
        await given.ended_job(tx, "succeeded")
        await given.ended_job(tx, "failed")
        await tx.run("update fairlead.counts set minute = '2000-01-01Z'")
        await given.queued_job(tx)
    text, before, after = "", None, None
    while before is None or before != after:  # a minute began meanwhile
        before = await world.fl.database.transact(set_back_all_but_the_last)
        text = await scraped(world)
        after = await world.fl.database.transact(read_minute)

    told = {
        event: value(text, "fairlead_jobs_last_minute", tenant=given.TENANT, event=event)
        for event in scraping.EVENTS
    }
    assert told == {"enqueued": 5, "succeeded": 1, "failed": 1, "dead_letter": 0, "canceled": 0}


async def set_back_all_but_the_last(tx: Tx) -> Any:
    """Let all be counted in the minute before this one, but for the last in this one; this minute."""
    minute = await read_minute(tx)
    await tx.run(
        "update fairlead.counts set minute = %(minute)s - case when minute = (select max(minute) from fairlead.counts) "
        "then interval '0' else interval '1 minute' end",
        {"minute": minute},
    )
    return minute


async def read_minute(tx: Tx) -> Any:
    [(minute,)] = await tx.values("select date_trunc('minute', clock_timestamp())")
    return minute


async def test_every_job_that_came_is_counted_and_stays_so(world: World) -> None:
    """Whoever enqueued it, and whatever became of it: also when it is retried, and when it is gone."""
    async with world.fl.database.transaction() as tx:
        retried = await given.ended_job(tx, "failed")
        await given.ended_job(tx, "succeeded")
    await world.fl.retry(retried)
    await world.fl.enqueue("greet", tenant=given.TENANT, payload={"name": "Ada"}, dedupe_key="k")
    await world.fl.enqueue("greet", tenant=given.TENANT, payload={"name": "Ada"}, dedupe_key="k")
    await world.fl.enqueue_many([given.request(tenant=given.OTHER) for _ in range(2)])
    before = await scraped(world)
    for _ in range(2):
        async with world.fl.database.transaction() as tx:
            await given.age_job(tx, await given.ended_job(tx, "succeeded"), days=40)
            assert (await retention.remove(tx, days=30)).removed == 1
    after = await scraped(world)

    for text, here in ((before, 3), (after, 5)):
        assert value(text, "fairlead_jobs_enqueued_total", tenant=given.TENANT) == here
        assert value(text, "fairlead_jobs_enqueued_total", tenant=given.OTHER) == 2
        assert value(text, "fairlead_jobs_enqueued_total", tenant="_all") == here + 2


async def test_tenants_beyond_the_deepest_are_added_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraping, "MOST_TENANTS", 1)
    for tenant, number in ((given.TENANT, 5), (given.OTHER, 2)):
        await world.fl.enqueue_many([given.request(tenant=tenant) for _ in range(number)])
    text = await scraped(world)

    assert value(text, "fairlead_jobs", tenant=given.TENANT, status="queued") == 5
    assert value(text, "fairlead_jobs", tenant="_others", status="queued") == 2
    assert given.OTHER not in text


async def test_requests_are_timed_by_route_and_not_by_path(world: World) -> None:
    job = (await world.fl.enqueue("greet", tenant=given.TENANT, payload={"name": "Ada"})).id
    await world.call("GET", f"/jobs/{job}")
    await world.call("GET", f"/jobs/{uuid4()}")
    await world.call("GET", f"{BASE}/whatever/{uuid4()}")
    text = await scraped(world)

    count = "fairlead_http_request_duration_seconds_count"
    assert value(text, count, method="GET", route="/api/v1/jobs/{job_id}", status="200") == 1
    assert value(text, count, method="GET", route="/api/v1/jobs/{job_id}", status="404") == 1
    assert value(text, count, method="GET", route="(none)", status="404") == 1
    assert str(job) not in text


async def test_a_scrape_reads_no_jobs(db: Database) -> None:
    """Whatever the number of jobs, only counts, heads of the queue and the small tables are read."""
    async with db.transaction() as tx:
        job = await given.queued_job(tx)
        tenant = (await given.read_job(tx, job)).tenant_id
        await tx.prefer_indexes()
        plans = [
            await tx.values("explain " + metrics.sql.levels),
            await tx.values("explain " + metrics.sql.oldest, {"tenants": [tenant], "most": 10}),
            await tx.values("explain " + metrics.sql.fleet),
        ]
    text = "\n".join(line for plan in plans for (line,) in plan)

    assert " on jobs" not in text
    assert "Seq Scan on ready" not in text
    assert "ready_by_tenant" in text


# Of a worker


async def test_a_worker_tells_of_its_batches_runs_and_waits(settings: Settings) -> None:
    port = free_port()
    own = Settings(database_url=settings.database_url, metrics_port=port, sweep_seconds=0.2)
    fl = Fairlead(settings=own, actor="tester")

    @fl.job(key="measured", max_attempts=1)
    async def measured(n: int) -> None:
        if n == 0:
            raise ValueError(n)

    async with fl:
        await fl.enqueue_many([measured.with_arguments(tenant=given.TENANT, n=n) for n in range(5)])
        async with fl.transaction() as tx:
            await given.running_job(tx)
            await given.end_leases(tx)
        async with working(fl), httpx2.AsyncClient() as client, asyncio.timeout(SECONDS):
            while True:
                try:
                    text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
                except httpx2.TransportError:
                    text = ""
                # attempts are counted last of all that is told of them
                ended = [n for (name, _), n in samples(text).items() if name == "fairlead_attempts_total"]
                if sum(ended) == 5 and value(text, "fairlead_leases_lost_total") == 1:
                    break
                await asyncio.sleep(0.05)

    of_all = {"definition": "measured"}
    assert (
        value(text, "fairlead_attempts_total", attempt_status="succeeded", status="succeeded", **of_all) == 4
    )
    assert (
        value(text, "fairlead_attempts_total", attempt_status="failed", status="dead_letter", **of_all) == 1
    )
    assert value(text, "fairlead_run_seconds_count", **of_all) == 5
    assert value(text, "fairlead_claim_batch_size_sum") == 5
    assert value(text, "fairlead_finish_batch_size_sum") == 5
    assert value(text, "fairlead_queue_seconds_count") == 5
    assert value(text, "fairlead_stale_writes_refused_total") == 0


async def test_a_second_process_takes_the_next_port(fl: Fairlead) -> None:
    metrics = metering.WorkerMetrics()
    port = free_port()
    with (
        metering.expose_metrics(metrics, "127.0.0.1", port) as first,
        metering.expose_metrics(metrics, "127.0.0.1", port) as second,
    ):
        assert first == port
        assert second > port


# In the log


async def test_a_request_is_one_line_without_what_it_carried(world: World) -> None:
    with capture_logs() as lines:
        await world.call("GET", "/jobs?correlation_id=canary-query")
        await world.call(
            "POST", "/jobs", json={"definition_key": "greet", "payload": {"name": "canary-body"}}
        )
        await world.call("GET", "/jobs", who=None, headers={"Authorization": "Bearer canary-header"})
    told = [line for line in lines if line["event"] == "request"]

    assert [(line["method"], line["route"], line["status"]) for line in told] == [
        ("GET", "/api/v1/jobs", 200),
        ("POST", "/api/v1/jobs", 201),
        ("GET", "/api/v1/jobs", 401),
    ]
    assert told[0]["tenant_id"] == str(world.tenants[given.TENANT])
    assert told[0]["actor"] == f"token:{given.TENANT}.operator"
    assert told[2]["actor"] is None
    assert told[0]["duration_ms"] > 0
    assert "canary" not in str(lines)


async def test_what_a_job_logs_says_whose_it_is_and_where_it_ran(settings: Settings) -> None:
    fl = Fairlead(settings=settings, actor="tester")

    @fl.job(key="chatty")
    def chatty(ctx: Context) -> None:
        ctx.log.info("from a thread")

    captured = LogCapture()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, captured])
    async with fl:
        job = await chatty.enqueue(tenant=given.TENANT)
        async with working(fl):
            await job.result(timeout=SECONDS)
    [line] = [line for line in captured.entries if line["event"] == "from a thread"]

    assert line["job_id"] == str(job.id)
    assert (line["definition_key"], line["attempt_no"]) == ("chatty", 1)
    assert line["tenant_id"]
    assert line["worker_id"].count(":") == 2


async def test_what_became_of_runs_is_counted_by_tenant(world: World) -> None:
    async with world.fl.database.transaction() as tx:
        for outcome in (Succeeded(None), Failed("x", "x"), Failed("x", "x", retryable=False), Lost()):
            await given.queued_job(tx)
            claim = await queue.claim(tx, worker="w", wanted=1, lease_seconds=30)
            change = decide(RetryBudget(3, 0, 0, Backoff()), outcome)
            await queue.finish(tx, [(claim.lease(claim.jobs[0]), change)], actor="w")
    wanted = {"succeeded": 1, "failed": 1, "dead_letter": 0, "retried": 2, "lost": 1}

    text = await scraped(world)

    for tenant in (given.TENANT, "_all"):
        assert {
            end: value(text, "fairlead_runs_total", tenant=tenant, outcome=end) for end in wanted
        } == wanted


async def test_quantiles_of_waiting_and_running_are_told_by_tenant_and_definition(world: World) -> None:
    async with world.fl.database.transaction() as tx:
        for n in range(1, 101):
            job_id = await given.ended_job(tx, "succeeded", definition="anything")
            await given.set_attempt(tx, job_id, queue_ms=n * 1000, duration_ms=n * 10)
    text = await scraped(world)
    await given.set_attempt(world, queue_ms=3, duration_ms=20)  # as usage has them

    labels = {"tenant": given.TENANT, "definition": "anything"}
    assert value(text, "fairlead_recent_queue_seconds", **labels, quantile="0.5") == 50.5
    assert 95 <= value(text, "fairlead_recent_queue_seconds", **labels, quantile="0.95") <= 96
    assert value(text, "fairlead_recent_run_seconds", **labels, quantile="0.5") == 0.505


@pytest.mark.parametrize("newer", [0, 6])
async def test_plain_successes_are_sampled_also_behind_newer_jobs(
    world: World, monkeypatch: pytest.MonkeyPatch, newer: int
) -> None:
    monkeypatch.setattr(metrics, "RECENT_LOOK", 5)
    async with world.fl.database.transaction() as tx:
        for _ in range(3):
            await given.queued_job(tx, definition="anything")
        claim = await queue.claim(tx, worker="w", wanted=3, lease_seconds=30)
        plain = decide(RetryBudget(3, 0, 0, Backoff()), Succeeded(None))
        await queue.finish(tx, [(claim.lease(job), plain) for job in claim.jobs], actor="w")
        assert await given.count(tx, "job_attempts") == 0
        for _ in range(newer):
            await given.queued_job(tx, definition="anything")

    text = await scraped(world)

    labels = {"tenant": given.TENANT, "definition": "anything"}
    assert value(text, "fairlead_recent_queue_seconds", **labels, quantile="0.5") >= 0
    assert value(text, "fairlead_recent_run_seconds", **labels, quantile="0.99") >= 0
