"""Hands jobs to one delivery engine and takes its reports. It remembers nothing that the database does not have."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple
from uuid import UUID, uuid4

import msgspec
import structlog

from fairlead.actions import handovers as actions
from fairlead.actions import workflow_progress
from fairlead.actions.handovers import AttemptEnd, AttemptProgress
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import (
    KEY_ERRORS,
    DatabaseBusy,
    DatabaseUnreachable,
    EngineUnavailable,
    FairleadError,
    SettingInvalid,
)
from fairlead.integrations.engine import DeliveryProgress, Engine, Handover, Report
from fairlead.model.definition import fill_queue
from fairlead.model.delivery import AttemptRef
from fairlead.model.outcome import Failed, Outcome, Released
from fairlead.runtime.service import cancel_and_wait, wait_any
from fairlead.store import handovers, queue
from fairlead.store.handovers import DeliveredDefinition, HandoverRow, HostName
from fairlead.store.queue import Claim, Cursor

log = structlog.get_logger(__name__)

BATCH = 500
MOST_HOSTS = 1000
# Between two looks at everything that is handed over: lost attempts, time limits, cancels.
LOOK_SECONDS = 2.0
# After this time a bridge hands over what another bridge has claimed and not handed over.
PATIENCE_SECONDS = 5.0
# How long a worker that was told to stop has until its job is canceled without it.
STOP_SECONDS = 30.0
BUSY_SECONDS = 0.02
# How long a round that has begun may take when the bridge stops.
ROUND_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 10.0

Connect = Callable[[], AbstractAsyncContextManager[Engine]]


class EngineTerms(NamedTuple):
    """How a bridge serves one engine."""

    name: str
    connect: Connect
    # the most attempts that the engine carries at a time
    max_in_flight: int


class EngineBridge:
    """The bridge to one engine: claims and hands over, takes reports, and looks after what is handed over."""

    def __init__(self, database: Database, terms: EngineTerms, *, bridge_id: str) -> None:
        self._database = database
        self._terms = terms
        self._bridge_id = bridge_id
        self._lease_seconds = database.settings.bridge_lease_seconds
        self._poll_seconds = database.settings.poll_seconds
        # random, as for workers: bridges begin with different tenants
        self._cursor = Cursor(uuid4())
        self._definitions: dict[UUID, DeliveredDefinition] = {}
        self._wake = asyncio.Event()
        self._look = asyncio.Event()
        # held while reports are stored: they are acknowledged before the bridge stops
        self._storing = asyncio.Lock()
        # ends whose keys cannot be had now: they are not acknowledged, and stored at a later look
        self._put_off: dict[AttemptRef, Report] = {}
        self.is_draining = False

    def set_definitions(self, found: Sequence[DeliveredDefinition]) -> None:
        """Serve these definitions from now on."""
        mine = {one.id: one for one in found if one.engine == self._terms.name}
        if mine != self._definitions:
            self._definitions = mine
            self._wake.set()

    def wake(self) -> None:
        """Claim now."""
        self._wake.set()

    def look(self) -> None:
        """Look for cancels now."""
        self._look.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve the engine until `stop` is set; reconnects after an outage."""
        failures = 0
        while not stop.is_set():
            try:
                async with self._terms.connect() as engine:
                    log.info("engine_connected", engine=self._terms.name)
                    failures = 0
                    await self._serve(engine, stop)
            except SettingInvalid:
                raise
            except Exception as error:  # noqa: BLE001 - an outage or a defect of one engine must not end the others
                failures += 1
                pause = min(LONGEST_BACKOFF_SECONDS, 0.1 * 2**failures)
                why = error.message if isinstance(error, FairleadError) else repr(error)
                expected = isinstance(error, EngineUnavailable | DatabaseUnreachable | DatabaseBusy)
                (log.warning if expected else log.error)(
                    "engine_failed", engine=self._terms.name, why=why, again_in_seconds=pause
                )
                await wait_any(stop, seconds=pause)

    async def _serve(self, engine: Engine, stop: asyncio.Event) -> None:
        """Run the loops until one of them fails or `stop` is set; a round that has begun ends first."""
        self._put_off.clear()  # the engine repeats what was not acknowledged
        ending = asyncio.create_task(stop.wait())
        delivering = asyncio.create_task(self._deliver(engine, stop))
        watching = asyncio.create_task(self._watch(engine, stop))
        receiving = asyncio.create_task(self._receive(engine))
        loops = (delivering, watching, receiving)
        try:
            done, _ = await asyncio.wait((*loops, ending), return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                self._wake.set()
                self._look.set()
                await asyncio.wait((delivering, watching), timeout=ROUND_SECONDS)
            async with self._storing:
                receiving.cancel()
            for loop in loops:
                if loop in done:
                    await loop
            if receiving in done:
                raise EngineUnavailable(f"The engine {self._terms.name} ended its reports.")
        finally:
            ending.cancel()
            await cancel_and_wait(*loops)

    # Handing over

    async def _deliver(self, engine: Engine, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._wake.clear()
            pause = await self._deliver_once(engine)
            if pause:
                await wait_any(self._wake, seconds=pause)

    async def _deliver_once(self, engine: Engine) -> float:
        """Hand over what is claimed, or claim more; seconds until the next round."""
        list_unconfirmed = partial(
            handovers.list_unconfirmed,
            engine=self._terms.name,
            bridge=self._bridge_id,
            patience=PATIENCE_SECONDS,
            limit=BATCH,
        )
        if rows := await self._database.single(list_unconfirmed):
            await self._hand_over(engine, rows)
            return 0.0
        if not self._definitions or self.is_draining:
            return self._poll_seconds
        carried = await self._database.single(partial(handovers.count, engine=self._terms.name))
        room = min(BATCH, self._terms.max_in_flight - carried)
        if room <= 0:
            return self._poll_seconds
        claimed, pause = await self._database.transact(partial(self._claim, room=room))
        return 0.0 if claimed else pause

    async def _claim(self, tx: Tx, room: int) -> tuple[int, float]:
        """Claim jobs and note that the engine will carry them, in one transaction. How many, and seconds until the next claim."""
        claimed, pause = await self._claim_for(tx, room, None)
        if claimed == room:
            return claimed, pause
        for host in await handovers.list_hosts(tx, list(self._definitions), limit=MOST_HOSTS):
            more, one_pause = await self._claim_for(tx, room - claimed, host)
            claimed, pause = claimed + more, min(pause, one_pause)
            if claimed == room:
                break
        return claimed, pause

    async def _claim_for(self, tx: Tx, room: int, host: HostName | None) -> tuple[int, float]:
        claim = await queue.claim(
            tx,
            worker=self._bridge_id,
            wanted=room,
            lease_seconds=self._lease_seconds,
            served=list(self._definitions),
            cursor=self._cursor,
            host=None if host is None else host.id,
        )
        if host is None:
            self._cursor = claim.cursor
        if ends := [(claim.lease(job), end) for job in claim.jobs if (end := queue.end_unreadable(job))]:
            await workflow_progress.finish_attempts(tx, ends, actor=f"worker:{self._bridge_id}")
            claim = msgspec.structs.replace(claim, jobs=[job for job in claim.jobs if job.trouble is None])
        if claim.jobs:
            by_key = {one.key: one.queue for one in self._definitions.values()}
            queues = [
                fill_queue(
                    by_key[job.definition_key],
                    {
                        "tenant": job.tenant,
                        "tenant_id": str(job.tenant_id),
                        "definition": job.definition_key,
                        "host": "" if host is None else host.name,
                    },
                )
                for job in claim.jobs
            ]
            leases = [claim.lease(job) for job in claim.jobs]
            await handovers.add(tx, self._terms.name, leases, queues)
        return len(claim.jobs), self._count_pause(claim)

    def _count_pause(self, claim: Claim) -> float:
        """Seconds until the next claim, if this one took nothing."""
        if claim.again:
            return 0.0
        if claim.busy:
            return BUSY_SECONDS
        return self._poll_seconds if claim.opens_in is None else min(self._poll_seconds, claim.opens_in)

    async def _hand_over(self, engine: Engine, rows: Sequence[HandoverRow]) -> None:
        """Hand over claimed attempts. Those that are canceled, and those that can never be delivered, end."""
        ends = [_end(row, Released()) for row in rows if row.is_canceled]
        open_rows = {one.id: row for row in rows if not row.is_canceled for one in (_handover(row),)}
        refused = await engine.hand_over([_handover(row) for row in open_rows.values()])
        delivered = [row.lease for id_, row in open_rows.items() if id_ not in refused]
        for id_, why in refused.items():
            failed = Failed("NotDeliverable", why, retryable=False)
            ends.append(_end(open_rows[id_], failed))
        if delivered:
            await self._database.single(partial(handovers.confirm, leases=delivered))
        if ends:
            await self._finish(ends)

    # Reports

    async def _receive(self, engine: Engine) -> None:
        reports: AsyncIterator[Sequence[Report]] = engine.results()
        async for batch in reports:
            async with self._storing:
                await self._store(batch)

    async def _store(self, reports: Sequence[Report]) -> None:
        """Store reports, then acknowledge them."""
        if not reports:
            return
        try:
            await self._database.transact(partial(self._write, reports=reports))
        except (DatabaseUnreachable, DatabaseBusy):
            raise
        except Exception as error:
            if len(reports) > 1:  # one of them cannot be stored: find it
                for one in reports:
                    await self._store([one])
                return
            [one] = reports
            if isinstance(error, KEY_ERRORS) and not isinstance(one.what, DeliveryProgress):
                # a copy that comes later is acknowledged when this one is stored
                self._put_off.setdefault(one.attempt, one)
                log.warning("report_put_off", job_id=str(one.attempt.job_id), why=error.message)
                return
            log.exception(
                "report_not_stored",
                job_id=str(one.attempt.job_id),
                attempt_no=one.attempt.attempt_no,
                why=repr(error),
            )
        await asyncio.gather(*(one.acknowledge() for one in reports if one.acknowledge is not None))
        self._wake.set()

    async def _store_again(self) -> None:
        async with self._storing:
            reports = list(self._put_off.values())
            self._put_off.clear()
            await self._store(reports)

    async def _write(self, tx: Tx, reports: Sequence[Report]) -> None:
        steps = [
            AttemptProgress(one.attempt, one.what.percent, one.what.message)
            for one in reports
            if isinstance(one.what, DeliveryProgress)
        ]
        ends = [
            AttemptEnd(one.attempt, one.what, one.log)
            for one in reports
            if not isinstance(one.what, DeliveryProgress)
        ]
        if steps:
            await actions.store_progress(tx, steps, engine=self._terms.name)
        if ends:
            await actions.finish(tx, ends, engine=self._terms.name)

    async def _finish(self, ends: Sequence[AttemptEnd]) -> None:
        try:
            await self._database.transact(lambda tx: actions.finish(tx, ends, engine=self._terms.name))
        except KEY_ERRORS as error:
            if len(ends) > 1:
                for end in ends:
                    await self._finish([end])
            else:  # the next look finds it again
                log.warning("end_put_off", job_id=str(ends[0].attempt.job_id), why=error.message)
        self._wake.set()

    # Looking after what is handed over

    async def _watch(self, engine: Engine, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._look.clear()
            await self._store_again()
            after = handovers.NIL
            while True:
                list_page = partial(
                    handovers.list_in_flight, engine=self._terms.name, after=after, limit=BATCH
                )
                rows = await self._database.single(list_page)
                await self._check(engine, rows)
                if len(rows) < BATCH or stop.is_set():
                    break
                after = rows[-1].job_id
            await self._database.single(
                partial(handovers.remove_ended, engines=[self._terms.name], limit=10 * BATCH)
            )
            await wait_any(self._look, seconds=LOOK_SECONDS)

    async def _check(self, engine: Engine, rows: Sequence[HandoverRow]) -> None:
        """Find what the engine has ended or lost; stop what is canceled or has taken too long."""
        if not rows:
            return
        found = await engine.find_lost([_handover(row) for row in rows])
        async with self._storing:
            await self._store(found)
        to_stop = [row for row in rows if (row.is_canceled or row.is_late) and row.stopped_at is None]
        if to_stop:
            await self._stop(engine, to_stop)
        over = datetime.now(UTC) - timedelta(seconds=STOP_SECONDS)
        ends = [
            _end(row, Released())
            for row in rows
            if row.is_canceled and row.stopped_at is not None and row.stopped_at < over
        ]
        if ends:
            await self._finish(ends)

    async def _stop(self, engine: Engine, rows: Sequence[HandoverRow]) -> None:
        """Let the engine stop attempts. Late ones end at once; canceled ones when their workers say so, or soon."""
        not_begun = await engine.cancel([_handover(row) for row in rows])
        ends: list[AttemptEnd] = []
        waiting = []
        for row in rows:
            if row.is_late:
                seconds = f"{row.timeout_seconds} s"
                text = f"no result within {seconds} after the engine {self._terms.name} took it"
                ends.append(_end(row, Failed("Timeout", text, timed_out=True)))
            elif _handover(row).id in not_begun:
                ends.append(_end(row, Released()))
            else:
                waiting.append(row.lease)
        if waiting:
            await self._database.single(partial(handovers.mark_stopped, leases=waiting))
        if ends:
            await self._finish(ends)


def _end(row: HandoverRow, outcome: Outcome) -> AttemptEnd:
    return AttemptEnd(AttemptRef(row.job_id, row.attempt_no, row.token), outcome)


def _handover(row: HandoverRow) -> Handover:
    begun = row.handed_over_at or datetime.now(UTC)
    return Handover(
        lease=row.lease,
        tenant=row.tenant,
        tenant_id=row.tenant_id,
        definition_key=row.definition_key,
        queue=row.queue,
        payload=row.payload,
        timeout_seconds=row.timeout_seconds,
        max_attempts=row.max_attempts,
        deadline=begun + timedelta(seconds=row.timeout_seconds),
        correlation_id=row.correlation_id,
        parent_id=row.parent_id,
        host=row.host,
    )
