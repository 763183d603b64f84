"""A run: start everything, load it, inject faults, let it drain, and check what became of every job."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from fairlead.chaos.checks.check_run import RunFacts, RunResult, check_run
from fairlead.chaos.drain import drain_queue
from fairlead.chaos.faults.plan import inject_faults, list_left_out
from fairlead.chaos.history import now
from fairlead.chaos.run_plan import SCENARIO
from fairlead.chaos.sampler import run_progress, run_sampler
from fairlead.chaos.scenario import HOSTILE, LEASE_SECONDS, FleetPlan
from fairlead.chaos.site.open_site import SiteOptions, open_site

# Jobs per second of all clients together: more than 100,000 in twenty minutes.
RATE = 120.0
# A queue of which nothing ends for so long does not drain.
DRAIN_SECONDS = 120.0
WARM_UP_SECONDS = 3.0
# A run of this many jobs has several of even the rarest kinds, so each rule has something to check.
FULL_JOBS = 100_000
Tell = Callable[[str], object]


class ChaosOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run does, and for how long. All kinds of faults unless `kinds` names some."""

    folder: Path
    seed: int
    seconds: float
    rate: float = RATE
    lease_seconds: float = LEASE_SECONDS
    fleet: FleetPlan = FleetPlan()
    kinds: Sequence[str] | None = None
    drain_seconds: float = DRAIN_SECONDS
    # whether a recovery that takes longer than promised is a finding
    strict_times: bool = False
    database_url: str | None = None


async def run_chaos(options: ChaosOptions, tell: Tell, stop: asyncio.Event) -> RunResult:
    """Run it all, and check it. When `stop` is set, the faults end early; the check follows as always."""
    site_options = SiteOptions(
        folder=options.folder,
        fleet=options.fleet,
        seed=options.seed,
        rate=options.rate,
        lease_seconds=options.lease_seconds,
        database_url=options.database_url,
    )
    tell("starting PostgreSQL and the processes")
    async with open_site(site_options) as site:
        left_out = site.left_out | list_left_out(site, site.proxies, options.kinds)
        async with run_sampler(site):
            async with run_progress(site, tell):
                site.history.begin_phase("load")
                await _wait(stop, WARM_UP_SECONDS)
                site.history.begin_phase("faults")
                await inject_faults(
                    site,
                    site.proxies,
                    seed=options.seed,
                    kinds=options.kinds,
                    history=site.history,
                    until=now() + options.seconds,
                    stop=stop,
                )
            tell("the faults are over; bringing everything back")
            await site.bring_back()
            await site.stop("client")
            site.history.begin_phase("drain")
            left = await drain_queue(site, seconds=options.drain_seconds, tell=tell)
        orphans = site.find_orphans()
        await site.stop()
        orphans |= site.find_orphans()
        site.history.begin_phase("check")
        tell("checking")
        return await check_run(
            site.paths.history,
            site.database,
            RunFacts(
                seed=options.seed,
                orphans=[f"{argv} ({pid})" for pid, argv in orphans.items()],
                left=left,
                left_out=left_out,
                strict_times=options.strict_times,
                full_jobs=None if options.kinds else FULL_JOBS,
                logs=site.paths.logs,
                plan=replace(
                    SCENARIO,
                    lease_seconds=options.lease_seconds,
                    hostile=HOSTILE if options.fleet.hostile_clients else None,
                ),
            ),
        )


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
