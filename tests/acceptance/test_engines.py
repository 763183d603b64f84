"""The contract of delivery engines: the same for each of them, through `fairlead bridge` and the HTTP API.

Most checks run at the same time with one broker, server and bridge, since starting these takes longest. Those that kill
something come after them.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from nats.aio.client import Client as NatsClient

from tests import given
from tests.acceptance.engine_clients import Client, Delivery, Http
from tests.acceptance.engine_site import ENGINES, Site, skip_without
from tests.brokers import NATS_MAX_PAYLOAD
from tests.waiting import SECONDS

Work = Callable[[Delivery], Awaitable[None]]


class Stage:
    """A site with a worker whose work each check decides for its own jobs, by the `case` in their payloads."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.client: Client
        self.http: Http = site.open_http()
        self._works: dict[str, Work] = {}
        self.deliveries: dict[str, list[Delivery]] = defaultdict(list)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        tasks: set[asyncio.Task[None]] = set()

        async def begin(delivery: Delivery) -> None:
            case = delivery.body["payload"]["case"]
            self.deliveries[case].append(delivery)
            # a worker that waits must not keep the others waiting
            task = asyncio.ensure_future(self._works[case](delivery))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        async with self.site.open_worker(begin) as self.client:
            try:
                yield
            finally:
                ending = list(tasks)
                for task in ending:
                    task.cancel()
                await asyncio.gather(*ending, return_exceptions=True)
                await self.http.close()

    async def enqueue(self, case: str, work: Work, definition: str = "carried", **payload: Any) -> str:
        self._works[case] = work
        return await self.site.enqueue(definition, case=case, **payload)

    async def succeed(self, delivery: Delivery, output: Any = None) -> None:
        await self.client.report(delivery, status="succeeded", output=output)
        await delivery.done()

    async def hold(self, delivery: Delivery) -> None:
        """Do nothing: the check itself goes on with the delivery."""

    async def nth_delivery(self, case: str, number: int) -> Delivery:
        async with asyncio.timeout(SECONDS):
            while len(self.deliveries[case]) < number:
                await asyncio.sleep(0.02)
        return self.deliveries[case][number - 1]

    async def first_deliveries(self, case: str, jobs: Sequence[str]) -> list[Delivery]:
        """The first delivery of each of these jobs. On a busy machine some are delivered again before others come."""
        async with asyncio.timeout(SECONDS):
            while set(jobs) > (first := self._find_first(case)).keys():
                await asyncio.sleep(0.02)
        return [first[job_id] for job_id in jobs]

    def _find_first(self, case: str) -> dict[str, Delivery]:
        return {one.body["job_id"]: one for one in reversed(self.deliveries[case])}


@pytest.mark.parametrize(
    "engine",
    [engine if engine == "nats" else pytest.param(engine, marks=pytest.mark.thorough) for engine in ENGINES],
)
async def test_an_engine_keeps_the_contract(
    engine: str, database_url: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    skip_without(engine)
    async with Site(engine, database_url, tmp_path) as site:
        stage = Stage(site)
        async with stage.open():
            ended = await asyncio.gather(*(check(stage) for check in CHECKS), return_exceptions=True)
            for check, error in zip(CHECKS, ended, strict=True):
                with subtests.test(check.__name__):
                    if error is not None:
                        raise error
            for check in KILLS:
                with subtests.test(check.__name__):
                    await check(stage)


# Outcomes


async def a_success_brings_its_output(stage: Stage) -> None:
    async def work(delivery: Delivery) -> None:
        assert delivery.body["tenant"] == given.TENANT
        assert delivery.body["definition_key"] == "carried"
        await stage.succeed(delivery, {"doubled": delivery.body["payload"]["n"] * 2})

    job_id = await stage.enqueue("success", work, n=21)

    job = await stage.site.end_of(job_id)
    assert (job["status"], job["output"]) == ("succeeded", {"doubled": 42})
    assert await stage.site.attempts_of(job_id) == ["succeeded"]


async def a_failure_is_retried(stage: Stage) -> None:
    async def work(delivery: Delivery) -> None:
        if delivery.body["attempt_no"] == 1:
            error = {"type": "Broken", "message": "the belt broke", "traceback": None}
            await stage.client.report(delivery, status="failed", error=error)
            await delivery.done()
        else:
            await stage.succeed(delivery)

    job_id = await stage.enqueue("retry", work)

    assert (await stage.site.end_of(job_id))["status"] == "succeeded"
    assert await stage.site.attempts_of(job_id) == ["failed", "succeeded"]


async def a_fatal_failure_ends_the_job(stage: Stage) -> None:
    async def work(delivery: Delivery) -> None:
        error = {"type": "NoSuchCustomer", "message": "7 is unknown", "traceback": "at line 1"}
        await stage.client.report(delivery, status="failed", error=error, retryable=False)
        await delivery.done()

    job = await stage.site.end_of(await stage.enqueue("fatal", work))

    assert (job["status"], job["last_error"]) == ("failed", "NoSuchCustomer: 7 is unknown")


async def progress_is_seen_while_the_work_goes_on(stage: Stage) -> None:
    job_id = await stage.enqueue("progress", stage.hold)
    delivery = await stage.nth_delivery("progress", 1)

    await stage.client.report(delivery, status="progress", percent=40, message="washed")

    await stage.site.wait_for(
        job_id, lambda job: (job["progress"] or {}).get("percent") == 40, "its progress"
    )
    await stage.succeed(delivery)
    assert (await stage.site.end_of(job_id))["status"] == "succeeded"


async def a_message_that_is_no_report_blocks_nothing(stage: Stage) -> None:
    await stage.client.spoil()
    job_id = await stage.enqueue("after the bad one", stage.succeed)
    assert (await stage.site.end_of(job_id))["status"] == "succeeded"


async def a_payload_that_is_too_large_fails_clearly(stage: Stage) -> None:
    job_id = await stage.enqueue("large", stage.succeed, text="x" * NATS_MAX_PAYLOAD)

    job = await stage.site.end_of(job_id)

    assert job["status"] == "failed"
    assert job["last_error"].startswith("NotDeliverable: Its message has "), job["last_error"]
    assert await stage.site.attempts_of(job_id) == ["failed"]


# Deliveries that are repeated, late or lost


async def a_message_that_is_delivered_twice_has_one_outcome(stage: Stage) -> None:
    async def work(delivery: Delivery) -> None:
        if delivery is stage.deliveries["twice"][0]:
            await stage.client.report(delivery, status="succeeded", output=1)
            await delivery.again()
        else:
            await stage.succeed(delivery, 2)

    job_id = await stage.enqueue("twice", work)

    await stage.nth_delivery("twice", 2)
    assert (await stage.site.end_of(job_id))["output"] == 1
    # a later report comes behind the second one
    after = await stage.enqueue("after twice", stage.succeed)
    await stage.site.end_of(after)
    assert (await stage.site.end_of(job_id))["output"] == 1
    assert await stage.site.attempts_of(job_id) == ["succeeded"]


async def a_forged_result_is_refused(stage: Stage) -> None:
    """Of somebody who knows the job and its attempt, or has an attempt of another job."""
    await stage.site.end_of(await stage.enqueue("forging", stage.succeed))
    other = await stage.nth_delivery("forging", 1)
    job_id = await stage.enqueue("forged", stage.hold)
    delivery = await stage.nth_delivery("forged", 1)
    for token in (str(uuid4()), other.body["lease_token"]):
        forged = delivery._replace(body=delivery.body | {"lease_token": token})
        for report in ({"status": "progress", "percent": 9}, {"status": "succeeded", "output": "forged"}):
            answer = await stage.client.report(forged, **report)
            assert answer in (None, 409)
    await stage.succeed(delivery, "of its worker")

    assert (await stage.site.end_of(job_id))["output"] == "of its worker"
    assert await stage.site.attempts_of(job_id) == ["succeeded"]


async def the_result_of_a_lost_attempt_is_refused(stage: Stage) -> None:
    job_id = await stage.enqueue("late", stage.hold)
    late = await stage.nth_delivery("late", 1)
    await stage.site.exceed_time_limit(job_id)

    current = late
    number = 1
    while current.body["attempt_no"] == 1:
        number += 1
        current = await stage.nth_delivery("late", number)
    status = await stage.client.report(late, status="succeeded", output="of the lost attempt")
    assert status in (None, 409)
    await stage.succeed(current, "of the second attempt")

    job = await stage.site.end_of(job_id)
    assert job["output"] == "of the second attempt"
    assert await stage.site.attempts_of(job_id) == ["timeout", "succeeded"]


async def a_worker_that_reports_nothing_costs_one_attempt(stage: Stage) -> None:
    async def work(delivery: Delivery) -> None:
        if delivery.body["attempt_no"] == 1:
            await delivery.done()
        else:
            await stage.succeed(delivery)

    job_id = await stage.enqueue("silent", work)
    if stage.site.engine == "sqs":  # it cannot tell that the message is gone: the time limit ends the attempt
        await stage.nth_delivery("silent", 1)
        await stage.site.exceed_time_limit(job_id)

    assert (await stage.site.end_of(job_id))["status"] == "succeeded"
    first = "timeout" if stage.site.engine == "sqs" else "failed"
    assert await stage.site.attempts_of(job_id) == [first, "succeeded"]


# Cancels


async def a_job_that_no_worker_has_begun_is_canceled(stage: Stage) -> None:
    site = stage.site
    job_id = await stage.enqueue("canceled early", stage.hold, "idle")
    await site.is_handed_over(job_id)

    await site.ask("POST", f"/jobs/{job_id}/cancel")

    if site.engine == "sqs":  # it cannot take a message back: the worker learns it
        job = await site.ask("GET", f"/jobs/{job_id}")
        assert (job["status"], job["cancel_requested_at"] is not None) == ("running", True)
    else:
        # before the bridge gives up on a worker that was told to stop
        async with asyncio.timeout(SECONDS):
            assert (await site.end_of(job_id))["status"] == "canceled"
        assert stage.deliveries["canceled early"] == []


async def a_running_job_is_canceled_by_its_worker(stage: Stage) -> None:
    job_id = await stage.enqueue("canceled late", stage.hold)
    delivery = await stage.nth_delivery("canceled late", 1)

    async with hear_signal(stage, delivery) as signal:
        await stage.site.ask("POST", f"/jobs/{job_id}/cancel")
        while not (await stage.http.post(delivery, "heartbeat")).json()["cancel_requested"]:
            await asyncio.sleep(0.05)
        await asyncio.wait_for(signal, SECONDS)
    answer = await stage.http.post(delivery, "release")
    await delivery.done()

    # a bridge does not wait for ever for a worker on a busy machine
    assert answer.status_code == 409 or answer.json()["status"] == "canceled"
    assert (await stage.site.end_of(job_id))["status"] == "canceled"


@asynccontextmanager
async def hear_signal(stage: Stage, delivery: Delivery) -> AsyncIterator[Awaitable[None]]:
    """With NATS, the worker may also listen for the cancel."""
    if stage.site.engine != "nats":
        yield asyncio.sleep(0)
        return
    client = NatsClient()
    await client.connect(f"nats://127.0.0.1:{stage.site.broker.port}")
    try:
        body = delivery.body
        subject = f"{stage.site.prefix}.cancel.{body['job_id']}-{body['attempt_no']}"
        subscription = await client.subscribe(subject)
        await client.flush()

        async def heard() -> None:
            await subscription.next_msg(timeout=SECONDS)

        yield heard()
    finally:
        await client.close()


# What is killed


async def a_bridge_that_is_killed_loses_nothing_and_repeats_nothing(stage: Stage) -> None:
    jobs = [await stage.enqueue("killed bridge", stage.hold, n=number) for number in range(5)]
    deliveries = await stage.first_deliveries("killed bridge", jobs)

    stage.site.bridges[-1].kill()
    for delivery in deliveries[:3]:
        await stage.succeed(delivery, "while no bridge ran")
    stage.site.start_bridge()
    for delivery in deliveries[3:]:
        await stage.succeed(delivery, "afterwards")

    for job_id in jobs:
        assert (await stage.site.end_of(job_id))["status"] == "succeeded"
        assert await stage.site.attempts_of(job_id) == ["succeeded"]


async def an_outage_of_the_engine_is_ridden_out(stage: Stage) -> None:
    site = stage.site
    site.broker.kill()
    jobs = [await stage.enqueue("outage", stage.succeed, n=number) for number in range(5)]
    # a round of handing over has failed
    await asyncio.to_thread(site.bridges[-1].says, "engine_failed")

    await asyncio.to_thread(site.broker.start)

    for job_id in jobs:
        assert (await site.end_of(job_id))["status"] == "succeeded"
        assert await site.attempts_of(job_id) == ["succeeded"]


CHECKS = (
    a_success_brings_its_output,
    a_failure_is_retried,
    a_fatal_failure_ends_the_job,
    progress_is_seen_while_the_work_goes_on,
    a_message_that_is_no_report_blocks_nothing,
    a_payload_that_is_too_large_fails_clearly,
    a_message_that_is_delivered_twice_has_one_outcome,
    the_result_of_a_lost_attempt_is_refused,
    a_worker_that_reports_nothing_costs_one_attempt,
    a_job_that_no_worker_has_begun_is_canceled,
    a_running_job_is_canceled_by_its_worker,
    a_forged_result_is_refused,
)
KILLS = (
    a_bridge_that_is_killed_loses_nothing_and_repeats_nothing,
    an_outage_of_the_engine_is_ridden_out,
)
