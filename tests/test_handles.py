"""What enqueueing gives back."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from fairlead import Fairlead
from fairlead.errors import ResultTimeout
from fairlead.model.job import JobStatus
from fairlead.model.workflow_run import RunStatus
from tests.given import TENANT

SECONDS = 0.2


def ending_late(read: Callable[[UUID], Awaitable[Any]], status: str) -> Callable[[UUID], Awaitable[Any]]:
    """What `read` sees, but ended as soon as the time to wait for it is up, and no sooner."""
    end = time.monotonic() + SECONDS

    async def look(wanted: UUID) -> Any:
        seen = await read(wanted)
        return seen if time.monotonic() < end else replace(seen, status=status, output="at last")

    return look


async def test_a_job_that_ends_in_the_last_moment_has_a_result(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await fl.enqueue("anything", tenant=TENANT)
    monkeypatch.setattr(fl, "read", ending_late(fl.read, JobStatus.SUCCEEDED))

    assert await job.result(timeout=SECONDS) == "at last"


async def test_a_run_that_ends_in_the_last_moment_has_a_result(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await fl.chain("anything", tenant=TENANT)
    monkeypatch.setattr(fl, "run_standing", ending_late(fl.run_standing, RunStatus.SUCCEEDED))

    assert await run.result(SECONDS, look_seconds=3600) == "at last"


async def test_who_waited_in_vain_is_told_what_to_ask(fl: Fairlead) -> None:
    job = await fl.enqueue("anything", tenant=TENANT)
    run = await fl.chain("anything", tenant=TENANT)

    with pytest.raises(ResultTimeout, match=f"still queued after 0.01 s.*fairlead jobs why {job.id}$"):
        await job.result(timeout=0.01)
    with pytest.raises(ResultTimeout, match=f"still goes on after 0 s.*fairlead workflows run {run.id}$"):
        await run.result(0)
