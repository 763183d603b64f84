"""What a row of the list says of a job, and offers to do with it: nothing that is always refused."""

import re
from uuid import UUID

from fairlead.actions import jobs
from fairlead.server.problems import CONSOLE
from tests import given
from tests.server import matrix
from tests.server.conftest import module_url, shared_world
from tests.server.world import BASE, World
from tests.tables import each_case

__all__ = ["module_url", "shared_world"]  # fixtures of the server's tests


async def ended_step(world: World) -> tuple[UUID, UUID]:
    """A run whose only step was canceled: the run and the job."""
    async with world.transaction() as tx:
        run_id, job_id = await given.begun_step(tx, matrix.WORKFLOW)
        await jobs.cancel(tx, given.TESTER, job_id)
    return run_id, job_id


async def page(world: World, path: str, who: str = "tenant_admin") -> str:
    answer = await world.call("GET", f"{BASE}{CONSOLE}{path}", who=who)
    assert answer.status_code == 200, answer.text
    return answer.text


def row(listed: str, job: UUID) -> str:
    found = re.search(rf'<tr id="job-{job}".*?</tr>', listed, re.DOTALL)
    assert found is not None, listed
    return found[0]


async def test_an_ended_step_leads_to_its_run_and_offers_no_retry(shared_world: World) -> None:
    run, job = await ended_step(shared_world)

    listed = row(await page(shared_world, "/jobs"), job)
    shown = await page(shared_world, f"/jobs/{job}")
    edited = await page(shared_world, f"/jobs/{job}/edit")
    to_operators = row(await page(shared_world, "/jobs", "operator"), job)

    for text in (listed, shown, edited, to_operators):
        assert f"/jobs/{job}/retry" not in text
    for text in (listed, shown, edited):
        assert f"/workflow-runs/{run}" in text
    assert "Retry its run instead" in edited
    assert 'data-can=""' in listed


async def test_retrying_what_was_selected_says_why_steps_stay(shared_world: World) -> None:
    _, job = await ended_step(shared_world)

    answer = await shared_world.call(
        "POST",
        f"{BASE}{CONSOLE}/bulk-jobs/retry/selected",
        data={"ids": str(job)},
        headers={"HX-Request": "true"},
    )

    assert answer.json()["left"] == "Left as they are: 1 (steps of workflows: retry them with their run)."


async def test_a_canceled_step_cannot_be_undone_by_a_retry(shared_world: World) -> None:
    _, job = await given.begun_step(shared_world, matrix.WORKFLOW)

    answer = await shared_world.call(
        "POST", f"{BASE}{CONSOLE}/jobs/{job}/cancel", headers={"HX-Request": "true"}
    )

    assert "Job canceled." in answer.headers["hx-trigger"]
    assert "/retry" not in answer.headers["hx-trigger"]


@each_case(
    ("counts", "said"),
    [
        ({"attempt_count": 1}, "1"),
        ({"attempt_count": 2, "max_attempts": 1}, "2"),  # retried by hand
        ({"attempt_count": 2, "failure_count": 1}, "2 (1 of 3 failed)"),
        ({"attempt_count": 2, "lost_count": 1, "max_attempts": 1}, "2 (1 lost)"),
        ({"attempt_count": 4, "failure_count": 2, "lost_count": 1}, "4 (2 of 3 failed, 1 lost)"),
    ],
)
async def test_attempts_are_told_as_they_were_used(
    shared_world: World, counts: dict[str, int], said: str
) -> None:
    async with shared_world.transaction() as tx:
        job_id = await given.ended_job(tx, "succeeded")
        await given.set_job(tx, job_id, **counts)
        job, _ = await jobs.show_job(tx, given.TESTER, job_id)
    cell = re.search(r'<td class="num attempts">(.*?)</td>', row(await page(shared_world, "/jobs"), job_id))

    assert job.attempts_in_words == said
    assert cell is not None
    assert re.sub(r"<small>(.*)</small>", r" (\1)", cell[1]) == said


async def test_a_job_that_succeeded_shows_no_old_error(shared_world: World) -> None:
    job_id = await given.failed_job(shared_world, "not yet", status="succeeded")

    shown = (await shared_world.call("GET", f"/jobs/{job_id}")).json()
    [listed] = (await shared_world.call("GET", f"/jobs?q={job_id}")).json()["items"]

    assert (shown["last_error"], listed["last_error"]) == (None, None)
    assert "not yet" not in row(await page(shared_world, "/jobs"), job_id)
