"""The watchdog: rescues leases of dead workers, isolates jobs that kill workers, removes dead workers, runs duties."""

import asyncio
import math
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple
from uuid import UUID

import structlog

from fairlead.actions import workflow_progress
from fairlead.db.database import Database
from fairlead.db.session import idle_seconds
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseUnreachable, FairleadError
from fairlead.runtime.duties import Duties
from fairlead.store import bulk, rescue, sessions, workers
from fairlead.store.sessions import StuckSession

log = structlog.get_logger(__name__)

BATCH = 500
# How long a rescue waits for a locked row that it cannot skip.
LOCK_SECONDS = 0.5
DAY_SECONDS = 86_400.0
# How long a sweep may rescue leases one by one.
ONE_BY_ONE_SECONDS = 10.0
# A lease that could not be rescued is retried after one sweep interval; the pause doubles each time, up to this.
LONGEST_REST_SECONDS = 300.0


class UnreadSessions:
    """Ends Fairlead's sessions whose clients have read nothing for as long as a transaction may be idle.

    Such a process was stopped while it received a large result. PostgreSQL has no timeout for that on a local socket: the
    statement does not end, and its locks stay. On TCP connections `tcp_user_timeout` ends it after 25 seconds.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seconds = idle_seconds(database.settings)
        self._since: dict[StuckSession, float] = {}

    async def __call__(self) -> None:
        """Check once. Ends each session that has been blocked on the same result for that long."""
        now = asyncio.get_running_loop().time()
        found = await self._database.single(sessions.list_stuck)
        self._since = {one: self._since.get(one, now) for one in found}
        for one, since in self._since.items():
            if now - since >= self._seconds and await self._database.single(
                partial(sessions.end_if_stuck, one=one)
            ):
                log.warning(
                    "unread_session_ended",
                    pid=one.pid,
                    why="its process did not read the result, and its locks block others",
                )


class RescueFailure(NamedTuple):
    """How often the rescue of a lease failed, and until when sweeps skip it."""

    number: int
    rests_until: float


class Watchdog:
    """Runs a sweep, and a round of each duty that is due, if duties are given. Any number of processes may run it."""

    def __init__(
        self,
        database: Database,
        *,
        lease_seconds: float,
        sweep_seconds: float,
        duties: Duties | None = None,
    ) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._sweep_seconds = sweep_seconds
        self._duties = duties
        # a gap between sweeps that is longer than this means that the database was unreachable
        self._gap_seconds = max(lease_seconds / 2, sweep_seconds * 1.5)
        self._sweep_at = -math.inf
        self._unread = UnreadSessions(database)
        self._failures: dict[UUID, RescueFailure] = {}
        self.rescued = 0

    async def __call__(self) -> float:
        """Sweep and run duties if due; seconds until the next sweep or round of a duty."""
        now = asyncio.get_running_loop().time
        if now() >= self._sweep_at:
            await self._end_unread()
            rescued = await self._swept()
            self.rescued += rescued
            self._sweep_at = now() + (0.0 if rescued == BATCH else self._sweep_seconds)
        pause = math.inf if self._duties is None else await self._run_duties(self._duties)
        return max(0.0, min(pause, self._sweep_at - now()))

    async def _end_unread(self) -> None:
        try:
            await self._unread()
        except DatabaseUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 - a missing privilege, for example: leases must be rescued anyway
            log.error("unread_sessions_not_ended", why=repr(error))  # noqa: TRY400 - one line

    async def _run_duties(self, duties: Duties) -> float:
        try:
            return await duties()
        except FairleadError:
            raise
        except Exception as error:  # noqa: BLE001 - a missing privilege, for example: leases must be rescued anyway
            log.error("duty_failed", why=repr(error))  # noqa: TRY400 - one line
            return math.inf

    async def _swept(self) -> int:
        """Rescue expired leases in one transaction, or one by one if that fails; how many were rescued."""
        until, has_work = await self._database.single(
            partial(rescue.record_pulse, lease_seconds=self._lease_seconds, gap_seconds=self._gap_seconds)
        )
        if until is None:
            # the database was unreachable: owners of leases get one lease's time to renew or finish
            return 0
        await self._database.single(partial(workers.remove_stale, seconds=self._lease_seconds * 10))
        if not has_work:
            return 0
        resting = self._list_resting()
        try:
            return await self._database.transact(partial(self._sweep, until=until, but=resting))
        except DatabaseUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 - one lease that cannot be rescued must not block the others
            log.error("sweep_failed", why=repr(error))  # noqa: TRY400 - one line
        return await self._rescue_one_by_one(until, resting)

    async def _rescue_one_by_one(self, until: datetime, resting: list[UUID]) -> int:
        """Rescue the oldest leases first, for some seconds; the next sweep continues."""
        now, rescued = asyncio.get_running_loop().time, 0
        deadline = now() + ONE_BY_ONE_SECONDS
        overdue = partial(rescue.list_overdue, limit=BATCH, until=until, but=resting)
        for job_id in await self._database.transact(overdue):
            try:
                work = partial(self._rescue, until=until, only=job_id)
                rescued += await self._database.transact(work)
            except DatabaseUnreachable:
                raise
            except Exception as error:  # noqa: BLE001 - as above; a later sweep retries it
                self._note_failure(job_id)
                log.error("lease_not_rescued", job_id=str(job_id), why=repr(error))  # noqa: TRY400 - one line
            if now() > deadline:
                break
        return rescued

    def _list_resting(self) -> list[UUID]:
        """Jobs whose rescue failed recently: sweeps skip them, so that they do not block others."""
        now = asyncio.get_running_loop().time()
        longest = LONGEST_REST_SECONDS * 2
        self._failures = {
            job_id: one for job_id, one in self._failures.items() if now < one.rests_until + longest
        }
        return [job_id for job_id, one in self._failures.items() if now < one.rests_until]

    def _note_failure(self, job_id: UUID) -> None:
        number = self._failures[job_id].number + 1 if job_id in self._failures else 1
        rest = min(self._sweep_seconds * 2 ** (number - 1), LONGEST_REST_SECONDS)
        self._failures[job_id] = RescueFailure(number, asyncio.get_running_loop().time() + rest)

    async def _sweep(self, tx: Tx, *, until: datetime, but: list[UUID]) -> int:
        rescued = await self._rescue(tx, until=until, but=but)
        if alive := await rescue.undo_charges(tx):
            log.warning("loss_uncharged", jobs=len(alive), why="the worker was disconnected and is back")
        await rescue.remove_loss_records(tx, seconds=DAY_SECONDS)
        return rescued

    async def _rescue(
        self, tx: Tx, *, until: datetime, only: UUID | None = None, but: Sequence[UUID] = ()
    ) -> int:
        await tx.wait_for_locks(LOCK_SECONDS)
        rescued = await rescue.rescue(
            tx, lease_seconds=self._lease_seconds, until=until, limit=BATCH, only=only, but=but
        )
        if rescued:
            await workflow_progress.settle_or_leave(tx, rescued)
            log.warning("leases_rescued", jobs=len(rescued))
            await bulk.notify(tx, "later")
        return len(rescued)
