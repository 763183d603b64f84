"""Timelines: waits, attempts and pauses on one axis, and a page of each kind."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st
from playwright.async_api import expect

from fairlead.actions.timeline import MOST_ATTEMPTS
from fairlead.model.job import JobStatus
from fairlead.model.outcome import Change
from fairlead.model.timeline import AttemptSpan
from fairlead.server.console.attempt_comparison import Pair, pair_lines
from fairlead.server.console.timeline import MOST_TICKS, Phase, TimelineEntry, draw_timeline, place_ticks
from fairlead.server.console.timeline_entries import job_phases
from fairlead.store import queue
from tests import given
from tests.acting import act
from tests.console.visiting import NARROW, Console, accessible

pytestmark = pytest.mark.thorough

THEN = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = UUID(int=7)


def seconds(number: float) -> datetime:
    return THEN + timedelta(seconds=number)


def attempt(number: int, start: float, end: float | None, status: str = "failed") -> AttemptSpan:
    return AttemptSpan(
        job_id=JOB,
        attempt_no=number,
        status=status,
        started_at=seconds(start),
        finished_at=None if end is None else seconds(end),
    )


def entry(phases: list[Phase]) -> TimelineEntry:
    return TimelineEntry("job", None, "running", phases)


def test_a_job_waits_runs_pauses_and_runs_again() -> None:
    phases = job_phases(THEN, seconds(20), [attempt(1, 4, 6), attempt(2, 16, 20, "succeeded")])

    assert [(one.kind, one.state, one.start, one.end) for one in phases] == [
        ("wait", "queued", THEN, seconds(4)),
        ("run", "failed", seconds(4), seconds(6)),
        ("retry", "queued", seconds(6), seconds(16)),
        ("run", "succeeded", seconds(16), seconds(20)),
    ]
    drawn = draw_timeline([entry(phases)], seconds(99))
    assert drawn is not None
    [row] = drawn.rows
    assert (row.waited, row.ran, drawn.grows) == (14, 6, False)
    assert [(bar.x, bar.width) for bar in row.bars] == [(0, 20), (20, 10), (30, 50), (80, 20)]


def test_what_has_no_end_reaches_until_now() -> None:
    waits = draw_timeline([entry(job_phases(THEN, None, []))], seconds(8))
    again = draw_timeline([entry(job_phases(THEN, None, [attempt(1, 2, 4)]))], seconds(8))

    assert waits is not None
    assert again is not None
    assert (waits.grows, waits.rows[0].waited, waits.rows[0].ran) == (True, 8, None)
    assert [bar.kind for bar in again.rows[0].bars] == ["wait", "run", "retry"]
    assert again.rows[0].bars[-1].width == 50
    assert draw_timeline([], seconds(8)) is None


def test_attempts_that_are_not_drawn_are_no_wait() -> None:
    many = [attempt(number, 2 * number, 2 * number + 1) for number in range(1, MOST_ATTEMPTS + 2)]

    phases = job_phases(THEN, seconds(900), many)

    assert [one.kind for one in phases].count("run") == MOST_ATTEMPTS
    assert (phases[-1].kind, phases[-1].end) == ("more", seconds(900))
    drawn = draw_timeline([entry(phases)], seconds(900))
    assert drawn is not None
    assert (drawn.rows[0].waited, drawn.rows[0].ran) == (None, None)


@settings(max_examples=80, deadline=None)
@any_of(st.floats(0.001, 4e7))
def test_ticks_are_few_and_on_the_axis(length: float) -> None:
    ticks = place_ticks(length)

    assert 1 <= len(ticks) <= MOST_TICKS + 1
    assert all(0 <= tick.x <= 100 for tick in ticks)
    assert len({tick.label for tick in ticks}) == len(ticks)


async def test_the_pages_of_a_job_and_a_run_have_a_timeline(console: Console) -> None:
    async with console.transaction() as tx:
        job_id = await given.ended_job(tx, "failed")
        child = await given.queued_job(tx, parent_id=job_id)
    page = await console.visit(path=f"/jobs/{job_id}")
    rows = page.locator("#waterfall tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.first.locator("rect.run.failed")).to_have_count(1)
    await expect(rows.nth(1).locator("rect.wait")).to_have_count(1)
    await expect(rows.nth(1).get_by_role("link")).to_have_attribute("href", f"/console/jobs/{child}")
    await accessible(page)

    await page.set_viewport_size({"width": NARROW, "height": 900})
    await accessible(page)


# Two attempts of a job side by side


def test_equal_lines_stand_beside_each_other() -> None:
    assert list(pair_lines(["a", "b", "c"], ["a", "x", "y", "c"])) == [
        Pair("a", "a"),
        Pair("b", "x"),
        Pair(None, "y"),
        Pair("c", "c"),
    ]


async def failed_twice(console: Console) -> UUID:
    job_id = await given.queued_job(console)
    for worker, host, status in (("first", "a", JobStatus.QUEUED), ("second", "b", JobStatus.FAILED)):
        lease = await given.claim(console, job_id, worker=worker)
        ran = {"exit_code": 1, "stderr": f"connect\nhost {host}\nbye"}
        change = Change(status=status, attempt_status="failed", charge=1, message="no host", ran=ran)
        await act(console, queue.finish, [(lease, change)], actor=worker)
        await act(console, queue.stage_due)
    return job_id


async def test_attempts_are_compared_from_the_page_of_their_job(console: Console) -> None:
    job_id = await failed_twice(console)
    page = await console.visit(path=f"/jobs/{job_id}")
    await page.get_by_role("link", name="Compare").click()

    await expect(page.locator(".compared tr.differs", has_text="Worker")).to_contain_text("second")
    output = page.locator("[aria-label='Last lines of output']")
    await expect(output.locator("tr.differs")).to_have_count(1)
    await expect(output.locator("del")).to_have_text("host a")
    await expect(output.locator("ins")).to_have_text("host b")
    await expect(page.locator("[aria-label=Error] tr.differs")).to_have_count(0)
    await accessible(page)
    await page.set_viewport_size({"width": NARROW, "height": 900})
    await accessible(page)
    answer = await page.goto(f"/console/jobs/{job_id}/attempts/compare?left=1&right=7")
    assert answer is not None
    assert answer.status == 404


async def test_a_job_with_one_attempt_has_nothing_to_compare(console: Console) -> None:
    job_id = await given.ended_job(console, "failed")
    page = await console.visit(path=f"/jobs/{job_id}")
    await expect(page.get_by_role("heading", name="Attempts")).to_be_visible()
    await expect(page.get_by_role("link", name="Compare")).to_have_count(0)
    await page.goto(f"/console/jobs/{job_id}/attempts/compare")
    await expect(page.get_by_role("heading", name="Nothing to compare yet")).to_be_visible()
    await accessible(page)
