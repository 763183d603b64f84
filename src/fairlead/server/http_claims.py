"""Claims for HTTP workers, with long polls."""

import math
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from uuid import UUID

import msgspec

from fairlead.actions import worker_claims
from fairlead.actions.leases import ClaimScope
from fairlead.db.listen import POLL
from fairlead.db.tx import Tx
from fairlead.library.app import Fairlead
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.maintenance import Caretaker
from fairlead.runtime.service import wait_any
from fairlead.runtime.store_source import ClaimRepeated, StoreSource
from fairlead.server.long_polls import LongPolls

MOST_WORKERS = 10_000
RECORD_WORKER_SECONDS = 10.0
# A tenant's worker is listed once it has asked for this long, or has a job: names that are used once fill no list.
LIST_WORKER_SECONDS = 2.0
# A worker that has not asked for this long begins anew.
FORGET_WORKER_SECONDS = 60.0
# When a rate opens, the waiting requests of this process claim one after the other, not all at once.
TURN_SECONDS = 0.002

# Whether the client still waits for the response; raises if it is no longer authenticated.
StillWaiting = Callable[[], Awaitable[bool]]
TryClaim = Callable[[], Awaitable[list[HeldJob]]]
# pairs of name and value, since a source is found by them
WorkerLabels = tuple[tuple[str, str], ...]


class _AskingWorker(msgspec.Struct):
    """When a worker asked for jobs, and when that was written."""

    since: float
    at: float
    recorded_at: float = -math.inf
    is_listed: bool = False


class HttpClaims:
    """Claims jobs on behalf of HTTP workers."""

    def __init__(self, fl: Fairlead, polls: LongPolls) -> None:
        self._fl = fl
        self._polls = polls
        self._source = lru_cache(MOST_WORKERS)(self._new_source)
        self._asking: OrderedDict[str, _AskingWorker] = OrderedDict()
        # workers that are asked to claim nothing more
        self._draining: set[str] = set()
        # sources with claims whose result may be unknown: the worker may never ask again
        self._unanswered_sources: set[StoreSource] = set()
        self._caretaker = Caretaker()
        # requests that wait for jobs
        self._waiting = 0

    async def claim(
        self,
        worker: str,
        served: ClaimScope,
        *,
        keys: list[str] | None,
        limit: int,
        wait: float,
        waits: StillWaiting,
        version: str = "",
        claim_id: UUID | None = None,
        slots: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[HeldJob]:
        """Claim up to `limit` due jobs, or jobs that together take at most `limit` of the worker's `slots`. If there are none, try again at every wake and poll for `wait` seconds.

        A repeated `claim_id` returns the jobs that the first claim took.
        """
        own_labels = tuple(sorted((labels or {}).items()))
        record = partial(
            self._record_worker,
            worker,
            served.tenant_id,
            keys,
            slots=slots,
            limit=limit,
            version=version,
            labels=own_labels,
        )
        source = self._source(worker, served, own_labels, slots)
        before: list[HeldJob] = []

        async def look() -> list[HeldJob]:
            nonlocal before
            await record()
            await self._release_unanswered()
            await self._caretaker(self._fl.database)
            is_any_ready = await self._has_ready_job(served)
            self._unanswered_sources.add(source)
            if before := await self._repeat_claim(worker, served, claim_id):
                return before
            if worker in self._draining:
                return []
            try:
                return await source.claim_some(limit, is_any_ready=is_any_ready, claim_id=claim_id)
            except ClaimRepeated:  # a concurrent request with this id was first
                before = await self._repeat_claim(worker, served, claim_id)
                return before

        taken = await look()
        if not taken and wait:
            async with self._polls.limit.open(worker, served.tenant_id):
                taken = await self._look_until(source, look, time.monotonic() + wait, waits)
        if before or not taken:
            return taken

        async def waits_and_is_listed() -> bool:
            await record(has_jobs=True)
            return await waits()

        return await self._give_back_if_gone(source, taken, waits_and_is_listed, claim_id)

    async def _repeat_claim(self, worker: str, served: ClaimScope, claim_id: UUID | None) -> list[HeldJob]:
        """The jobs that an earlier claim with this id took, if any."""
        if claim_id is None:
            return []
        found = await self._fl.database.transact(
            lambda tx: worker_claims.repeat_claim(
                tx,
                worker=worker,
                claim_id=claim_id,
                tenant_id=served.tenant_id,
                lease_seconds=self._fl.settings.lease_seconds,
            )
        )
        return [HeldJob(lease, job) for lease, job in found or ()]

    async def _give_back_if_gone(
        self, source: StoreSource, taken: list[HeldJob], waits: StillWaiting, claim_id: UUID | None
    ) -> list[HeldJob]:
        """Give the jobs back if the client has disconnected; otherwise they would wait until their leases expire."""
        still = False
        try:
            still = await waits()
        finally:
            if not still:
                await source.give_back(taken, claim_id=claim_id)
        return taken if still else []

    async def _look_until(
        self, source: StoreSource, look: TryClaim, until: float, waits: StillWaiting
    ) -> list[HeldJob]:
        self._waiting += 1
        try:
            async with self._polls.wake_at("ready", "gate", POLL) as heard:
                while (left := until - time.monotonic()) > 0 and await waits():
                    is_short = source.is_short
                    await wait_any(heard, seconds=min(left, self._count_pause(source)))
                    heard.clear()
                    # the next job needs more slots: the worker may have more by now, and asks again
                    if (taken := await look()) or is_short:
                        return taken
        finally:
            self._waiting -= 1
        return []

    def _count_pause(self, source: StoreSource) -> float:
        """Seconds until the next claim of a request that nothing wakes: until a rate opens, if work waits for one."""
        seconds = self._fl.settings.poll_seconds
        if source.opens_in is None:
            return seconds
        turn = TURN_SECONDS * random.randrange(self._waiting)  # noqa: S311
        return min(seconds, source.opens_in + turn)

    async def _has_ready_job(self, served: ClaimScope) -> bool:
        """False if a single-tenant worker has no ready job: the claim alone would scan all other tenants' jobs for that."""
        tenant_id = served.tenant_id
        if tenant_id is None:
            return True
        return await self._fl.database.single(lambda tx: worker_claims.has_ready_job(tx, tenant_id))

    async def _record_worker(
        self,
        worker: str,
        tenant_id: UUID | None,
        keys: list[str] | None,
        *,
        slots: int | None,
        limit: int,
        version: str,
        labels: WorkerLabels,
        has_jobs: bool = False,
    ) -> None:
        """Record that the worker was seen, at most every RECORD_WORKER_SECONDS."""
        asking = self._note_asking(worker)
        is_listed = tenant_id is None or has_jobs or asking.at - asking.since >= LIST_WORKER_SECONDS
        is_recent = asking.at - asking.recorded_at < RECORD_WORKER_SECONDS
        if is_recent and (asking.is_listed or not is_listed):
            return
        asking.recorded_at, asking.is_listed = asking.at, is_listed

        async def write(tx: Tx) -> bool:
            return await worker_claims.record_worker(
                tx,
                worker,
                tenant_id=tenant_id,
                keys=keys or [],
                concurrency=slots or limit,
                counts_slots=slots is not None,
                version=version,
                labels=dict(labels),
                may_add=is_listed,
            )

        is_draining = await self._fl.database.transact(write)
        (self._draining.add if is_draining else self._draining.discard)(worker)

    def _note_asking(self, worker: str) -> _AskingWorker:
        now = time.monotonic()
        asking = self._asking.get(worker)
        if asking is None or now - asking.at > FORGET_WORKER_SECONDS:
            asking = self._asking[worker] = _AskingWorker(since=now, at=now)
        asking.at = now
        self._asking.move_to_end(worker)
        if len(self._asking) > MOST_WORKERS:
            self._draining.discard(self._asking.popitem(last=False)[0])
        return asking

    async def _release_unanswered(self) -> None:
        for source in list(self._unanswered_sources):
            await source.release_unanswered()
            if not source.has_unanswered_claims:
                self._unanswered_sources.discard(source)

    def _new_source(
        self, worker: str, served: ClaimScope, labels: WorkerLabels, slots: int | None
    ) -> StoreSource:
        return StoreSource(
            self._fl.database,
            worker=worker,
            lease_seconds=self._fl.settings.lease_seconds,
            served=served.definitions,
            served_pairs=served.pairs,
            labels=dict(labels),
            slots=slots,
        )
