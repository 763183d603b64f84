"""The audit log over HTTP: filters, pages, and whose entries one sees."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.actions import audit as actions
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.model.outcome import SUCCEEDED, decide
from fairlead.store import audit, queue
from fairlead.store.audit import AuditFilter
from tests import given
from tests.acting import act
from tests.server.world import World
from tests.tables import each_case


async def pages(world: World, **query: Any) -> list[dict[str, Any]]:
    """Every entry, page by page."""
    who = query.pop("who", "viewer")
    seen: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await world.call("GET", "/audit", who=who, params={**query, **cursor})).json()
        seen += page["items"]
        if page["next_cursor"] is None:
            return seen
        cursor = {"cursor": page["next_cursor"]}


async def entries(tx: Tx, tenant_id: object, number: int, *, days: float = 0, action: str = "x") -> None:
    """Entries of one moment: nothing but where they lie tells them apart in time."""
    await tx.run(
        "insert into fairlead.audit_log (at, tenant_id, actor, action, resource_type, resource_id) "
        "select date_trunc('day', clock_timestamp()) - %s * interval '1 day', %s, 'somebody', %s, 'thing', n "
        "from generate_series(1, %s) n",
        [days, tenant_id, action, number],
    )


async def test_a_tenant_reads_its_own_entries_newest_first(world: World) -> None:
    async with world.fl.database.transaction() as tx:
        await entries(tx, world.tenants[given.TENANT], 3)
        await entries(tx, world.tenants[given.OTHER], 3)

    found = await pages(world)

    assert {one["tenant_id"] for one in found} == {str(world.tenants[given.TENANT])}
    assert [one["at"] for one in found] == sorted((one["at"] for one in found), reverse=True)


async def test_pages_leave_nothing_out_and_repeat_nothing_at_equal_times(world: World) -> None:
    await act(world.fl.database, entries, world.tenants[given.TENANT], 25)

    for limit in (1, 7, 25, 1000):
        found = await pages(world, action="x", limit=limit)
        assert sorted(int(one["resource_id"]) for one in found) == list(range(1, 26))


async def test_jobs_that_succeed_together_have_an_entry_each(world: World) -> None:
    """They share a row of the table."""
    async with world.fl.database.transaction() as tx:
        ids = [await given.queued_job(tx) for _ in range(230)]
        claim = await queue.claim(tx, worker="w", wanted=500, lease_seconds=30)
        ends = [(claim.lease(job), decide(job, SUCCEEDED)) for job in claim.jobs]
        assert len(await queue.finish(tx, ends, actor="worker:w")) == 230
        [(rows,)] = await tx.values("select count(*) from fairlead.audit_log where action = 'JOB_SUCCEEDED'")
        assert rows == 1

    for limit in (1000, 70):
        found = await pages(world, action="JOB_SUCCEEDED", limit=limit)
        assert sorted(one["resource_id"] for one in found) == sorted(map(str, ids))
    assert {(one["actor"], one["resource_type"]) for one in found} == {("worker:w", "job")}
    [entry] = await pages(world, action="JOB_SUCCEEDED", resource_id=str(ids[117]))
    assert entry["details"] == {"definition_key": "greet", "attempt_no": 1}
    async with world.fl.database.transaction() as tx:
        tenant_id = world.tenants[given.TENANT]
        about = await audit.list_entries_about(
            tx, "job", ids[200], tenant_id=tenant_id, since=datetime.now(UTC) - timedelta(hours=1)
        )
    assert [one.action for one in about] == ["JOB_SUCCEEDED", "job_created"]


async def test_a_super_admin_reads_everybodys_and_those_of_nobody(world: World) -> None:
    async with world.fl.database.transaction() as tx:
        for days in (0, 3, 40, 400):
            for tenant in (*world.tenants.values(), None):
                await entries(tx, tenant, 2, days=days)

    found = await pages(world, who="super_admin", action="x", limit=5)

    assert len(found) == 24
    assert len({one["at"] for one in found}) == 4
    assert {one["tenant_id"] for one in found} == {*map(str, world.tenants.values()), None}
    inside = await world.call(
        "GET", "/audit", who="super_admin", params={"action": "x"}, headers={"X-Tenant": "acme"}
    )
    assert len(inside.json()["items"]) == 8


async def test_filters_say_which_entries(world: World) -> None:
    acme = world.tenants[given.TENANT]
    async with world.fl.database.transaction() as tx:
        await entries(tx, acme, 3, action="a")
        await entries(tx, acme, 3, action="b", days=2)
    week = datetime.now(UTC) - timedelta(days=7)
    yesterday = datetime.now(UTC) - timedelta(days=1, hours=1)

    assert len(await pages(world, action="a")) == 3
    assert len(await pages(world, actor="somebody")) == 6
    assert len(await pages(world, resource_type="thing", resource_id="2")) == 2
    assert len(await pages(world, actor="somebody", before=yesterday.isoformat())) == 3
    older = await pages(world, actor="somebody", after=week.isoformat(), before=yesterday.isoformat())
    assert {one["action"] for one in older} == {"b"}
    everywhere = await pages(world, who="super_admin", actor="somebody", after=yesterday.isoformat())
    assert {one["action"] for one in everywhere} == {"a"}


@pytest.mark.parametrize("who", ["viewer", "super_admin"])
async def test_a_search_looks_at_a_bounded_number_of_entries_for_each_page(
    world: World, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    monkeypatch.setattr(actions, "LOOK", 100)
    async with world.fl.database.transaction() as tx:
        for tenant in world.tenants.values():
            await tx.run(
                "insert into fairlead.audit_log (at, tenant_id, actor, action, resource_type, resource_id) "
                "select clock_timestamp() - n * interval '1 minute', %s, 'somebody', "
                "case when n %% 400 = 0 then 'rare' else 'usual' end, 'thing', n from generate_series(1, 1000) n",
                [tenant],
            )
    answer = (await world.call("GET", "/audit", who=who, params={"action": "rare"})).json()
    assert (answer["items"], answer["next_cursor"] is None) == ([], False)

    found = await pages(world, who=who, action="rare")

    tenants = 1 if who == "viewer" else len(world.tenants)
    assert sorted(int(one["resource_id"]) for one in found) == sorted([400, 800] * tenants)
    usual = await pages(world, who=who, action="usual", limit=30)
    assert len(usual) == 998 * tenants
    assert len({(one["tenant_id"], one["resource_id"]) for one in usual}) == 998 * tenants


@each_case(
    "query",
    [
        {"limit": 0},
        {"limit": 1001},
        {"cursor": "nope"},
        {"cursor": "eyJhIjoxfQ"},
        {"after": "2026-01-01T00:00:00"},
        {"after": "9999-01-01T00:00:00Z"},
        {"actor": "\x00"},
        {"user": "x"},
    ],
)
async def test_a_question_that_cannot_be_answered_is_refused(
    shared_world: World, query: dict[str, Any]
) -> None:
    refused = await shared_world.call("GET", "/audit", who="viewer", params=query)

    assert refused.status_code == 422
    assert refused.json()["errors"]


async def test_a_page_is_found_by_index(world: World) -> None:
    acme = world.tenants[given.TENANT]
    async with world.fl.database.transaction() as tx:
        for tenant in world.tenants.values():
            await entries(tx, tenant, 2000)
        await tx.run("analyze fairlead.audit_log")
        values = dict.fromkeys(
            (*AuditFilter.__struct_fields__, "place_at", "place_part", "place_spot", "place_n")
        )
        values |= {"tenant_id": acme, "limit": 50}
        await tx.prefer_indexes()
        one = await tx.values("explain " + audit._OF_TENANT, values)
        since = values | {"after": datetime.now(UTC) - timedelta(hours=1)}
        every = await tx.values("explain " + audit._OF_ALL, since)
    for plan in (one, every):
        text = "\n".join(line for (line,) in plan)
        assert "Index Scan" in text, text
        assert "Incremental Sort" in text, text
        assert "Seq Scan on audit_log" not in text, text
        assert not re.search(r"-> +Sort .*\n.*Sort Key.*\n.*(Append|Scan.*audit_log)", text), text


async def test_two_tokens_of_one_name_are_told_apart(world: World) -> None:
    tokens = []
    for _ in range(2):
        body = {"name": "same", "role": "tenant_admin"}
        made = (await world.call("POST", "/tokens", who="tenant_admin", json=body)).json()
        headers = {"Authorization": f"Bearer {made['secret']}"}
        await world.call("POST", "/tokens", who=None, json={"name": "x", "role": "viewer"}, headers=headers)
        await world.call("GET", "/admin/tenants", who=None, headers=headers)
        tokens.append(made["id"])

    found = [one for one in await pages(world) if one["actor"] == "token:same"]
    assert [one["principal_id"] for one in reversed(found)] == [tokens[0], tokens[0], tokens[1], tokens[1]]
    assert {one["action"] for one in found} == {"token_created", "access_denied"}
    only = await pages(world, principal_id=tokens[1])
    assert [one["principal_id"] for one in only] == [tokens[1], tokens[1]]


async def test_an_enqueue_and_a_sign_in_name_the_principal(world: World) -> None:
    cookie = {"Cookie": await world.signed_in(Role.OPERATOR)}
    for _ in range(2):  # the second takes the short way
        made = await world.call(
            "POST",
            "/jobs",
            who=None,
            headers=cookie,
            json={"definition_key": given.ANYTHING["key"], "payload": {}},
        )
        assert made.status_code == 201

    found = [one for one in await pages(world) if one["actor"].startswith("user:")]
    assert [one["action"] for one in found] == ["job_created", "job_created", "user_signed_in"]
    assert {one["principal_id"] for one in found} == {found[-1]["resource_id"]}
