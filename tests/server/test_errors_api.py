"""Error groups over HTTP."""

from typing import Any
from uuid import uuid4

from fairlead.actions import error_groups
from tests import given
from tests.server.test_triggers_api import refusal
from tests.server.world import World


async def fail(world: World, *errors: str, **fields: Any) -> None:
    async with world.fl.transaction() as tx:
        for error in errors:
            await given.failed_job(tx, error, **fields)
        while await error_groups.fold_failures(tx):
            pass


async def ask(world: World, method: str, path: str, **more: Any) -> Any:
    return await world.call(method, path, who="operator", **more)


async def listed(world: World, query: str = "") -> list[dict[str, Any]]:
    answer = await ask(world, "GET", f"/errors{query}")
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


async def test_errors_are_listed_with_the_most_frequent_first(world: World) -> None:
    await fail(world, "E: 1", "E: 2", "Other")
    await fail(world, "Final", status="failed")

    found = await listed(world, "?order=jobs")

    assert (found[0]["pattern"], found[0]["dead_letter"], found[0]["seen"]) == ("E: <n>", 2, 2)
    assert len(found) == 3
    assert [one["pattern"] for one in await listed(world, "?status=failed")] == ["Final"]
    assert [one["pattern"] for one in await listed(world, "?q=oth&definition_key=greet")] == ["Other"]
    first = (await ask(world, "GET", "/errors?limit=2")).json()
    rest = (await ask(world, "GET", f"/errors?limit=2&cursor={first['next_cursor']}")).json()
    assert (len(first["items"]), len(rest["items"]), rest["next_cursor"]) == (2, 1, None)


async def test_a_group_is_shown_with_its_sample_and_its_hours(world: World) -> None:
    await fail(world, "E: 1\nat line 7")
    [group] = await listed(world)

    shown = (await ask(world, "GET", f"/errors/{group['id']}")).json()

    assert shown["sample"] == "E: 1\nat line 7"
    assert [one["failures"] for one in shown["hours"]] == [1]
    assert refusal(await ask(world, "GET", f"/errors/{uuid4()}")) == (404, "error_group_unknown")


async def test_a_group_is_muted_retried_and_discarded(world: World) -> None:
    await fail(world, "E: 1", "E: 2", "E: 3")
    [group] = await listed(world)
    path = f"/errors/{group['id']}"

    muted = await ask(world, "POST", f"{path}/mute", json={"until_change": True, "note": "known"})
    assert (muted.json()["is_muted"], muted.json()["mute_note"]) == (True, "known")
    assert await listed(world) == []
    assert len(await listed(world, "?state=muted")) == 1
    assert (await ask(world, "POST", f"{path}/unmute")).json()["is_muted"] is False

    part = (await ask(world, "POST", f"{path}/retry", json={"limit": 1})).json()
    assert part == {"count": 1, "more": True, "skipped": 0, "reasons": {}}
    none = await ask(world, "POST", f"{path}/retry", json={"since": "2999-01-01T00:00:00Z"})
    assert none.json()["count"] == 0
    rest = (await ask(world, "POST", f"{path}/discard")).json()
    assert rest == {"count": 2, "more": False, "skipped": 0, "reasons": {}}
    assert await listed(world) == []
    wrong = await ask(world, "POST", f"{path}/retry", json={"status": "queued"})
    assert refusal(wrong) == (422, "invalid_input")
