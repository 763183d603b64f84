"""Two attempts of a job side by side."""

from uuid import UUID

from playwright.async_api import expect

from fairlead.server.console.attempt_comparison import Pair, pair_lines
from tests import given
from tests.console.visiting import NARROW, Console, accessible

_SECOND = """
insert into fairlead.job_attempts (
    job_id, attempt_no, tenant_id, token, worker_id, status, started_at, finished_at, exit_code, error_text, stderr_tail)
select job_id, 2, tenant_id, token, 'second', 'lost', started_at, finished_at, 9, %s, %s
from fairlead.job_attempts where job_id = %s
"""
_FIRST = "update fairlead.job_attempts set worker_id = 'first', exit_code = 1, error_text = %s, stderr_tail = %s where job_id = %s"


def test_equal_lines_stand_beside_each_other() -> None:
    assert list(pair_lines(["a", "b", "c"], ["a", "x", "y", "c"])) == [
        Pair("a", "a"),
        Pair("b", "x"),
        Pair(None, "y"),
        Pair("c", "c"),
    ]


async def given_attempts(console: Console) -> UUID:
    async with console.transaction() as tx:
        job_id = await given.ended_job(tx, "failed")
        await tx.run(_FIRST, ["no host", "connect\nhost a\nbye", job_id])
        await tx.run(_SECOND, ["no host", "connect\nhost b\nbye", job_id])
        await tx.run("update fairlead.job_records set attempt_count = 2 where id = %s", [job_id])
    return job_id


async def test_attempts_are_compared_from_the_page_of_their_job(console: Console) -> None:
    job_id = await given_attempts(console)
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
    # the usage knows nothing of the second attempt
    await console.make("delete from fairlead.job_attempts where attempt_no = 2")
    await console.make("update fairlead.job_records set attempt_count = 1")


async def test_a_job_with_one_attempt_has_nothing_to_compare(console: Console) -> None:
    async with console.transaction() as tx:
        job_id = await given.ended_job(tx, "failed")
    page = await console.visit(path=f"/jobs/{job_id}")
    await expect(page.get_by_role("heading", name="Attempts")).to_be_visible()
    await expect(page.get_by_role("link", name="Compare")).to_have_count(0)
    await page.goto(f"/console/jobs/{job_id}/attempts/compare")
    await expect(page.get_by_role("heading", name="Nothing to compare yet")).to_be_visible()
    await accessible(page)
