"""Workflows over HTTP: published, refused, started, watched, canceled, retried."""

from typing import Any
from uuid import uuid4

from tests import given
from tests.server.test_triggers_api import ask, refusal
from tests.server.world import World

GREETS: dict[str, Any] = {
    "key": "onboard",
    "description": "A new customer",
    "steps": [
        {"name": "create", "definition": "anything", "payload": {"email": "{{input.email}}"}},
        {
            "name": "greet",
            "definition": "greet",
            "payload": {"name": "{{steps.create.output.name}}"},
            "after": ["create"],
        },
        {
            "name": "mail",
            "definition": "anything",
            "payload": {"n": "{{index}}", "to": "{{item}}"},
            "for_each": "{{input.to | default: []}}",
            "after": ["create"],
            "on_failure": "continue",
        },
    ],
    "input_schema": {"type": "object", "required": ["email"]},
    "output": {"greeted": "{{steps.greet.output}}"},
}
ADA = {"email": "ada@example.com", "to": ["a", "b", "c"]}


async def published(world: World, *, who: str = "tenant_admin", **changes: Any) -> Any:
    answer = await ask(world, "POST", "/workflows", who, json={**GREETS, **changes})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def started(world: World, workflow: str = "onboard", /, **body: Any) -> Any:
    answer = await ask(world, "POST", f"/workflows/{workflow}/runs", json={"input": ADA, **body})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def test_no_run_is_started_into_a_full_queue(world: World) -> None:
    await published(world)
    await ask(world, "PATCH", "/admin/tenants/acme", "super_admin", json={"quotas": {"queued_jobs": 1}})
    job = {"definition_key": "anything", "payload": {}}
    assert (await ask(world, "POST", "/jobs", json=job)).status_code == 201

    refused = await ask(world, "POST", "/workflows/onboard/runs", json={"input": ADA})

    assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
    assert (await ask(world, "GET", "/workflows/runs")).json()["items"] == []


async def shown(world: World, run: Any, **query: Any) -> Any:
    answer = await ask(world, "GET", f"/workflows/runs/{run['id']}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def work(world: World, output: Any = None, *, failing: str | None = None) -> int:
    """Run what waits, once: how many jobs that was. Those of a definition may fail for good."""
    claimed = await ask(
        world,
        "POST",
        "/worker/jobs/claim",
        "worker",
        json={"definitions": ["anything", "greet"], "limit": 100},
    )
    for job in claimed.json()["items"]:
        lease = {"attempt_no": job["attempt_no"], "lease_token": job["lease_token"]}
        end: dict[str, Any] = {"output": output}
        if failing == job["definition_key"]:
            end = {"error": {"type": "Broken", "message": f"{failing} is broken"}, "retryable": False}
        what = "fail" if "error" in end else "complete"
        answer = await ask(
            world, "POST", f"/worker/jobs/{job['job_id']}/{what}", "worker", json={**lease, **end}
        )
        assert answer.status_code == 200, answer.text
    return len(claimed.json()["items"])


async def test_a_workflow_is_published_in_versions(world: World) -> None:
    first = await ask(world, "POST", "/workflows", json=GREETS)
    assert (first.status_code, first.json()["version"], first.json()["is_shared"]) == (201, 1, False)
    assert first.json()["created_by"] == f"token:{given.TENANT}.tenant_admin"
    same = await ask(world, "POST", "/workflows", json=first.json()["spec"])
    assert (same.status_code, same.json()) == (200, first.json())
    changed = await published(world, description="Changed")
    assert changed["version"] == 2

    [listed] = (await ask(world, "GET", "/workflows")).json()["items"]
    assert (listed["key"], listed["version"], listed["steps"]) == ("onboard", 2, 3)
    assert listed["description"] == "Changed"
    assert (await ask(world, "GET", "/workflows/onboard")).json() == changed
    older = await ask(world, "GET", "/workflows/onboard", params={"version": 1})
    assert older.json() == first.json()
    for path, query in (("/workflows/nothing", {}), ("/workflows/onboard", {"version": 3})):
        answer = await ask(world, "GET", path, params=query)
        assert refusal(answer) == (404, "workflow_unknown")
    assert (await ask(world, "GET", "/workflows", params={"cursor": "onboard"})).status_code == 422

    audited = (await ask(world, "GET", "/audit", params={"action": "workflow_published"})).json()["items"]
    assert [one["details"]["version"] for one in audited] == [2, 1]


async def test_a_run_is_started_watched_and_over(world: World) -> None:
    await published(world)
    run = await started(world, correlation_id="c1")
    assert (run["status"], run["version"], run["steps"], run["deduplicated"]) == ("running", 1, 3, False)
    assert (run["input"], run["correlation_id"]) == (ADA, "c1")
    now = await shown(world, run)
    assert now["counts"] == {"running": 1, "waiting": 2}
    create, greet, _ = now["steps"]
    assert (create["state"], create["job_status"], create["after"]) == ("running", "queued", [])
    assert (greet["state"], greet["job_id"], greet["after"]) == ("waiting", None, ["create"])
    job = (await ask(world, "GET", f"/jobs/{create['job_id']}")).json()
    assert (job["payload"], job["workflow_run_id"]) == ({"email": "ada@example.com"}, run["id"])

    assert await work(world, {"name": "Ada"}) == 1
    middle = await shown(world, run)
    assert middle["counts"] == {"running": 2, "succeeded": 1}
    assert (middle["steps"][2]["items"], middle["steps"][2]["remaining"]) == (3, 3)
    assert await work(world, "hello") == 4
    over = await shown(world, run)
    assert (over["run"]["status"], over["run"]["output"]) == ("succeeded", {"greeted": "hello"})
    assert over["counts"] == {"succeeded": 3}
    assert all(step["started_at"] < step["finished_at"] for step in over["steps"])

    for what, code in (("cancel", "workflow_run_over"), ("retry", "workflow_run_not_retryable")):
        assert refusal(await ask(world, "POST", f"/workflows/runs/{run['id']}/{what}")) == (409, code)
    for path in (f"/workflows/runs/{uuid4()}", f"/workflows/runs/{uuid4()}/cancel"):
        answer = await ask(world, "POST" if path.endswith("cancel") else "GET", path)
        assert refusal(answer) == (404, "workflow_run_unknown")


async def test_a_failed_run_says_why_and_goes_on_when_it_is_retried(world: World) -> None:
    await published(world)
    run = await started(world)
    await work(world, {"name": "Ada"})
    await work(world, "sent", failing="greet")
    failed = await shown(world, run)
    assert (failed["run"]["status"], failed["run"]["error"]["step"]) == ("failed", "greet")
    assert [step["state"] for step in failed["steps"]] == ["succeeded", "failed", "succeeded"]
    assert "greet is broken" in failed["steps"][1]["error"]["message"]
    again = await ask(world, "POST", f"/workflows/runs/{run['id']}/retry")
    assert (again.status_code, again.json()["status"], again.json()["error"]) == (200, "running", None)
    assert await work(world, "hello") == 1
    assert (await shown(world, run))["run"]["output"] == {"greeted": "hello"}

    # a step of many shows the first of its jobs that failed; a step that cannot be filled in says so itself
    run = await started(world)
    await work(world, {})
    await work(world, failing="anything")
    _, greet, mail = (await shown(world, run))["steps"]
    assert (greet["state"], greet["error"]["code"], greet["job_id"]) == ("failed", "template_failed", None)
    assert (mail["state"], mail["failed"], mail["items"]) == ("failed", 3, 3)
    assert "anything is broken" in mail["error"]["message"]
    assert (await ask(world, "GET", f"/jobs/{mail['job_id']}")).json()["status"] == "failed"


async def test_a_run_is_canceled_once_and_for_all(world: World) -> None:
    await published(world)
    run = await started(world)
    for _ in range(2):
        answer = await ask(world, "POST", f"/workflows/runs/{run['id']}/cancel")
        assert (answer.status_code, answer.json()["status"]) == (200, "canceled")
    states = (await shown(world, run))["counts"]
    assert states == {"canceled": 1, "stopped": 2}
    assert await work(world) == 0
    actions = {one["action"] for one in (await ask(world, "GET", "/audit")).json()["items"]}
    assert {"workflow_started", "workflow_cancel_requested"} <= actions


async def test_a_start_is_made_once(world: World) -> None:
    await published(world)
    first = await started(world, key="2026-02")
    again = await ask(world, "POST", "/workflows/onboard/runs", json={"input": ADA, "key": "2026-02"})
    assert (again.status_code, again.json()["id"], again.json()["deduplicated"]) == (200, first["id"], True)

    def start(body: Any) -> Any:
        return ask(world, "POST", "/workflows/onboard/runs", json=body)

    wrong = await start({"input": {}})
    assert refusal(wrong) == (422, "payload_invalid")
    assert wrong.json()["errors"][0]["path"] == "/input"
    assert refusal(await start({"input": ADA, "key": ""})) == (422, "invalid_input")
    assert refusal(await start({"input": ADA, "x": 1})) == (422, "invalid_input")
    assert refusal(await start({"input": ADA, "version": 9})) == (404, "workflow_unknown")
    assert len((await ask(world, "GET", "/workflows/runs")).json()["items"]) == 1


async def test_runs_are_narrowed_and_walked(world: World) -> None:
    await published(world)
    await published(world, key="other")
    made = [(await started(world, key))["id"] for key in ("onboard", "other", "onboard")]
    await ask(world, "POST", f"/workflows/runs/{made[0]}/cancel")

    async def ids(**query: Any) -> list[str]:
        answer = await ask(world, "GET", "/workflows/runs", params=query)
        return [one["id"] for one in answer.json()["items"]]

    assert await ids() == made[::-1]
    assert await ids(key="onboard") == [made[2], made[0]]
    assert await ids(status="canceled") == [made[0]]
    page = (await ask(world, "GET", "/workflows/runs", params={"limit": 2})).json()
    assert await ids(cursor=page["next_cursor"]) == [made[0]]
    assert await ids(limit=1000) == made[::-1]
    for query in ({"cursor": "x"}, {"status": "done"}, {"x": "1"}):
        assert refusal(await ask(world, "GET", "/workflows/runs", params=query)) == (422, "invalid_input")


# Whose they are


async def test_a_super_admin_publishes_for_all_and_a_tenant_for_itself(world: World) -> None:
    shared = await published(world, who="super_admin")
    assert shared["is_shared"]
    for who in ("tenant_admin", "super_admin"):
        assert (await ask(world, "GET", "/workflows/onboard", who)).json()["id"] == shared["id"]
    run = await started(world)
    assert (run["workflow_id"], run["tenant"]) == (shared["id"], given.TENANT)

    own = await published(world, description="Ours")
    other = {"X-Tenant": given.OTHER}
    assert (await ask(world, "GET", "/workflows/onboard")).json()["id"] == own["id"]
    theirs = await ask(world, "GET", "/workflows/onboard", "super_admin", headers=other)
    assert theirs.json()["id"] == shared["id"]
    # its own stands before the shared one; who acts in no tenant sees both, page by page
    [listed] = (await ask(world, "GET", "/workflows")).json()["items"]
    assert listed["id"] == own["id"]
    walked, cursor = [], None
    for _ in range(2):
        query = {"limit": 1, **({"cursor": cursor} if cursor else {})}
        page = (await ask(world, "GET", "/workflows", "super_admin", params=query)).json()
        cursor = page["next_cursor"]
        walked += page["items"]
    assert ([one["id"] for one in walked], cursor) == ([shared["id"], own["id"]], None)

    # a run belongs to a tenant
    nobodys = await ask(world, "POST", "/workflows/onboard/runs", "super_admin", json={"input": ADA})
    assert refusal(nobodys) == (422, "invalid_input")
    named = await ask(
        world, "POST", "/workflows/onboard/runs", "super_admin", json={"input": ADA}, headers=other
    )
    assert (named.status_code, named.json()["tenant"]) == (201, given.OTHER)


# What cannot be


async def test_what_cannot_run_is_refused_and_the_step_is_named(world: World) -> None:
    step = {"name": "a", "definition": "anything"}
    for body, path, told in (
        ({"steps": [{**step, "after": ["x"]}]}, "/steps/0/after", "'a' is after 'x'"),
        ({"steps": [{**step, "definition": "x"}]}, "/steps/0/definition", "'a': there is no definition 'x'"),
        ({"key": "runs"}, "/key", ""),
        ({"input_schema": {"type": "x"}}, "/input_schema", ""),
    ):
        answer = await ask(world, "POST", "/workflows", json={**GREETS, "output": None, **body})
        assert refusal(answer) == (422, "workflow_invalid"), answer.text
        fault = answer.json()["errors"][0]
        assert (fault["path"], told in fault["message"]) == (path, True), fault
    shapeless: tuple[Any, ...] = (
        {**GREETS, "x": 1},
        {**GREETS, "steps": [{**step, "x": 1}]},
        {"key": "w"},
        [],
    )
    for unknown in shapeless:
        assert refusal(await ask(world, "POST", "/workflows", json=unknown)) == (422, "invalid_input")
    assert (await ask(world, "GET", "/workflows")).json()["items"] == []
