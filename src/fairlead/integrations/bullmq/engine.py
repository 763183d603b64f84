"""The delivery engine: hands attempts to BullMQ and reports what became of them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from time import monotonic
from typing import NamedTuple, TypeVar

import msgspec

from fairlead.errors import EngineUnavailable
from fairlead.integrations.bullmq.queues import Queues
from fairlead.integrations.bullmq.stored_job import (
    LOST,
    STALLED_MESSAGE,
    JobRef,
    QueueEvent,
    StoredJob,
    build_ref,
    build_report,
    find_attempt,
    find_queue_flaw,
    read_outcome,
    read_progress,
)
from fairlead.integrations.engine import DeliveryProgress, Handover, Report
from fairlead.model.outcome import Failed

T = TypeVar("T")

BATCH = 500
# A finished job whose result is stored is kept for this time: another bridge that is about to hand the attempt over
# finds it, and does not add it again.
KEEP_STORED_SECONDS = 30.0
SWEEP_SECONDS = 1.0
# A queue that carries nothing is watched for this time.
IDLE_SECONDS = 60.0


class _Stored(NamedTuple):
    ref: JobRef
    until: float


class BullmqEngine:
    """Carries attempts as BullMQ jobs: one for each attempt, with the id of the handover."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        # finished jobs whose results are stored, the oldest first
        self._stored: deque[_Stored] = deque()
        # jobs that this engine has removed, and when: their removal is no loss
        self._taken_back: dict[JobRef, float] = {}
        # when each queue last carried an attempt
        self._used: dict[str, float] = {}

    async def hand_over(self, handovers: Sequence[Handover]) -> Mapping[str, str]:
        refused = {one.id: flaw for one in handovers if (flaw := find_queue_flaw(one.queue))}
        accepted = [one for one in handovers if one.id not in refused]
        await self._watch(accepted)
        for batch in _split(accepted):
            await self._queues.add(batch)
        return refused

    async def _watch(self, handovers: Sequence[Handover]) -> None:
        now = monotonic()
        used = dict.fromkeys((one.queue for one in handovers if not find_queue_flaw(one.queue)), now)
        await self._queues.watch(used)
        self._used |= used
        self._used = {queue: at for queue, at in self._used.items() if now - at < IDLE_SECONDS}
        self._queues.unwatch_all_but(self._used)

    async def results(self) -> AsyncIterator[Sequence[Report]]:
        while True:
            if reports := await self._read_reports(await self._queues.read_events()):
                yield reports

    async def _read_reports(self, events: Sequence[QueueEvent]) -> list[Report]:
        """Reports on the attempts that these events point to. Outcomes are read from the jobs themselves."""
        running: dict[JobRef, DeliveryProgress] = {}
        ended: dict[JobRef, bool] = {}  # whether an event says that it was removed
        for event in events:
            if find_attempt(event.ref) is None:
                continue
            match event.name:
                case "progress":
                    running[event.ref] = read_progress(event.data)
                case "stalled":
                    running[event.ref] = DeliveryProgress(0.0, STALLED_MESSAGE)
                case "removed" if event.previous not in ("completed", "failed"):
                    ended[event.ref] = True
                case "completed" | "failed":
                    ended.setdefault(event.ref, False)
        reports = [build_report(ref, what) for ref, what in running.items()]
        outcomes = await self._read_outcomes(list(ended), lost={ref for ref, gone in ended.items() if gone})
        return [one for one in reports if one is not None] + outcomes

    async def find_lost(self, handovers: Sequence[Handover]) -> Sequence[Report]:
        await self._watch(handovers)
        refs = [build_ref(handover) for handover in handovers]
        return await self._read_outcomes(refs, lost=set(refs))

    async def _read_outcomes(self, refs: Sequence[JobRef], *, lost: set[JobRef]) -> list[Report]:
        """Reports on the finished ones of these jobs, and on those of `lost` that do not exist."""
        reports = []
        for batch in _split(refs):
            for ref, job in zip(batch, await self._queues.read(batch), strict=True):
                reports.append(self._report_job(ref, job) if job else self._report_missing(ref, lost))
        return [one for one in reports if one is not None]

    def _report_job(self, ref: JobRef, job: StoredJob) -> Report | None:
        outcome = read_outcome(job)
        report = None if outcome is None else build_report(ref, outcome, "\n".join(job.log) or None)
        if report is None:
            return None
        return msgspec.structs.replace(report, acknowledge=partial(self._note_stored, ref))

    def _report_missing(self, ref: JobRef, lost: set[JobRef]) -> Report | None:
        if ref not in lost or ref in self._taken_back:
            return None
        return build_report(ref, Failed("DeliveryLost", LOST))

    async def _note_stored(self, ref: JobRef) -> None:
        self._stored.append(_Stored(ref, monotonic() + KEEP_STORED_SECONDS))

    async def cancel(self, handovers: Sequence[Handover]) -> set[str]:
        not_begun = set()
        for one in handovers:
            ref = build_ref(one)
            was_waiting = await self._take_back(ref)
            if was_waiting is None:
                await self._queues.publish_cancel(ref)
            elif was_waiting:
                not_begun.add(one.id)
        return not_begun

    async def _take_back(self, ref: JobRef) -> bool | None:
        # noted first: the event of the removal may be read before the answer
        self._taken_back[ref] = monotonic()
        removed = None
        try:
            removed = await self._queues.take_back(ref)
        finally:
            if removed is None:
                del self._taken_back[ref]
        return removed

    async def sweep(self) -> None:
        """Remove jobs whose results have been stored for a while, again and again."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = monotonic()
            # the bridge learns of an outage from its own calls, and connects anew
            with suppress(EngineUnavailable):
                await self.remove_stored(before=now)
            self._taken_back = {ref: at for ref, at in self._taken_back.items() if now - at < IDLE_SECONDS}

    async def remove_stored(self, *, before: float) -> None:
        """Remove jobs whose results are stored and which are kept until a time before this one."""
        while self._stored and self._stored[0].until < before:
            batch = [one for one in islice(self._stored, BATCH) if one.until < before]
            await self._queues.remove([one.ref for one in batch])
            for _ in batch:
                self._stored.popleft()


def _split(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
