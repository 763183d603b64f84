"""Lists as CSV: what a list shows, with its filters, to those who may see the list."""

import csv
import html
import io
import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from fastapi import Request
from playwright.async_api import expect

from fairlead.actions import definitions, error_groups, hosts, webhooks, workflows
from fairlead.actions.dispatch import dispatch
from fairlead.actions.workflows import RunRequest
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.server.console.csv_download import PAGE_ROWS, download_csv, fields
from fairlead.server.console.visit import Visit
from fairlead.server.problems import CONSOLE
from tests import given
from tests.acting import act
from tests.console.test_webhooks_page import HTTP
from tests.console.visiting import Console
from tests.server.conftest import module_url, shared_world
from tests.server.world import BASE, World
from tests.tables import each_case

__all__ = ["module_url", "shared_world"]  # fixtures of the server's tests

FIRED = "/triggers/{trigger}"
RUN = "/workflow-runs/{run}"
HOST = "/hosts/{host}"
# Each page that offers a download, and what a row of it has.
LISTS = {
    "/jobs?q=status%3Afailed": {"status": "failed", "definition_key": "greet"},
    "/errors?status=failed": {"failed": "1", "definition_key": "greet", "tenant": given.TENANT},
    "/triggers": {"label": "On news", "trigger_type": "event", "is_enabled": "true"},
    FIRED: {"outcome": "enqueued"},
    "/events": {"name": given.EVENT, "tenant": given.TENANT},
    "/sources": {"name": "orders", "driver": "nats", "state": "running", "messages": "5"},
    "/webhooks": {"url": "https://hooks.example.com/", "event_name": "job.failed"},
    "/workflows": {"key": "onboard", "version": "1", "steps": "2"},
    "/workflow-runs": {"key": "onboard", "status": "running", "steps": "2"},
    RUN: {"name": "second", "definition_key": "anything", "state": "waiting"},
    "/hosts": {"name": "host", "tenant": given.TENANT, "online": "false"},
    HOST: {"name": "lobby", "kind": "server", "host": "host"},
    "/audit": {"action": "trigger_created", "tenant": given.TENANT},
    "/members": {"email": f"viewer.{given.TENANT}@fairlead.test", "role": "viewer"},
    "/tokens": {"name": f"{given.TENANT}.viewer", "state": "valid"},
    "/definitions": {"key": "greet", "kind": "function", "is_active": "true"},
    "/workers": {"worker_id": "web-1:7:abc", "queues": "greet, anything", "stale": "false"},
    "/tenants": {"tenant": given.OTHER, "weight": "1"},
    "/usage": {"definition_key": "greet"},
}


@pytest.fixture(scope="module")
async def full(shared_world: World) -> dict[str, Any]:
    """Rows of each list, some of which a filter leaves out: the ids that its pages need."""
    await shared_world.signed_in(Role.VIEWER)
    host = shared_world.hosts[given.TENANT]
    tenant = shared_world.tenants[given.TENANT]
    async with shared_world.fl.database.transaction() as tx:
        await given.ended_job(tx, "failed")
        await error_groups.fold_failures(tx)
        trigger = await given.trigger(tx, label="On news")
        await given.trigger(tx, label="Nightly", cron_expr="0 2 * * *", is_enabled=False)
        for name in (given.EVENT, given.EVENT, "other.event"):
            await given.event(tx, name=name)
        await definitions.patch(tx, given.TESTER, "http.request", HTTP)
        await webhooks.add(
            tx, given.TESTER, given.TENANT, url="https://hooks.example.com/", events=["job.failed"]
        )
        workflow = {
            "key": "onboard",
            "steps": [
                {"name": "first", "definition": "anything"},
                {"name": "second", "definition": "anything", "after": ["first"]},
            ],
        }
        await workflows.publish(tx, given.TESTER, given.TENANT, workflow)
        asked = RunRequest(tenant=given.TENANT)
        canceled = await workflows.start(tx, given.TESTER, "onboard", asked)
        await workflows.cancel(tx, given.TESTER, canceled.id)
        run = await workflows.start(tx, given.TESTER, "onboard", asked)
        await hosts.add_resource(
            tx, given.TESTER, tenant_id=tenant, host_id=host, kind="server", name="lobby"
        )
        # seen in an hour, so that neither is silent when the tests of this module come to its list
        await given.add_worker(tx, "web-1:7:abc", seen=given.HOUR, definitions=("greet", "anything"))
        await given.add_source(tx, "orders", tenant=None, seen=given.HOUR, messages=5)
    await act(shared_world.fl.database, dispatch, given.catalog(), limit=10)
    return {"trigger": trigger.id, "run": run.id, "host": host}


async def show(world: World, path: str, who: str = "super_admin") -> str:
    answer = await world.call("GET", f"{BASE}{CONSOLE}{path}", who=who)
    assert answer.status_code == 200, answer.text
    return answer.text


async def download(world: World, path: str, who: str = "super_admin") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(await show(world, path, who))))


async def follow(world: World, path: str) -> list[dict[str, str]]:
    """Download what a page offers."""
    [link] = re.findall(rf'<a class="button[^"]*" href="{CONSOLE}([^"]+\.csv[^"]*)"', await show(world, path))
    return await download(world, html.unescape(link))


@pytest.mark.thorough
@each_case("path", LISTS)
async def test_each_list_offers_its_rows(shared_world: World, full: dict[str, Any], path: str) -> None:
    rows = await follow(shared_world, path.format(**full))

    assert any(row.items() >= LISTS[path].items() for row in rows), rows


@each_case(
    ("path", "column", "found"),
    [
        ("/errors?status=failed", "definition_key", {"greet"}),
        ("/triggers?type=event", "trigger_type", {"event"}),
        ("/triggers?enabled=yes", "is_enabled", {"true"}),
        ("/events?name=" + given.EVENT, "name", {given.EVENT}),
        ("/workflow-runs?workflow=onboard&status=running", "status", {"running"}),
        ("/audit?action=trigger_created", "action", {"trigger_created"}),
        ("/definitions?q=gree", "key", {"greet"}),
        ("/tenants?q=" + given.OTHER, "tenant", {given.OTHER}),
        (FIRED + "?outcome=enqueued", "outcome", {"enqueued"}),
        (f"/hosts?tenant={given.OTHER}", "tenant", {given.OTHER}),
    ],
)
async def test_a_download_has_the_filters_of_its_page(
    shared_world: World, full: dict[str, Any], path: str, column: str, found: set[str]
) -> None:
    rows = await follow(shared_world, path.format(**full))

    assert {row[column] for row in rows} == found


async def test_jobs_have_the_filters_of_their_search(shared_world: World, full: dict[str, Any]) -> None:
    rows = await download(shared_world, "/jobs.csv?status=failed&q=definition:greet")

    assert {(row["status"], row["definition_key"]) for row in rows} == {("failed", "greet")}
    assert {row["status"] for row in await download(shared_world, "/jobs.csv")} > {"failed"}


async def test_a_tenant_gets_only_its_own(shared_world: World, full: dict[str, Any]) -> None:
    await given.queued_job(shared_world, tenant=given.OTHER)

    for path in ("/jobs.csv", f"/jobs.csv?tenant={given.TENANT}", "/hosts.csv", "/audit.csv", "/tokens.csv"):
        rows = await download(shared_world, path, "tenant_admin")
        assert {row["tenant"] for row in rows} == {given.TENANT}, path


async def test_an_invalid_filter_is_an_error_and_no_file(shared_world: World) -> None:
    for path in ("/audit.csv?after=yesterday", "/jobs.csv?status=odd"):
        answer = await shared_world.call("GET", f"{BASE}{CONSOLE}{path}", who="viewer")

        assert answer.status_code == 422, path
        assert "content-disposition" not in answer.headers


@pytest.mark.parametrize("path", ["/jobs", "/jobs.csv"])
async def test_times_are_read_in_utc_if_the_browsers_zone_is_unknown(shared_world: World, path: str) -> None:
    for zone in ("There/Is_None", "../UTC", "UTC/x", "x" * 300):
        answer = await shared_world.call(
            "GET", f"{BASE}{CONSOLE}{path}", who="viewer", params={"tz": zone, "q": "created:today"}
        )
        assert answer.status_code == 200, zone


async def test_no_cell_runs_as_a_formula(shared_world: World) -> None:
    formula = '=HYPERLINK("http://example.com")'
    await act(shared_world.fl.database, definitions.patch, given.TESTER, "sly", {"description": formula})

    [row] = await download(shared_world, "/definitions.csv?q=sly")

    assert row["description"] == "'" + formula


@pytest.mark.thorough
async def test_a_long_list_comes_whole(shared_world: World) -> None:
    count = PAGE_ROWS * 2 + 1
    async with shared_world.fl.database.transaction() as tx:
        made = {str(await given.event(tx, name="many.events")) for _ in range(count)}

    rows = await download(shared_world, "/events.csv?name=many.events")

    assert len(rows) == count
    assert {row["id"] for row in rows} == made


@each_case(
    ("pages", "most", "expected"),
    [
        ([2, 2, 2], 5, [0, 1, 2, 3, 4, "cut"]),
        ([2, 2, 2], 4, [0, 1, 2, 3, "cut"]),
        ([2, 2], 4, [0, 1, 2, 3]),
        ([2, 0, 1], 4, [0, 1, 2]),  # a search may find nothing for a while
        ([0], 4, []),
    ],
)
async def test_a_download_ends_after_the_most_rows_and_says_so(
    shared_world: World, pages: list[int], most: int, expected: list[object]
) -> None:
    async def fetch(tx: Tx, place: int | None) -> tuple[Sequence[UUID], int | None]:
        number = place or 0
        rows = [UUID(int=sum(pages[:number]) + n) for n in range(pages[number])]
        return rows, number + 1 if number + 1 < len(pages) else None

    request = Request({"type": "http"})
    visit = Visit(shared_world.fl, given.TESTER, None, None, tenant_slug=given.TENANT, request=request)
    answer = await download_csv(visit, "numbers", fields("int"), fetch, most=most)
    lines = "".join([str(part) async for part in answer.body_iterator]).splitlines()

    cut = f"Only the first {most} rows: use filters to get the others."
    assert lines == ["int", *(cut if one == "cut" else str(one) for one in expected)]


@pytest.mark.thorough
async def test_a_reader_downloads_what_a_page_lists(console: Console) -> None:
    async with console.transaction() as tx:
        await given.trigger(tx, label="Nightly", cron_expr="0 2 * * *")
        await given.trigger(tx, label="On news")
    page = await console.visit(path="/triggers")
    await page.select_option("[name=type]", "schedule")
    await expect(page.locator("table.triggers tbody tr")).to_have_count(1)

    async with page.expect_download() as coming:
        await page.click("text=Download CSV")

    taken = await coming.value
    assert re.fullmatch(rf"triggers-{given.TENANT}-\d{{4}}-\d\d-\d\d\.csv", taken.suggested_filename)
    text = (await taken.path()).read_text(encoding="utf-8")
    assert [row["label"] for row in csv.DictReader(io.StringIO(text))] == ["Nightly"]
