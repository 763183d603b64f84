"""What a worker's log says of attempts that fail, and of the database when it is back."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from fairlead import Backoff, Fairlead, Fatal, Secret, Settings
from fairlead.cli import log, main
from fairlead.cli.session import CommandSession
from fairlead.errors import DatabaseUnreachable, JobFailed
from fairlead.library.client import EnqueuedJob
from fairlead.runtime import failure_log
from fairlead.runtime.store_source import StoreSource
from tests.waiting import SECONDS
from tests.working import working

SOON = Backoff(base_seconds=0.05, factor=1, jitter=0)
CARD = "4111-1111-1111-1111"


@pytest.fixture
async def fl(settings: Settings) -> AsyncIterator[Fairlead]:
    made = Fairlead(settings=replace(settings, poll_seconds=0.1), actor="tester")

    @made.job(max_attempts=2, backoff=SOON)
    async def pay(card: Annotated[str, Secret()]) -> None:
        raise ValueError(f"declined:\n{card}")

    @made.job
    def refuse() -> None:
        raise Fatal("never")

    @made.job
    async def fine() -> int:
        return 1

    async with made:
        yield made


async def over(job: EnqueuedJob) -> None:
    with suppress(JobFailed):
        await job.result(timeout=SECONDS)


async def lines_of(fl: Fairlead, key: str, **payload: Any) -> list[dict[str, Any]]:
    """What the worker's log has when such a job has ended."""
    with capture_logs() as lines:
        job = await fl.enqueue(key, tenant="acme", payload=payload)
        async with working(fl):
            await over(job)
    told = [dict(line) for line in lines if line["event"] == failure_log.EVENT]
    assert all((line["job_id"], line["tenant"]) == (str(job.id), "acme") for line in told)
    return told


async def test_each_failed_attempt_is_a_line_that_says_what_becomes_of_the_job(fl: Fairlead) -> None:
    retried, ended = await lines_of(fl, "pay", card=CARD)

    assert (retried["log_level"], retried["attempt_no"], retried["becomes"]) == ("warning", 1, "retry")
    assert (retried["retry_in_seconds"], retried["definition_key"]) == (0.1, "pay")
    assert (ended["log_level"], ended["attempt_no"], ended["becomes"]) == ("error", 2, "dead_letter")
    assert "retry_in_seconds" not in ended
    assert (ended["error"], ended["message"]) == ("ValueError", "declined:\n[redacted]")
    assert "in pay" in ended["traceback"]
    assert CARD not in str([retried, ended])


async def test_a_failure_that_is_not_tried_again_is_an_error(fl: Fairlead) -> None:
    [line] = await lines_of(fl, "refuse")
    assert (line["log_level"], line["becomes"], line["error"]) == ("error", "failed", "Fatal")


@pytest.mark.parametrize(
    ("key", "payload"), [("pay", {"card": CARD}), ("refuse", {})], ids=["loop", "thread"]
)
async def test_a_line_about_an_attempt_says_whose_it_is_and_which_worker_ran_it(
    fl: Fairlead, key: str, payload: dict[str, Any]
) -> None:
    line = (await lines_of(fl, key, **payload))[0]

    async with fl.database.transaction() as tx:
        [(tenant_id, worker_id)] = await tx.values(
            "select tenant_id::text, worker_id from fairlead.attempts where job_id = %s and attempt_no = 1",
            [line["job_id"]],
        )
    assert (line["tenant_id"], line["worker_id"]) == (tenant_id, worker_id)
    assert (line["definition_key"], line["attempt_no"]) == (key, 1)


async def test_of_success_nothing_is_said(fl: Fairlead) -> None:
    assert await lines_of(fl, "fine") == []


async def test_how_many_jobs_run_when_it_stops_is_told(fl: Fairlead) -> None:
    told: list[int] = []
    async with working(fl, stopping=told.append):
        pass
    assert told == [0]


@pytest.mark.parametrize(
    ("form", "level"), [("console", "WARNING"), ("console", "INFO"), ("json", "WARNING")]
)
def test_people_see_the_traceback_where_they_ask_for_it_and_machines_in_a_field(
    form: str, level: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_LOG_FORMAT", form)
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)
    log.set_up(getattr(logging, level), CommandSession({}))

    failure_log.log.error(failure_log.EVENT, message="a\nb", traceback="Traceback:\n  there\nValueError: b\n")

    first, *more = capsys.readouterr().err.splitlines()
    if form == "json":
        assert (json.loads(first)["traceback"], more) == ("Traceback:\n  there\nValueError: b\n", [])
    else:
        assert "a b" in first
        assert more == (["Traceback:", "  there", "ValueError: b"] if level == "INFO" else [])


async def test_the_job_is_shown_with_the_traceback_that_was_kept(fl: Fairlead, database_url: str) -> None:
    job = await fl.enqueue("pay", tenant="acme", payload={"card": CARD})
    async with working(fl):
        await over(job)

    env = {"FAIRLEAD_DATABASE_URL": database_url}
    shown = await asyncio.to_thread(CliRunner().invoke, main, ["jobs", "show", str(job.id)], env=env)

    assert "Traceback (most recent call last):" in shown.output
    assert 'raise ValueError(f"declined:\\n{card}")' in shown.output
    assert CARD not in shown.output


async def test_claims_that_work_again_are_told_once(fl: Fairlead, monkeypatch: pytest.MonkeyPatch) -> None:
    claim, times = StoreSource.claim, 0

    async def twice_not(source: StoreSource, wanted: int) -> Any:
        nonlocal times
        times += 1
        if times <= 2:
            raise DatabaseUnreachable("gone")
        return await claim(source, wanted)

    monkeypatch.setattr(StoreSource, "claim", twice_not)
    with capture_logs() as lines:
        job = await fl.enqueue("fine", tenant="acme")
        async with working(fl):
            await over(job)
    told = [line["event"] for line in lines if line["event"].startswith("claim")]
    assert told == ["claim_failed", "claim_failed", "claims_again"]
