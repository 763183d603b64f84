"""The heartbeat: one statement for all leases, in its own thread, so that a busy handler cannot delay it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Self

import structlog

from fairlead.errors import FairleadError
from fairlead.lease_clock import lease_clock
from fairlead.model.job import Lease
from fairlead.runtime import loop_watch
from fairlead.runtime.job_source import EndsPostponed, HeartbeatSource, HeldJob, JobSource, lease_fields
from fairlead.runtime.service import cancel_and_wait, wait_any
from fairlead.runtime.unstarted import UnstartedJobs
from fairlead.store.queue import HeartbeatResult

log = structlog.get_logger(__name__)

# A worker stops an attempt when less than this part of its lease is left, by the worker's own clock.
MARGIN = 0.15
# The first pause after a heartbeat that did not renew every lease (a finish had locked one); the pause doubles each time.
RETRY_SECONDS = 0.05
RECONNECT_SECONDS = 0.5
# How often a worker whose event loop is blocked looks for jobs to give back: a claim may have taken more meanwhile.
GIVE_BACK_SECONDS = 0.5

# A connection to the queue for the heartbeat alone.
Connect = Callable[[], AbstractAsyncContextManager[HeartbeatSource]]


class Heartbeat:
    """Renews the worker's leases every third of a lease, and reports which are canceled and which are lost."""

    def __init__(
        self,
        lease_seconds: float,
        *,
        canceled: Callable[[Lease], None],
        lost: Callable[[Lease], None],
        clock: Callable[[], float] = lease_clock,
        about: Callable[[Lease], dict[str, Any]] = lease_fields,
        may_have_ended: Callable[[Lease], bool] = lambda _: False,
        ended: Callable[[Lease], None] = lambda _: None,
        unstarted: UnstartedJobs | None = None,
        write_ended: Callable[[JobSource], Awaitable[list[Lease]]] | None = None,
    ) -> None:
        """`ended` is called, and not `lost`, with a lease that is gone and that `may_have_ended` by its handler's transaction."""
        self._unstarted = UnstartedJobs() if unstarted is None else unstarted
        self._write_ended = write_ended
        # taken from the worker, and perhaps not in the queue yet
        self._given_back: list[HeldJob] = []
        self._about = about
        self._may_have_ended = may_have_ended
        self._ended = ended
        self._lease_seconds = lease_seconds
        self._canceled = canceled
        self._lost = lost
        self._clock = clock
        self._expires_at: dict[Lease, float] = {}
        # when the fence is late, unless it runs again
        self._late_at = clock() + lease_seconds * MARGIN
        self._canceled_leases: set[Lease] = set()
        self._lock = threading.Lock()

    def hold(self, leases: Iterable[Lease], claimed_at: float) -> None:
        """Renew these leases from now on; `claimed_at` is our clock just before the claim."""
        with self._lock:
            self._expires_at.update(dict.fromkeys(leases, claimed_at + self._lease_seconds))

    def drop(self, leases: Sequence[Lease]) -> None:
        """Stop renewing these leases: their attempts ended."""
        with self._lock:
            for lease in leases:
                self._expires_at.pop(lease, None)
            if self._canceled_leases:
                self._canceled_leases.difference_update(leases)

    async def beat(self, source: JobSource) -> bool:
        """Renew all leases once. Returns whether every lease that we still own was renewed."""
        with self._lock:
            leases = list(self._expires_at)
        if not leases:
            return True
        asked_at = self._clock()
        try:
            # a heartbeat that hangs must not block the next one
            async with asyncio.timeout(self._lease_seconds / 3):
                alive = await source.heartbeat(leases)
        except (FairleadError, TimeoutError) as error:
            log.warning("heartbeat_failed", leases=len(leases), why=str(error))
            return False
        for lease in leases:
            if lease in alive:
                self._record_renewal(lease, asked_at, alive[lease])
            elif self._may_have_ended(lease):
                self.drop([lease])
                self._ended(lease)
            else:
                self._lose(lease)
        return all(beat.renewed for beat in alive.values())

    def _record_renewal(self, lease: Lease, asked_at: float, beat: HeartbeatResult) -> None:
        with self._lock:
            if lease not in self._expires_at:
                return
            if beat.renewed:
                self._expires_at[lease] = asked_at + self._lease_seconds
            tell = beat.cancel and lease not in self._canceled_leases
            if tell:
                self._canceled_leases.add(lease)
        if tell:
            self._canceled(lease)

    async def fence(self) -> None:
        """Give up leases in time, even while a heartbeat hangs; until cancelled."""
        while True:
            await asyncio.sleep(self._lease_seconds * MARGIN / 3)
            self._drop_expiring()

    def fence_if_late(self) -> bool:
        """Give up leases if the fence is late, since the process was stopped. Whether it was: then leases may have expired."""
        if self._clock() < self._late_at:
            return False
        self._drop_expiring()
        return True

    def _drop_expiring(self) -> None:
        """Give up the leases that may soon expire, before another worker runs their jobs."""
        deadline = self._clock() + self._lease_seconds * MARGIN
        with self._lock:
            over = [lease for lease, until in self._expires_at.items() if until < deadline]
        for lease in over:
            self._lose(lease)
        # not before: another thread asks it whether leases may be lost
        self._late_at = deadline

    def _lose(self, lease: Lease) -> None:
        with self._lock:
            known = self._expires_at.pop(lease, None) is not None
        if known:
            log.warning("lease_lost", **self._about(lease))
            self._lost(lease)

    async def give_back(self, source: HeartbeatSource) -> None:
        """Return what has not started to the queue, and write the outcomes that wait, since the event loop is blocked."""
        self._given_back += self._unstarted.take_back()
        try:
            async with asyncio.timeout(self._lease_seconds / 3):
                await source.give_back_unstarted(self._given_back)
                if self._given_back:
                    log.info("unstarted_given_back", jobs=len(self._given_back))
                self.drop([held.lease for held in self._given_back])
                self._given_back = []
                if self._write_ended is not None:
                    self.drop(await self._write_ended(source))
        except (FairleadError, EndsPostponed, TimeoutError) as error:
            log.warning("unstarted_not_given_back", jobs=len(self._given_back), why=str(error))

    async def run(self, source: JobSource, wake: asyncio.Event) -> None:
        """Send heartbeats until cancelled; `wake` triggers one now. Leases that were not renewed are retried soon."""
        longest = pause = self._lease_seconds / 3
        retry = RETRY_SECONDS
        while True:
            await wait_any(wake, seconds=pause)
            wake.clear()
            if await self.beat(source):
                pause, retry = longest, RETRY_SECONDS
            else:
                pause, retry = min(longest, retry), retry * 2


class HeartbeatThread(threading.Thread):
    """Runs the heartbeat in its own thread, with its own event loop and connection: a busy handler cannot delay it.

    It also watches the event loop that creates it, since a blocked loop can neither detect itself nor give back the jobs
    that have not started.
    """

    def __init__(self, heart: Heartbeat, connect: Connect) -> None:
        super().__init__(name="fairlead-heart", daemon=True)
        self._heart = heart
        self._connect = connect
        self._watched = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_blocked = asyncio.Event()
        self._begun = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        self._begun.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._set_event(self._stopping)
        self.join()

    def run(self) -> None:
        """Send heartbeats until stopped."""
        asyncio.run(self._run_heartbeat())

    def wake(self) -> None:
        """Send the next heartbeat now."""
        self._set_event(self._wake)

    def _set_event(self, event: asyncio.Event) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the thread has ended
                self._loop.call_soon_threadsafe(event.set)

    async def _run_heartbeat(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        # both run even while the queue is unreachable: fencing needs only the clock
        watching = loop_watch.watch(self._watched, self._is_blocked)
        beside = [asyncio.create_task(one) for one in (self._heart.fence(), watching)]
        try:
            while not self._stopping.is_set():
                try:
                    async with self._connect() as source:
                        await self._run_connected(source)
                except Exception as error:  # noqa: BLE001 - without heartbeats this worker would lose every job
                    why = error.message if isinstance(error, FairleadError) else repr(error)
                    log.warning("heart_not_connected", why=why)
                    await wait_any(self._stopping, seconds=RECONNECT_SECONDS)
        finally:
            await cancel_and_wait(*beside)

    async def _run_connected(self, source: HeartbeatSource) -> None:
        beating = asyncio.create_task(self._heart.run(source, self._wake))
        giving_back = asyncio.create_task(self._give_back_while_blocked(source))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((stopping, beating, giving_back), return_when=asyncio.FIRST_COMPLETED)
            for failed in (beating, giving_back):
                if failed.done():  # they end only by errors: start again with a new connection
                    log.error("heart_failed", why=repr(failed.exception()))
                    await wait_any(self._stopping, seconds=RECONNECT_SECONDS)
        finally:
            stopping.cancel()
            await cancel_and_wait(beating, giving_back)

    async def _give_back_while_blocked(self, source: HeartbeatSource) -> None:
        while True:
            await self._is_blocked.wait()
            await self._heart.give_back(source)
            await asyncio.sleep(GIVE_BACK_SECONDS)
