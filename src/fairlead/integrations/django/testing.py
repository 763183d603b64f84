"""Helpers for tests of Django projects, on Django's test database.

Django's TestCase rolls its transaction back, and a task in it is never committed: there, look at `task.get_result`, or let
settings of tests use Django's own ImmediateBackend. Run tasks in a TransactionTestCase.
"""

import asyncio
from collections.abc import Iterable

from fairlead.actions.jobs import JobFilter
from fairlead.integrations.django.project import build_app, find_backend
from fairlead.library.app import Fairlead
from fairlead.model.job import JobStatus


def run_due_tasks(*, backend: str | None = None, queues: Iterable[str] = (), limit: int | None = None) -> int:
    """Run the tasks that are due, and those that they enqueue, in this process; with `limit`, one by one. Returns their number."""
    fl = build_app(find_backend(backend), queues)
    return asyncio.run(_run_all(fl) if limit is None else _run_singly(fl, limit))


def cancel_waiting_tasks(*, backend: str | None = None) -> int:
    """Cancel all jobs that wait: Django does not empty Fairlead's tables after a TransactionTestCase. Returns their number."""
    return asyncio.run(_cancel_all(Fairlead(settings=find_backend(backend).load_settings())))


async def _run_all(fl: Fairlead) -> int:
    total = 0
    async with fl:
        while ran := (await fl.tick()).ran:
            total += ran
    return total


async def _run_singly(fl: Fairlead, limit: int) -> int:
    async with fl:
        return sum([(await fl.tick(1)).ran for _ in range(limit)])


async def _cancel_all(fl: Fairlead) -> int:
    async with fl:
        return (await fl.cancel_jobs(JobFilter(status=[JobStatus.QUEUED]))).count
