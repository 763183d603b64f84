"""Timelines: waits, attempts and pauses on one axis, and a page of each kind."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st
from playwright.async_api import expect

from fairlead.actions.timeline import MOST_ATTEMPTS
from fairlead.model.timeline import AttemptSpan
from fairlead.server.console.timeline import MOST_TICKS, Phase, TimelineEntry, draw_timeline, place_ticks
from fairlead.server.console.timeline_entries import job_phases
from tests import given
from tests.console.visiting import NARROW, Console, accessible

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
        child = await given.queued_job(tx)
        await tx.run("update fairlead.job_records set parent_id = %s where id = %s", [job_id, child])
    page = await console.visit(path=f"/jobs/{job_id}")
    rows = page.locator("#waterfall tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.first.locator("rect.run.failed")).to_have_count(1)
    await expect(rows.nth(1).locator("rect.wait")).to_have_count(1)
    await expect(rows.nth(1).get_by_role("link")).to_have_attribute("href", f"/console/jobs/{child}")
    await accessible(page)

    await page.set_viewport_size({"width": NARROW, "height": 900})
    await accessible(page)
