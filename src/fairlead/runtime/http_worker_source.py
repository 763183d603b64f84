"""The JobSource of a worker over HTTP: with the same leases and rules as one that is connected to the database."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import structlog

from fairlead.errors import FairleadError, LeaseLost, ServerBusy, ServerRefused
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.runtime.claim_requests import ClaimRequests
from fairlead.runtime.finisher import unstorable_change
from fairlead.runtime.http_jobs import HeartbeatAnswer, end_fields, failure_fields, is_release, lease_body
from fairlead.runtime.job_source import EndsPostponed, HeldJob, release_unstarted
from fairlead.runtime.log_writer import AppendState, PendingWrite, ProgressUpdate
from fairlead.runtime.server_client import ServerClient
from fairlead.store.queue import HeartbeatResult

log = structlog.get_logger(__name__)

T = TypeVar("T")

# How many reports are sent at once.
CONCURRENT_REPORTS = 16
# A report that the server's rate limit refuses is sent again this often before its caller gets the error.
BUSY_TRIES = 3
# The most chunks of output in one request.
MOST_CHUNKS = 1000
# The most leases in one heartbeat.
MOST_LEASES = 1000


class _EndAnswer(msgspec.Struct):
    status: JobStatus


class _LogsAnswer(msgspec.Struct):
    truncated: bool


class _ProgressAnswer(msgspec.Struct):
    job_id: UUID


class HttpWorkerSource:
    """Claims, renews and reports jobs by the routes below `/worker/jobs`."""

    def __init__(
        self, client: ServerClient, claims: ClaimRequests | None = None, *, ending: set[Lease] | None = None
    ) -> None:
        """Without `claims` it claims nothing. `ending`: the leases whose outcomes are being sent, shared by sources."""
        self._client = client
        self._claims = claims
        self._ending = set() if ending is None else ending
        self._slots = asyncio.Semaphore(CONCURRENT_REPORTS)
        # the server's long poll waits until a limit has room
        self.crowded = False
        self.opens_in: float | None = None
        self._is_leaving = False

    def leave(self) -> None:
        """From now on give up outcomes that cannot be sent: their jobs run again when the leases expire."""
        self._is_leaving = True

    async def claim(self, wanted: int) -> list[HeldJob]:
        """Claim up to `wanted` jobs; waits for the first one."""
        if self._claims is None:
            return []
        jobs, ours = await self._claims.claim(wanted)
        held = [job.to_held() for job in jobs]
        if ours:
            return held
        try:
            await self._release(held)
        except (FairleadError, EndsPostponed) as error:  # the jobs run again when their leases expire
            log.warning("claim_not_given_back", why=str(error))
        return []

    async def give_back_unstarted(self, held: Sequence[HeldJob]) -> None:
        """Return jobs to the queue: these, and those of claims whose answers the worker has not read."""
        await self._release(held)
        if self._claims is not None:
            await self._release([job.to_held() for job in await self._claims.take_withdrawn()])

    async def _release(self, held: Sequence[HeldJob]) -> None:
        """Release jobs that were not started, if their leases still exist."""
        await self.finish([(one.lease, release_unstarted(one)) for one in held])

    async def give_back(self) -> None:
        """Release the jobs of a claim whose answer did not arrive, before the worker ends."""
        if self._claims is None:
            return
        try:
            await self._release([job.to_held() for job in await self._claims.take_unanswered()])
        except (FairleadError, EndsPostponed) as error:  # the jobs run again when their leases expire
            log.warning("claim_not_given_back", why=str(error))

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        """Renew leases. Leases that are missing from the result are lost."""
        batches = [leases[first : first + MOST_LEASES] for first in range(0, len(leases), MOST_LEASES)]
        answers = await asyncio.gather(*(self._renew(batch) for batch in batches))
        alive = {lease: beat for answer in answers for lease, beat in answer.items()}
        # the server may have stored the outcome and not answered yet: that lease is not lost
        ending = {lease for lease in leases if lease not in alive and lease in self._ending}
        return alive | dict.fromkeys(ending, HeartbeatResult(renewed=True, cancel=False))

    async def _renew(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        body = {"leases": [{"job_id": str(one.job_id), **lease_body(one)} for one in leases]}
        answer = await _repeat_while_busy(
            lambda: self._client.post("/worker/jobs/heartbeat", body, HeartbeatAnswer)
        )
        return answer.alive(leases)

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        """Report the outcomes of attempts; each is safe to repeat. Raises EndsPostponed if some could not be sent."""
        leases = [lease for lease, _ in ends]
        self._ending.update(leases)
        try:
            answers = await asyncio.gather(*(self._send_end(*end) for end in ends), return_exceptions=True)
        finally:
            self._ending.difference_update(leases)
        done, left, failures = dict[UUID, JobStatus](), list[Lease](), list[FairleadError]()
        for (lease, _), answer in zip(ends, answers, strict=True):
            if isinstance(answer, FairleadError):
                left.append(lease)
                failures.append(answer)
            elif isinstance(answer, BaseException):
                raise answer
            elif answer is not None:
                done[lease.job_id] = answer
        if failures and not done:
            raise failures[0]
        if failures:
            raise EndsPostponed(done, left, failures[0].message)
        return done

    async def _send_end(self, lease: Lease, change: Change) -> JobStatus | None:
        """Report an outcome; the job's status, None if the lease is lost."""
        try:
            return await self._end(lease, change)
        except LeaseLost:
            return None
        except ServerRefused as error:
            log.warning("outcome_refused", job_id=str(lease.job_id), why=error.message)
            return await self._send_refused(lease, error)
        except FairleadError as error:
            if not self._is_leaving:
                raise
            log.warning("outcome_not_sent", job_id=str(lease.job_id), why=error.message)
            return JobStatus.RUNNING

    async def _send_refused(self, lease: Lease, why: ServerRefused) -> JobStatus | None:
        """Report a failure instead of an outcome that the server refuses, such as an output that is too large."""
        try:
            return await self._end(lease, unstorable_change(why.message, place="server"))
        except (LeaseLost, ServerRefused):
            return None

    async def _end(self, lease: Lease, change: Change) -> JobStatus:
        if is_release(change):
            what, body = "release", {"delay_seconds": change.delay}
        elif change.error:
            what, body = "fail", {**end_fields(change), **failure_fields(change)}
        else:
            what, body = "complete", {**end_fields(change), "output": change.output}
        return (await self._report(lease, what, body, _EndAnswer)).status

    async def append_output(self, writes: Sequence[PendingWrite]) -> list[AppendState]:
        """Send the output of attempts: the server stores a repeated chunk once."""
        return await asyncio.gather(*(self._append(one) for one in writes))

    async def _append(self, write: PendingWrite) -> AppendState:
        lease, chunks = write.said.held.lease, write.chunks
        try:
            for first in range(0, len(chunks), MOST_CHUNKS):
                some = [chunk._asdict() for chunk in chunks[first : first + MOST_CHUNKS]]
                if (await self._report(lease, "logs", {"chunks": some}, _LogsAnswer)).truncated:
                    return AppendState.CLOSED
        except LeaseLost:
            return AppendState.CLOSED
        except ServerRefused as error:
            log.warning("output_refused", job_id=str(lease.job_id), why=error.message)
            return AppendState.CLOSED
        return AppendState.STORED

    async def progress(self, steps: Sequence[ProgressUpdate]) -> None:
        """Send the progress of attempts. A lost update is not repeated: the next one replaces it."""
        await asyncio.gather(*(self._send_progress(*step) for step in steps))

    async def _send_progress(self, lease: Lease, percent: float, message: str) -> None:
        try:
            await self._report(lease, "progress", {"percent": percent, "message": message}, _ProgressAnswer)
        except (LeaseLost, ServerRefused) as error:
            log.info("progress_refused", job_id=str(lease.job_id), why=error.message)

    async def _report(self, lease: Lease, what: str, body: dict[str, Any], kind: type[T]) -> T:
        path, whole = f"/worker/jobs/{lease.job_id}/{what}", {**body, **lease_body(lease)}
        async with self._slots:
            return await _repeat_while_busy(lambda: self._client.post(path, whole, kind))


async def _repeat_while_busy(send: Callable[[], Awaitable[T]]) -> T:
    """Send a request, again after a pause if the server's rate limit refuses it."""
    for _ in range(BUSY_TRIES):
        try:
            return await send()
        except ServerBusy as error:
            await asyncio.sleep(error.retry_after)
    return await send()
