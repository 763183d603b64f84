"""A drain beside many ready jobs that this worker may not claim."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fairlead.actions import definitions
from fairlead.bench import backlog
from fairlead.bench.flat_drain import Case, measure_flat
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.library.app import Fairlead
from fairlead.runtime.store_source import StoreSource
from fairlead.settings import Settings

ROUNDS = 1
JOBS = 20_000
ROWS = 200_000
HOSTS = 10
OTHER = "other"
KINDS = ("unserved", "paused", "held", "hosts")
WHOSE = {"own": TENANT, "another's": OTHER}
# Longer than the workload: this lease is not renewed and must not expire.
LEASE_SECONDS = 3600.0


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """Jobs per second beside each kind of blocked job, of the same tenant and of another."""
    cases = {f"{whose} {kind}": _build_case(kind, WHOSE[whose]) for whose in WHOSE for kind in KINDS}
    return await measure_flat(url, settings, progress, name="limited", cases=cases, jobs=JOBS, rounds=ROUNDS)


def _build_case(kind: str, tenant: str) -> Case:
    @asynccontextmanager
    async def case(fl: Fairlead, progress: Progress) -> AsyncIterator[Sequence[str]]:
        await fl.add_tenant(OTHER, exist_ok=True)
        if kind == "hosts":
            hosts = await backlog.add_hosts(fl, HOSTS, tenant=tenant)
            await backlog.add_queued(fl, ROWS, progress, tenant=tenant, hosts=hosts)
        else:
            await backlog.add_queued(fl, ROWS, progress, tenant=tenant, definition=kind)
        if kind == "held":
            await _use_up_limit(fl)
        if kind == "paused":
            await fl.pause(definition=kind)
        waiting = await backlog.count_waiting(fl)
        yield (TENANT,)
        if (still := await backlog.count_waiting(fl)) != waiting:
            raise RuntimeError(f"{waiting - still} blocked jobs ({kind}) were claimed")

    return case


async def _use_up_limit(fl: Fairlead) -> None:
    found = await fl.database.transact(lambda tx: definitions.get_by_keys(tx, fl.principal, ["held"]))
    source = StoreSource(fl.database, worker="bench", lease_seconds=LEASE_SECONDS, served=[found["held"].id])
    await source.claim(1)
