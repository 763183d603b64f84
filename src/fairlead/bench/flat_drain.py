"""Flat: a drain in conditions that must not slow it down, compared with a plain drain of the same run."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from uuid import uuid4

from fairlead.bench.backlog import remove_jobs
from fairlead.bench.drain_tools import drain_rate, open_drain_bench
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.db.scratch import settle_server
from fairlead.library.app import Fairlead
from fairlead.settings import Settings

# A context manager that sets up a case's condition, and gives the tenants whose jobs are drained.
Case = Callable[[Fairlead, Progress], AbstractAsyncContextManager[Sequence[str]]]


async def measure_flat(
    url: str,
    settings: Settings,
    progress: Progress,
    *,
    name: str,
    cases: Mapping[str, Case],
    jobs: int,
    rounds: int,
) -> Measure:
    """The slowest case's rate, compared with the mean of the plain rates before and after all cases."""
    rates = {}
    async with open_drain_bench(settings) as fl:

        async def drain(label: str, tenants: Sequence[str] = (TENANT,)) -> float:
            await settle_server(url)
            found = []
            for number in range(1, rounds + 1):
                progress(f"draining {number} of {rounds}: {label}")
                found.append(await drain_rate(fl, settings, jobs, uuid4().hex, tenants=tenants))
            return max(found)  # other load on the machine can only make a round slower

        plains = [await drain("plain")]
        for label, case in cases.items():
            await remove_jobs(fl)
            async with case(fl, progress) as tenants:
                rates[label] = await drain(label, tenants)
        await remove_jobs(fl)
        plains.append(await drain("plain, again"))
    return _build_measure(name, rates, plains, note=f"one worker, {jobs:,} jobs, the best of {rounds}")


def _build_measure(name: str, rates: Mapping[str, float], plains: Sequence[float], *, note: str) -> Measure:
    limit, slowest = statistics.mean(plains), min(rates.values())
    shown = "; ".join(f"{label} {rate:,.0f} ({rate / limit:.2f})" for label, rate in rates.items())
    return Measure(
        name,
        round(slowest, 1),
        "jobs/s",
        round(limit, 1),
        round(slowest / limit, 3),
        f"{note}; {shown}; limit: the same drain without, before {plains[0]:,.0f} and after {plains[1]:,.0f}",
    )
