"""Hooks over HTTP: created, changed, their secrets rotated, removed."""

from typing import Any

from tests import given
from tests.server.test_triggers_api import ask, refusal
from tests.server.world import World
from tests.tables import each_case

GITHUB = {"name": "github", "scheme": "github"}


async def hook(world: World, *, tenant: str = given.TENANT, **more: Any) -> Any:
    answer = await ask(world, "POST", "/hooks", json={**GITHUB, **more}, tenant=tenant)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_hook_is_created_listed_changed_and_removed(world: World) -> None:
    made = await hook(world)
    assert made["url"] == "http://fairlead.test/hooks/acme/github"
    assert (made["event_name"], made["tolerance_seconds"], made["unique_by"], made["is_enabled"]) == (
        "github.{type}",
        300,
        "id",
        True,
    )
    assert len(made["secret"]) >= 43
    [listed] = (await ask(world, "GET", "/hooks", who="viewer")).json()["items"]
    assert {**listed, "secret": made["secret"]} == made

    changes = {"event_name": "code.{type}", "is_enabled": False, "unique_by": "body", "tolerance_seconds": 60}
    changed = (await ask(world, "PATCH", f"/hooks/{made['id']}", json=changes)).json()
    assert {name: changed[name] for name in changes} == changes
    shown = await ask(world, "GET", f"/hooks/{made['id']}", who="operator")
    assert shown.json() == changed

    assert (await ask(world, "DELETE", f"/hooks/{made['id']}")).status_code == 200
    assert refusal(await ask(world, "GET", f"/hooks/{made['id']}")) == (404, "hook_unknown")
    assert (await ask(world, "GET", "/hooks")).json()["items"] == []
    entries = await given.audit_entries(world, resource_type="hook")
    assert [entry.action for entry in entries] == ["hook_created", "hook_changed", "hook_removed"]


async def test_a_secret_is_shown_once_and_only_the_system_reads_it(world: World) -> None:
    key = {"Idempotency-Key": "k"}
    first = await ask(world, "POST", "/hooks", json=GITHUB, headers=key)
    again = await ask(world, "POST", "/hooks", json=GITHUB, headers=key)
    secret = first.json()["secret"]
    given_one = "a-secret-of-the-sender"
    rotated = await ask(
        world, "POST", f"/hooks/{first.json()['id']}/rotate-secret", json={"secret": given_one}, headers={}
    )

    assert (again.status_code, again.json()["secret"], rotated.json()["secret"]) == (201, None, None)
    assert rotated.json()["old_secret_until"] is not None
    assert given_one not in rotated.text
    for path in ("/hooks", f"/hooks/{first.json()['id']}", "/audit-log"):
        text = (await ask(world, "GET", path)).text
        assert secret not in text
        assert given_one not in text
    async with world.fl.database.transaction() as tx:
        for table in ("hooks", "idempotency_keys", "audit_log"):
            rows = await tx.values(f"select row_to_json(t)::text from fairlead.{table} t")
            assert rows
            assert not [row for (row,) in rows if secret in row or given_one in row]


@each_case(
    ("fields", "code"),
    [
        ({"name": "Not a name"}, "hook_invalid"),
        ({"scheme": "slack", "secret": "short"}, "hook_invalid"),
        ({"scheme": "basic"}, "invalid_input"),
        ({"tenant": "other"}, "invalid_input"),
    ],
)
async def test_an_invalid_hook_is_refused(shared_world: World, fields: dict[str, Any], code: str) -> None:
    answer = await ask(shared_world, "POST", "/hooks", json={**GITHUB, **fields})
    assert refusal(answer) == (422, code)
    assert str(fields.get("secret", "no secret")) not in answer.text


async def test_a_name_is_taken_once_in_a_tenant(world: World) -> None:
    made = await hook(world)
    await hook(world, tenant=given.OTHER)
    answer = await ask(world, "POST", "/hooks", json=GITHUB)
    assert refusal(answer) == (409, "hook_exists")
    rotation = {"keep_seconds": 604_801}
    answer = await ask(world, "POST", f"/hooks/{made['id']}/rotate-secret", json=rotation)
    assert refusal(answer) == (422, "hook_invalid")


async def test_a_test_event_is_like_a_delivery(world: World) -> None:
    made = await hook(world)
    answer = await ask(world, "POST", f"/hooks/{made['id']}/test")
    assert answer.status_code == 202
    event = (await ask(world, "GET", f"/events/{answer.json()['id']}")).json()
    assert (event["name"], event["data"]["test"]) == ("github.test", True)
    assert event["data"]["webhook"]["hook"] == "github"
