"""Jobs: find, cancel and retry them, one by one and in bulk."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from fairlead.actions import bulk_jobs, durable, jobs, replay_job
from fairlead.actions import why as explanation
from fairlead.actions.bulk_jobs import BulkResult
from fairlead.actions.jobs import JobFilter, JobPage
from fairlead.errors import Fault, InvalidInput
from fairlead.library.client import Client
from fairlead.model.durable import JobStep
from fairlead.model.durable_history import JobHistory
from fairlead.model.job import Job
from fairlead.model.page import Page
from fairlead.model.request import parse_id
from fairlead.model.why import Why


class Jobs(Client):
    """`cancel`, `retry` and `why` are about one job; `list_jobs`, `cancel_jobs` and `retry_jobs` about those of a filter."""

    async def cancel(self, job_id: UUID | str) -> Job:
        """Cancel a job: at once if it is queued; if it runs, its worker is asked to stop it."""
        return await self._search(jobs.cancel, parse_id(job_id))

    async def retry(
        self,
        job_id: UUID | str,
        *,
        payload: Mapping[str, Any] | None = None,
        from_step: str | int | None = None,
    ) -> Job:
        """Queue a failed, dead-lettered or canceled job again, with a fresh budget.

        A durable function goes on after its recorded steps; with `from_step`, the name or the place of a step, it forgets that
        step and all that came after it.
        """
        return await self._search(
            jobs.retry, self.catalog, parse_id(job_id), payload=payload, from_step=from_step
        )

    async def replay(self, job_id: UUID | str, *, from_step: str | int | None = None) -> Job:
        """Enqueue an ended job again as a new job with the same payload; the original stays as it is.

        A durable function goes on after copies of the records before `from_step`, the name or the place of a step; without a
        step it runs from the start.
        """
        return await self._search(replay_job.replay, self.catalog, parse_id(job_id), from_step=from_step)

    async def signal(self, job_id: UUID | str, name: str, data: Any = None) -> UUID:
        """Send a signal to a durable function: it ends the first wait for its name, or is kept for the next. Its id."""
        return await self._search(durable.send_signal, parse_id(job_id), name, data)

    async def steps(
        self, job_id: UUID | str, *, limit: int = 1000, after: str | None = None
    ) -> Page[JobStep]:
        """The recorded steps and waits of a durable function. If it has `more`, go on `after` the place of the last one."""
        return await self._search(durable.list_steps, parse_id(job_id), after=after, limit=limit)

    async def history(self, job_id: UUID | str) -> JobHistory:
        """A job of a durable function with all that it has recorded: `fairlead.testing.replay` compares new code with it."""
        return await self._search(durable.get_history, parse_id(job_id))

    async def why(self, job_id: UUID | str) -> Why:
        """Why a job is not running: every reason that applies, most decisive first."""
        return await self._search(explanation.explain_job, parse_id(job_id))

    async def list_jobs(self, wanted: JobFilter, *, limit: int = 50, cursor: str | None = None) -> JobPage:
        """A page of the jobs that match, newest first. While it has a `next_cursor`, older jobs follow: a page may be
        short, since it searches for a bounded time.
        """
        _require_filter(wanted)
        return await self._act_in(wanted.tenant, jobs.list_jobs, wanted, limit=limit, cursor=cursor)

    async def cancel_jobs(
        self,
        wanted: JobFilter,
        *,
        limit: int = bulk_jobs.MOST,
        dry_run: bool = False,
        cursor: str | None = None,
    ) -> BulkResult:
        """Cancel the queued and running jobs that match; `dry_run` only counts them. Go on from a `next_cursor`."""
        _require_filter(wanted)
        return await self._act_in(
            wanted.tenant, bulk_jobs.cancel, wanted, limit=limit, dry_run=dry_run, cursor=cursor
        )

    async def retry_jobs(
        self,
        wanted: JobFilter,
        *,
        limit: int = bulk_jobs.MOST,
        dry_run: bool = False,
        cursor: str | None = None,
    ) -> BulkResult:
        """Queue the failed, dead-lettered and canceled jobs that match again; `dry_run` only counts them."""
        _require_filter(wanted)
        return await self._act_in(
            wanted.tenant, bulk_jobs.retry, wanted, limit=limit, dry_run=dry_run, cursor=cursor
        )


def _require_filter(wanted: Any) -> None:
    if not isinstance(wanted, JobFilter):
        raise InvalidInput(
            f"Jobs are selected by a JobFilter, such as JobFilter(status=[JobStatus.QUEUED]), not by {wanted!r:.100}.",
            [Fault("wanted", "must be a JobFilter")],
        )
