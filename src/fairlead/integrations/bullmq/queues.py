"""What the driver needs of BullMQ's queues. Redis and PostgreSQL each have an implementation."""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from fairlead.integrations.bullmq.stored_job import JobRef, QueueEvent, StoredJob
from fairlead.integrations.engine import Handover

# The events that the driver looks at.
EVENTS = ("completed", "failed", "progress", "removed", "stalled")
# How long a read waits for events: queues that are watched meanwhile are in the next one.
WAIT_SECONDS = 0.1


class WaitingJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits in a queue, for the importer."""

    id: str
    name: str
    data: Any
    options: dict[str, Any]
    # 0: none, which BullMQ runs first; then lower runs first
    priority: int
    created_at: datetime
    # when a delayed job is due
    due_at: datetime | None
    attempts_made: int
    has_parent: bool
    # by a job scheduler, or a repeatable job
    is_repeated: bool


class LeftCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a queue that do not wait."""

    active: int
    waiting_children: int
    schedulers: int


class Queues(Protocol):
    """The queues of one Redis or PostgreSQL. Its methods raise EngineUnavailable if that cannot be reached."""

    async def add(self, handovers: Sequence[Handover]) -> None:
        """Add a job for each attempt, unless it is there."""

    async def read(self, refs: Sequence[JobRef]) -> list[StoredJob | None]:
        """Jobs in the order of `refs`; None for one that does not exist."""

    async def take_back(self, ref: JobRef) -> bool | None:
        """Remove a job that is not finished, unless a worker holds its lock.

        True: no worker had begun it; False: one had, and has lost it; None: it was not removed.
        """

    async def publish_cancel(self, ref: JobRef) -> None:
        """Publish the event that asks the job's worker to stop."""

    async def remove(self, refs: Sequence[JobRef]) -> list[bool]:
        """Remove jobs, unless a worker holds their lock. Whether each was removed."""

    async def watch(self, names: Iterable[str]) -> None:
        """Read the events of these queues from now on."""

    def unwatch_all_but(self, names: Collection[str]) -> None:
        """Stop reading the events of all other queues."""

    async def read_events(self) -> Sequence[QueueEvent]:
        """New events of the watched queues; waits a moment if there are none."""

    # For the importer

    async def is_paused(self, queue: str) -> bool: ...

    async def set_paused(self, queue: str, *, paused: bool) -> None: ...

    async def count_left(self, queue: str) -> LeftCounts: ...

    async def list_waiting(self, queue: str) -> list[str]:
        """The ids of jobs that wait, first to last: those without a priority, with one, and the delayed ones."""

    def read_waiting(self, queue: str, ids: Sequence[str]) -> AsyncIterator[WaitingJob]:
        """These jobs, without those that have gone."""
