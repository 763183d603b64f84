"""Maintenance: the watchdog with its duties, and the stager, which moves jobs from later to ready when they are due and
cancels those that have not started in time.

Fleets of HTTP workers or agents have no worker process: their servers and schedulers must keep the database in order.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context
from functools import partial
from uuid import UUID

import structlog

from fairlead.actions import durable, expiry, workflow_progress
from fairlead.db.database import Database
from fairlead.errors import KEY_ERRORS
from fairlead.runtime.duties import Duties
from fairlead.runtime.service import Service, run_services
from fairlead.runtime.watchdog import Watchdog
from fairlead.store import bulk, queue

log = structlog.get_logger(__name__)

BATCH = 1000
# Jobs that are canceled in one transaction because they have expired.
EXPIRED = 200
STEPS = 100
# Ended children whose parents are told in one transaction.
CHILDREN = 200
# How often a process looks for such steps without a notification: one may be lost, and not every process listens.
IDLE_SECONDS = 60.0
# Left steps whose jobs one call makes.
MOST_LEFT_STEPS = 100
LOCKED_SECONDS = 0.25


async def stage(database: Database, *, limit: int = BATCH) -> int:
    """Move due jobs to ready and notify the workers; how many jobs.

    The move is a transaction by itself: a process that is stopped here locks no job.
    """
    moved = await database.single(lambda tx: queue.stage_due(tx, limit=limit))
    if moved:
        await database.single(lambda tx: bulk.notify(tx, "ready"))
    return moved


class Stager:
    """Moves one batch per round, notifies the workers, cancels expired jobs, and returns when the next job is due."""

    def __init__(self, database: Database, poll_seconds: float) -> None:
        self._database = database
        self._poll_seconds = poll_seconds

    async def __call__(self) -> float:
        """Seconds until the next round."""
        if await stage(self._database, limit=BATCH) == BATCH:
            return 0.0
        due, expires = await self._database.single(queue.look_ahead)
        if expires is not None and expires <= 0:
            more = await self._database.transact(lambda tx: expiry.expire_jobs(tx, limit=EXPIRED))
            # rows that others have locked are tried again after a pause: the next jobs of their keys may wait for them
            expires = 0.0 if more else LOCKED_SECONDS
        return min([self._poll_seconds, *(max(one, 0.0) for one in (due, expires) if one is not None)])


async def settle_steps(database: Database) -> None:
    """Advance the runs of steps whose handlers ended them in their own transactions, and tell durable functions of ended children."""
    while await database.transact(lambda tx: durable.settle_children(tx, limit=CHILDREN)) == CHILDREN:
        pass
    while await database.transact(lambda tx: workflow_progress.settle_ended_steps(tx, limit=STEPS)) == STEPS:
        pass


class LeftSteps:
    """Steps that were left because they are much work; tenants take turns."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._last_tenant = UUID(int=0)
        # tenants whose keys could not be had lately: until when their steps wait
        self._resting: dict[UUID, float] = {}

    async def release_next(self) -> bool:
        """Make the jobs of a left step; False if there is none for this process now."""
        self._resting = {tenant: until for tenant, until in self._resting.items() if time.monotonic() < until}
        release = partial(
            workflow_progress.release_left_step,
            after=self._last_tenant,
            taken=self._note_tenant,
            but=self._resting.keys(),
        )
        try:
            return await self._database.transact(release)
        except KEY_ERRORS as error:
            log.warning("steps_left_for_later", tenant_id=str(self._last_tenant), why=error.message)
            self._resting[self._last_tenant] = time.monotonic() + queue.UNREADABLE_SECONDS
            return True

    def _note_tenant(self, tenant_id: UUID) -> None:
        self._last_tenant = tenant_id


async def release_left_steps(database: Database) -> None:
    """Make the jobs of steps that were left because they are much work."""
    left = LeftSteps(database)
    for _ in range(MOST_LEFT_STEPS):
        if not await left.release_next():
            break


class StepSettler:
    """Settles such steps, and makes the jobs of steps that are much work, when a notification wakes it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._left = LeftSteps(database)

    async def __call__(self) -> float:
        """Seconds until the next round."""
        await settle_steps(self._database)
        begun = time.monotonic()
        if not await self._left.release_next():
            return IDLE_SECONDS
        # the jobs of this process have half of its time
        return time.monotonic() - begun


class Caretaker:
    """Stages due jobs and rescues expired leases before a claim: there may be no worker process that does."""

    def __init__(self) -> None:
        self._database: Database | None = None

    async def __call__(self, database: Database) -> None:
        """Stage, and sweep if that is due."""
        settings = database.settings
        if database is not self._database:
            self._database, self._sweep_at = database, time.monotonic()
            self._left, self._may_be_left = LeftSteps(database), False
            self._watchdog = Watchdog(
                database, lease_seconds=settings.lease_seconds, sweep_seconds=settings.sweep_seconds
            )
        if time.monotonic() >= self._sweep_at:
            # concurrent callers do not sweep, too
            self._sweep_at = time.monotonic() + settings.sweep_seconds
            self._sweep_at = time.monotonic() + await self._watchdog()
            await settle_steps(database)
            self._may_be_left = True
        if self._may_be_left:
            await self._release_step()
        await stage(database)

    async def _release_step(self) -> None:
        """Make the jobs of one left step: a claim does not wait for more, and concurrent claims do not wait for it."""
        self._may_be_left = False
        # work of the process, not of the owner of the request that claims
        self._may_be_left = await asyncio.create_task(self._left.release_next(), context=Context())


class Maintenance:
    """The services that keep the database in order. Any number of processes may run them."""

    def __init__(self, database: Database) -> None:
        settings = database.settings
        duties = Duties(
            database,
            retention_days=settings.retention_days,
            audit_retention_days=settings.audit_retention_days,
        )
        self.watchdog = Watchdog(
            database,
            lease_seconds=settings.lease_seconds,
            sweep_seconds=settings.sweep_seconds,
            duties=duties,
        )
        self.stager = Service("stager", Stager(database, settings.poll_seconds * 5))
        self.steps = Service("steps", StepSettler(database))
        self.services = (self.stager, self.steps, Service("watchdog", self.watchdog))


@asynccontextmanager
async def run_maintenance(database: Database) -> AsyncIterator[None]:
    """Run maintenance during the block, unless the settings leave it to other processes."""
    services = Maintenance(database).services if database.settings.maintenance else ()
    async with run_services(*services):
        yield
