"""Moves the jobs that wait in a BullMQ queue over to Fairlead, once each.

A job is enqueued in Fairlead first and then removed from BullMQ. Its id in Fairlead follows from its queue, its id and its
creation time in BullMQ: an import that was interrupted finds it there, and only removes it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Protocol
from uuid import UUID

import msgspec

from fairlead.errors import (
    DefinitionInactive,
    DefinitionUnknown,
    InvalidInput,
    JobIdTaken,
    PayloadInvalid,
    PayloadNotJson,
    PayloadTooDeep,
    PayloadTooLarge,
)
from fairlead.integrations.bullmq.queues import LeftCounts, Queues, WaitingJob
from fairlead.integrations.bullmq.stored_job import OPTION, JobRef, find_queue_flaw
from fairlead.model.job import MAX_ATTEMPTS, MAX_PRIORITY, Job, JobStatus, NewJob

BATCH = 200
# Errors that are about one job: the others are imported.
REFUSALS = (
    DefinitionInactive,
    DefinitionUnknown,
    InvalidInput,
    PayloadInvalid,
    PayloadNotJson,
    PayloadTooDeep,
    PayloadTooLarge,
)


class Left(StrEnum):
    """Why a job stays in BullMQ."""

    ACTIVE = "active"
    CANCELED = "canceled"
    CHILD = "child"
    PARENT = "parent"
    REFUSED = "refused"
    REPEATED = "repeated"
    SCHEDULER = "scheduler"
    TAKEN = "taken"


LEFT_REASONS = {
    Left.ACTIVE: "a worker runs them: wait until they have ended",
    Left.CANCELED: "their copies in Fairlead were canceled: remove them from BullMQ, or retry the copies",
    Left.CHILD: "children of flows: their parents wait for them in BullMQ",
    Left.PARENT: "parents of flows: they wait for their children",
    Left.REFUSED: "Fairlead refused them",
    Left.REPEATED: "the next runs of job schedulers",
    Left.SCHEDULER: "job schedulers: create triggers with a schedule, then remove them",
    Left.TAKEN: "a worker took them meanwhile; their copies in Fairlead were canceled",
}


class Target(Protocol):
    """Fairlead, as the importer uses it."""

    async def enqueue_many(self, requests: Sequence[NewJob]) -> object: ...

    async def read(self, job_id: UUID) -> Job: ...

    async def cancel(self, job_id: UUID) -> object: ...


class ImportPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to import, and to which tenant and definition; without a definition, each job's name is its definition's key."""

    queue: str
    tenant: str
    definition: str | None
    # the priority of a job without one, by definition
    default_priorities: Mapping[str, int] = {}
    dry_run: bool = False
    # resume the queue afterwards, even if it was paused before
    resume: bool = False


class ImportResult(msgspec.Struct, kw_only=True):
    """What an import did, or, as a dry run, would do."""

    queue: str
    imported: int = 0
    # by an import that was interrupted; now removed from BullMQ
    imported_before: int = 0
    # handed over by `fairlead bridge`: they are Fairlead's already
    handed_over: int = 0
    # the jobs that stay in BullMQ, by reason
    left: dict[str, int] = {}
    # why Fairlead refused some of them
    refusals: list[str] = []
    is_paused: bool = False


def build_job_id(queue: str, job: WaitingJob) -> UUID:
    """The id of a BullMQ job in Fairlead: a UUID of version 7 with the time at which BullMQ got it.

    BullMQ numbers its jobs: the number keeps the order of those of one millisecond.
    """
    milliseconds = int(job.created_at.timestamp() * 1000)
    digest = sha256(msgspec.json.encode([queue, job.id, milliseconds])).digest()
    number = int(job.id) if job.id.isdecimal() else int.from_bytes(digest[:2], "big")
    rest = int.from_bytes(digest[2:10], "big") >> 2
    return UUID(
        int=(milliseconds & 0xFFFF_FFFF_FFFF) << 80 | 7 << 76 | (number & 0xFFF) << 64 | 2 << 62 | rest
    )


def build_request(plan: ImportPlan, job: WaitingJob) -> NewJob:
    """The request that enqueues a BullMQ job in Fairlead."""
    definition = job.name if plan.definition is None else plan.definition
    attempts = job.options.get("attempts")
    return NewJob(
        id=build_job_id(plan.queue, job),
        definition=definition,
        tenant=plan.tenant,
        payload=job.data,
        priority=_convert_priority(job.priority, plan.default_priorities.get(definition, 100)),
        scheduled_for=job.due_at,
        # what is left of them; a job without retries takes the definition's
        max_attempts=min(MAX_ATTEMPTS, max(1, attempts - job.attempts_made))
        if isinstance(attempts, int) and attempts > 1
        else None,
        source_ref=f"bullmq:{plan.queue}:{job.id}"[:1000],
    )


def _convert_priority(priority: int, default: int) -> int | None:
    """Lower runs first in both; a BullMQ job without a priority runs before all that have one."""
    return min(MAX_PRIORITY, default + priority) if priority else None


def _find_reason(job: WaitingJob) -> Left | None:
    """Why a waiting job cannot be moved, or None."""
    if job.has_parent:
        return Left.CHILD
    return Left.REPEATED if job.is_repeated else None


class Importer:
    """One import of one queue."""

    def __init__(
        self, queues: Queues, target: Target, plan: ImportPlan, *, progress: Callable[[int, int], None]
    ) -> None:
        if flaw := find_queue_flaw(plan.queue):
            raise InvalidInput(f"There can be no such queue: {flaw}.")
        self._queues = queues
        self._target = target
        self._plan = plan
        self._progress = progress
        self._left: Counter[Left] = Counter()
        self._result = ImportResult(queue=plan.queue)

    async def run(self) -> ImportResult:
        """Import everything that waits. The queue is paused meanwhile, so that no worker takes what is moved."""
        plan, queue = self._plan, self._plan.queue
        was_paused = await self._queues.is_paused(queue)
        if not plan.dry_run and not was_paused:
            await self._queues.set_paused(queue, paused=True)
        try:
            await self._import_all()
        finally:
            if not plan.dry_run and (plan.resume or not was_paused):
                await self._queues.set_paused(queue, paused=False)
        self._note_others(await self._queues.count_left(queue))
        self._result.is_paused = await self._queues.is_paused(queue)
        self._result.left = {str(reason): number for reason, number in sorted(self._left.items())}
        return self._result

    async def _import_all(self) -> None:
        ids = await self._queues.list_waiting(self._plan.queue)
        for start in range(0, len(ids), BATCH):
            some = ids[start : start + BATCH]
            movable = []
            async for job in self._queues.read_waiting(self._plan.queue, some):
                if OPTION in job.options:
                    self._result.handed_over += 1
                elif (reason := _find_reason(job)) is not None:
                    self._left[reason] += 1
                else:
                    movable.append(job)
            await self._move(movable)
            self._progress(start + len(some), len(ids))

    async def _move(self, jobs: Sequence[WaitingJob]) -> None:
        requests = {job.id: build_request(self._plan, job) for job in jobs}
        if self._plan.dry_run:
            self._result.imported += len(requests)
            return
        try:
            await self._target.enqueue_many(list(requests.values()))
        except (*REFUSALS, JobIdTaken):  # all or none: find the one that is refused or was there
            for job_id, request in requests.items():
                if await self._enqueue(request):
                    await self._remove({job_id: request})
            return
        self._result.imported += len(requests)
        await self._remove(requests)

    async def _enqueue(self, request: NewJob) -> bool:
        """Enqueue one job. Whether it is in Fairlead now."""
        try:
            await self._target.enqueue_many([request])
        except JobIdTaken:
            found = await self._target.read(request.id)
            if found.status is JobStatus.CANCELED:
                self._left[Left.CANCELED] += 1
                return False
            self._result.imported_before += 1
        except REFUSALS as error:
            self._left[Left.REFUSED] += 1
            if error.message not in self._result.refusals and len(self._result.refusals) < 5:
                self._result.refusals.append(error.message)
            return False
        else:
            self._result.imported += 1
        return True

    async def _remove(self, requests: Mapping[str, NewJob]) -> None:
        refs = [JobRef(self._plan.queue, job_id) for job_id in requests]
        removed = await self._queues.remove(refs)
        for was_removed, request in zip(removed, requests.values(), strict=True):
            if not was_removed:
                await self._target.cancel(request.id)
                self._result.imported -= 1
                self._left[Left.TAKEN] += 1

    def _note_others(self, left: LeftCounts) -> None:
        for reason, number in (
            (Left.ACTIVE, left.active),
            (Left.PARENT, left.waiting_children),
            (Left.SCHEDULER, left.schedulers),
        ):
            if number:
                self._left[reason] += number


async def import_queue(
    queues: Queues, target: Target, plan: ImportPlan, *, progress: Callable[[int, int], None]
) -> ImportResult:
    """Move what waits in a BullMQ queue over to Fairlead. `progress` is called with the numbers done and in total."""
    return await Importer(queues, target, plan, progress=progress).run()
