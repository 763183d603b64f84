"""The system over HTTP: its gate, its workers, every tenant's part of the queue, usage."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fairlead.actions import checks
from fairlead.store import repair, system
from tests import broken, given
from tests.acting import act
from tests.plans import read_scans
from tests.server.world import BASE, World, world_on

DAY = 86_400


async def test_the_gate_closes_and_opens(world: World) -> None:
    closed = await world.call(
        "PUT", "/admin/system", who="super_admin", json={"online": False, "note": "moving house"}
    )
    assert (closed.json()["online"], closed.json()["note"]) == (False, "moving house")
    assert closed.json()["changed_by"] == "token:all.super_admin"
    assert await world.fl.tick() == await world.fl.tick()  # nothing is claimed

    opened = await world.call("PUT", "/admin/system", who="super_admin", json={"online": True})

    assert opened.json()["online"] is True
    assert (await world.call("GET", "/admin/system", who="super_admin")).json() == opened.json()
    entries = await world.call(
        "GET", "/audit", who="super_admin", params={"resource_type": "system", "limit": 2}
    )
    assert [one["action"] for one in entries.json()["items"]] == ["system_resumed", "system_paused"]


async def test_a_gate_needs_to_know_which_way(world: World) -> None:
    for body in ({}, {"online": "maybe"}, {"online": True, "why": "x"}, {"online": False, "note": "\x00"}):
        assert await world.status("PUT", "/admin/system", who="super_admin", json=body) == 422


async def test_a_worker_that_fell_silent_is_stale(database_url: str) -> None:
    async with world_on(database_url, lease_seconds=3600) as world:
        for worker, hours in (("a", 1.5), ("b", 2.1)):
            await given.add_worker(world, worker, seen=-timedelta(hours=hours), concurrency=5)

        listed = await world.call("GET", "/admin/workers", who="super_admin")

    assert [(one["worker_id"], one["stale"]) for one in listed.json()["items"]] == [("a", False), ("b", True)]


async def test_the_queue_shows_every_tenants_part(world: World) -> None:
    async with world.fl.database.transaction() as tx:
        await given.queued_job(tx)
        oldest = await given.queued_job(tx, definition="anything", priority=900)
        await given.wait_longer(tx, oldest, seconds=DAY)
        for number in range(3):
            await given.queued_job(tx, definition="anything", priority=number)
        await given.running_job(tx)
        await given.ended_job(tx, "dead_letter")
        await given.ended_job(tx, "failed", tenant=given.OTHER)
    await world.call("PATCH", "/admin/tenants/umbrella", who="super_admin", json={"paused": True})

    listed = await world.call("GET", "/admin/queue", who="super_admin")

    acme, system, umbrella = listed.json()["items"]
    assert (acme["queued"], acme["running"], acme["failed"], acme["dead_letter"]) == (5, 1, 0, 1)
    assert DAY <= acme["oldest_queued_seconds"] < 2 * DAY
    assert (umbrella["queued"], umbrella["failed"], umbrella["oldest_queued_seconds"]) == (0, 1, None)
    assert umbrella["paused_at"] is not None
    assert (system["tenant"], system["queued"]) == ("global", 0)


async def test_the_queue_is_read_by_index_whatever_waits(world: World) -> None:
    async with world.fl.database.transaction() as tx:
        await tx.run(
            "insert into fairlead.ready (tenant_id, definition_id, priority, scheduled_for, job_id) "
            "select t.id, d.id, n % 3, now(), gen_random_uuid() "
            "from fairlead.tenants t, fairlead.job_definitions d, generate_series(1, 3000) n"
        )
        await tx.prefer_indexes()
        heads = await read_scans(tx, system.sql.queue, {"after": "", "limit": 10}, "ready")
        await tx.connection.execute("rollback")
        await tx.connection.execute("begin")
    assert {one["Node Type"] for one in heads} <= {"Index Scan", "Index Only Scan"}
    # one for each head, and before PostgreSQL 18 one more for each tenant
    assert sum(one["Actual Rows"] * one["Actual Loops"] for one in heads) <= 3 * 3 * 3 + 3


async def test_usage_is_told_of_any_time_and_as_a_table(world: World) -> None:
    async with world.fl.database.transaction() as tx:
        await given.ended_job(tx, "succeeded")
        await given.ended_job(tx, "succeeded", tenant=given.OTHER)
    now = datetime.now(UTC)
    asked = {"from": (now - timedelta(days=40)).isoformat(), "to": now.isoformat(), "timezone": "Asia/Tokyo"}

    months = await world.call("GET", "/usage", who="viewer", params=asked | {"by": "month", "per": "nothing"})
    [one] = months.json()["items"]
    assert (one["definition_key"], one["runs"], one["run_ms"], one["queue_ms"]) == (None, 1, 20, 3)
    assert one["starts_at"].endswith("-01T00:00:00+09:00")
    tenants = await world.call(
        "GET", "/usage", who="super_admin", params=asked | {"by": "day", "per": "tenant"}
    )
    assert [one["tenant"] for one in tenants.json()["items"]] == [given.TENANT, given.OTHER]
    assert tenants.json()["totals"]["cost_cents"] == 2 * 7

    as_csv: list[dict[str, Any]] = [
        {"params": asked | {"by": "day", "format": "csv"}},
        {"headers": {"Accept": "text/csv, */*"}},
    ]
    for told in as_csv:
        table = await world.call("GET", "/usage", who="viewer", **told)
        assert table.headers["content-type"] == "text/csv; charset=utf-8"
        heading, line = table.text.splitlines()
        assert heading.startswith("starts_at,tenant,definition_key,runs,succeeded,")
        assert line.endswith(",,greet,1,1,0,0,0,0,0,20,3,7")
    for wrong in (
        {"from": "2020-01-01T00:00:00Z"},
        {"from": (now + timedelta(hours=1)).isoformat()},
        {"to": "2026-01-01"},
        {"per": "x"},
        {"by": "year"},
    ):
        assert await world.status("GET", "/usage", who="viewer", params=wrong) == 422


async def test_a_super_admin_sees_what_the_checks_find(world: World) -> None:
    job_id = await act(world.fl.database, broken.queued_without_row)

    shown = await world.call("GET", "/admin/checks", who="super_admin")

    found = {one["check"]: one for one in shown.json()["items"]}
    assert found["queued_without_row"]["verdict"] == "fail"
    assert str(job_id) in found["queued_without_row"]["detail"]
    assert found["isolation"]["verdict"] == "ok"
    assert found["checks"]["detail"] == "no process has run the checks yet"
    await act(world.fl.database, repair.queue_again, job_id)


async def test_the_checks_are_a_metric(world: World) -> None:
    async with world.fl.database.transaction() as tx:
        job_id = await broken.queued_without_row(tx)
        await checks.refresh_findings(tx)
        await repair.queue_again(tx, job_id)

    text = (await world.call("GET", f"{BASE}/metrics", who="super_admin")).text

    assert 'fairlead_check{check="queued_without_row"} 2.0' in text
    assert 'fairlead_check{check="expired_leases"} 0.0' in text
    assert 'fairlead_check_value{check="queued_without_row"} 1.0' in text
