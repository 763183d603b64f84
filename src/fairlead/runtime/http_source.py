"""The agent's source of jobs: over HTTP, with the same leases and rules as a worker's."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import structlog

from fairlead.errors import FairleadError, LeaseLost, ServerRefused, ServerUnreachable
from fairlead.model.job import JobStatus, Lease
from fairlead.model.log import NewChunk
from fairlead.model.outcome import Change
from fairlead.runtime.http_jobs import (
    HeartbeatAnswer,
    ReceivedJob,
    end_fields,
    failure_fields,
    is_release,
    lease_body,
)
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.log_writer import AppendState, PendingWrite, ProgressUpdate
from fairlead.runtime.server_client import ServerClient
from fairlead.runtime.spool import Spool, SpooledRequest
from fairlead.store.queue import HeartbeatResult

log = structlog.get_logger(__name__)

# A delayed answer may offer a job again that we have accepted meanwhile.
REMEMBERED = 10_000


class HttpSource:
    """Accepts, renews and reports the jobs that the server offers to a host's agent."""

    def __init__(self, line: ServerClient, spool: Spool, host_id: UUID) -> None:
        self.line = line
        self._spool = spool
        self.at = f"/agent/hosts/{host_id}"
        self._inbox: dict[Lease, HeldJob] = {}
        # when each job was accepted
        self._accepted: dict[Lease, float] = {}
        # always true, so that the worker claims whenever it has room: the poller then asks for more
        self.crowded = True
        self.opens_in: float | None = None
        self.asked: Callable[[], None] = lambda: None
        # whether results that cannot be sent stay in the spool for the next start
        self.leaving = False

    # Jobs

    @property
    def waiting(self) -> int:
        """How many slots the offered jobs take that are not accepted yet."""
        return sum(one.job.slots for one in self._inbox.values())

    def give(self, jobs: Sequence[ReceivedJob]) -> int:
        """Add offered jobs to the inbox, each once; how many were new."""
        new = {
            held.lease: held for held in (one.to_held() for one in jobs) if held.lease not in self._accepted
        }
        fresh = len(new.keys() - self._inbox.keys())
        self._inbox.update(new)
        return fresh

    async def claim(self, wanted: int) -> list[HeldJob]:
        """Accept offered jobs that take up to `wanted` slots: from then on the agent owns them."""
        self.asked()
        some, free = list[HeldJob](), wanted
        for one in self._inbox.values():
            if (free := free - one.job.slots) < 0:
                break
            some.append(one)
        answers = await asyncio.gather(*(self._accept(one) for one in some), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, FairleadError):
                raise answer
        return [one for one, answer in zip(some, answers, strict=True) if answer is True]

    async def _accept(self, held: HeldJob) -> bool:
        """Whether the server confirmed the job; if the server is unreachable, the job stays in the inbox for the next claim."""
        lease = held.lease
        try:
            await self._post(lease, "accept", {})
        except ServerUnreachable as error:
            log.warning("accept_postponed", job_id=str(lease.job_id), why=error.message)
            return False
        except FairleadError as error:
            log.warning("accept_refused", job_id=str(lease.job_id), why=error.message)
            del self._inbox[lease]
            return False
        del self._inbox[lease]
        self._accepted[lease] = time.monotonic()
        while len(self._accepted) > REMEMBERED:
            del self._accepted[next(iter(self._accepted))]
        return True

    async def give_back(self) -> None:
        """Release the offered jobs that were not accepted, before the agent ends."""
        while self._inbox:
            lease, _ = self._inbox.popitem()
            try:
                await self._post(lease, "release", {})
            except FairleadError as error:  # another agent gets the job when its lease expires
                log.warning("not_given_back", job_id=str(lease.job_id), why=error.message)

    async def give_back_unstarted(self, held: Sequence[HeldJob]) -> None:
        """Return jobs to the queue. Those that were not accepted need no release: the server offers them again."""
        for job in held:
            with suppress(LeaseLost):
                await self._post(job.lease, "release", {})

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        """Renew leases. Those that do not come back are lost."""
        body = {"leases": [{"job_id": str(one.job_id), **lease_body(one)} for one in leases]}
        return (await self.line.post(f"{self.at}/heartbeat", body, HeartbeatAnswer)).alive(leases)

    # How attempts end

    def list_unsent(self) -> list[Lease]:
        """The leases with results that were not sent yet, oldest first."""
        return self._spool.leases()

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        """Send the outcomes of attempts; each is on disk from before it is sent until the server has answered."""
        for lease, change in ends:
            if not (self._spool.has(lease) and _has_result(self._spool, lease)):
                self._spool.add(lease, self._build_result_request(lease, change))
        told = await asyncio.gather(*(self._send_result(lease) for lease, _ in ends), return_exceptions=True)
        done = {}
        for (lease, _), status in zip(ends, told, strict=True):
            if isinstance(status, BaseException):
                raise status  # the finisher sends all of them again: a repeated result changes nothing
            if status is not None:
                done[lease.job_id] = status
        return done

    async def _send_result(self, lease: Lease) -> JobStatus | None:
        """Send the lease's requests; the job's status after them, None if the result was refused."""
        try:
            return await self.tell(lease)
        except FairleadError as error:
            if not self.leaving:
                raise
            log.warning("result_kept_for_the_next_start", job_id=str(lease.job_id), why=error.message)
            return JobStatus.RUNNING

    async def tell(self, lease: Lease) -> JobStatus | None:
        """Send the spooled requests of a lease, in order; the job's status, None if the result was refused."""
        status: JobStatus | None = JobStatus.RUNNING
        for request in self._spool.requests(lease):
            try:
                answer = await self._post(lease, request.what, request.body)
                status = JobStatus(answer.get("status", JobStatus.RUNNING))
            except (LeaseLost, ServerRefused) as error:
                # the server answers a repeated result again, but not repeated logs
                status, why = None, error.message
        self._spool.forget(lease)
        if status is None:
            log.warning("result_refused", job_id=str(lease.job_id), attempt_no=lease.attempt_no, why=why)
        return status

    def _build_result_request(self, lease: Lease, change: Change) -> SpooledRequest:
        if is_release(change):
            return SpooledRequest("release", {"delay_seconds": change.delay})
        began = self._accepted.get(lease)
        body = {
            "status": "succeeded" if change.attempt_status == "succeeded" else "failed",
            "output": change.output,
            "duration_ms": None if began is None else round(1000 * (time.monotonic() - began)),
            **end_fields(change),
            **(failure_fields(change) if change.error else {}),
        }
        return SpooledRequest("result", body)

    # Output and progress

    async def append_output(self, writes: Sequence[PendingWrite]) -> list[AppendState]:
        """Send the output of attempts, one after the other."""
        return [
            AppendState.STORED if await self.say(said.held.lease, chunks) else AppendState.CLOSED
            for said, chunks in writes
        ]

    async def say(self, lease: Lease, chunks: Sequence[NewChunk]) -> bool:
        """Send output; returns whether more may follow. While the server is unreachable, the spool stores it."""
        body = {"chunks": [chunk._asdict() for chunk in chunks]}
        try:
            if self._spool.has(lease):
                await self.tell(lease)
            answer = await self._post(lease, "logs", body)
        except ServerUnreachable:
            return self._spool.add_logs(lease, SpooledRequest("logs", body))
        except LeaseLost:
            return False
        return not answer["truncated"]

    async def progress(self, steps: Sequence[ProgressUpdate]) -> None:
        """Send the progress of attempts. A lost update is not repeated: the next one replaces it."""
        for lease, percent, message in steps:
            try:
                await self._post(lease, "progress", {"percent": percent, "message": message})
            except LeaseLost:
                log.info("progress_too_late", job_id=str(lease.job_id))

    async def _post(self, lease: Lease, what: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self.line.post(
            f"{self.at}/jobs/{lease.job_id}/{what}", {**body, **lease_body(lease)}, dict[str, Any]
        )


def _has_result(spool: Spool, lease: Lease) -> bool:
    return any(request.what != "logs" for request in spool.requests(lease))
