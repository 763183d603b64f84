"""A worker and rates: it starts jobs as soon as a rate allows, and does not look in between."""

import asyncio

from fairlead import Fairlead, KeyLimit, Rate, Settings
from fairlead.model.outcome import Outcome, Succeeded
from fairlead.runtime.job_source import HeldJob
from tests.given import TENANT
from tests.runtime.test_worker import working
from tests.waiting import eventually


async def test_a_worker_starts_the_next_job_when_the_rate_allows(fl: Fairlead, settings: Settings) -> None:
    @fl.job(rate=Rate(20, burst=1))
    async def ping() -> None: ...

    await fl.close()
    await fl.open()
    for _ in range(21):
        await ping.enqueue(tenant=TENANT)
    done: list[float] = []

    async def body(held: HeldJob) -> Outcome:
        done.append(asyncio.get_running_loop().time())
        return Succeeded()

    # a worker that only polled would take a minute for each
    async with working(settings, body, poll_seconds=60):
        await eventually(lambda: len(done) == 21, "all jobs")


async def test_jobs_of_a_key_follow_each_other(fl: Fairlead, settings: Settings) -> None:
    @fl.job(by_key=KeyLimit("/customer", max_running=1))
    async def ping(customer: str) -> None: ...

    await fl.close()
    await fl.open()
    for n in range(30):
        await ping.enqueue(tenant=TENANT, customer=f"c{n % 3}")
    running: dict[str, int] = {}
    most = 0
    done = 0

    async def body(held: HeldJob) -> Outcome:
        nonlocal done, most
        key = held.job.payload["customer"]
        running[key] = running.get(key, 0) + 1
        most = max(most, running[key])
        await asyncio.sleep(0.01)
        running[key] -= 1
        done += 1
        return Succeeded()

    async with working(settings, body, poll_seconds=60):
        await eventually(lambda: done == 30, "all jobs")
    assert most == 1
