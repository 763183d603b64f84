"""A job that runs a workflow needs the right to run workflows, and a workflow sends its secrets where its author says."""

from typing import Any

import pytest

from fairlead.model.access import GRANTS, Permission, Role
from tests.server.world import BASE, World
from tests.tables import each_case

RUN = {"definition_key": "ENGINE_RUN", "payload": {"workflow": "w"}}
SCHEMA = {"type": "object", "properties": {"secret_headers": {"type": "object", "x-secret": True}}}
LITERAL = {"authorization": "Bearer s3cret-word"}


@pytest.fixture
async def engine(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Operators who may not run workflows: each role that writes jobs may today, but one need not imply the other."""
    less = GRANTS[Role.OPERATOR] - {Permission.START_WORKFLOWS, Permission.RUN_WORKFLOWS}
    monkeypatch.setitem(GRANTS, Role.OPERATOR, less)
    for made in (
        {"key": "ENGINE_RUN"},
        {"key": "ENGINE_EVENT"},
        {"key": "http.request", "arg_schema": SCHEMA},
    ):
        answer = await world.call("POST", "/admin/jobs/definitions", who="super_admin", json=made)
        assert answer.status_code == 201, answer.text
    return world


@pytest.mark.parametrize(("who", "status"), [("operator", 403), ("application", 201), ("tenant_admin", 201)])
async def test_enqueueing_a_job_that_runs_a_workflow_needs_the_right_to_start_one(
    engine: World, who: str, status: int
) -> None:
    one = await engine.call("POST", "/jobs", who=who, json=RUN)
    many = await engine.call("POST", "/jobs/bulk", who=who, json={"jobs": [RUN, RUN]})
    wait = await engine.call("POST", "/jobs", who=who, json={"definition_key": "ENGINE_EVENT", "payload": {}})

    assert (one.status_code, many.status_code, wait.status_code) == (status,) * 3, (
        one.text + many.text + wait.text
    )
    if status == 403:
        assert "workflows.start" in one.text
        assert (await engine.call("GET", "/jobs")).json()["items"] == []


async def test_retrying_a_job_that_runs_a_workflow_needs_the_right_to_run_one(engine: World) -> None:
    ids = []
    for _ in range(2):
        made = await engine.call("POST", "/jobs", who="tenant_admin", json=RUN)
        ids.append(made.json()["id"])
        assert await engine.status("POST", f"/jobs/{ids[-1]}/cancel", who="tenant_admin") == 200
    wanted = {"filter": {"definition_key": "ENGINE_RUN"}}

    for body in (None, {"payload": {"workflow": "other"}}):
        assert await engine.status("POST", f"/jobs/{ids[0]}/retry", json=body) == 403
    some = (await engine.call("POST", "/jobs/retry", json=wanted)).json()
    assert (some["count"], some["skipped"]) == (0, 2)

    assert await engine.status("POST", f"/jobs/{ids[0]}/retry", who="tenant_admin") == 200
    rest = (await engine.call("POST", "/jobs/retry", who="tenant_admin", json=wanted)).json()
    assert (rest["count"], rest["skipped"]) == (1, 0)


async def test_canceling_a_job_that_runs_a_workflow_needs_the_right_to_run_one(engine: World) -> None:
    ids = [(await engine.call("POST", "/jobs", who="tenant_admin", json=RUN)).json()["id"] for _ in range(2)]
    other = await engine.call("POST", "/jobs", json={"definition_key": "anything", "payload": {}})
    wanted: dict[str, Any] = {"filter": {"status": ["queued"]}}

    one = await engine.call("POST", f"/jobs/{ids[0]}/cancel")
    seen = (await engine.call("POST", "/jobs/cancel", json={**wanted, "dry_run": True})).json()
    some = (await engine.call("POST", "/jobs/cancel", json=wanted)).json()

    assert (one.status_code, "workflows.run" in one.text) == (403, True)
    assert [(did["count"], did["skipped"]) for did in (seen, some)] == [(1, 2), (1, 2)]
    assert (await engine.call("GET", f"/jobs/{other.json()['id']}")).json()["status"] == "canceled"
    assert await engine.status("POST", f"/jobs/{ids[0]}/cancel", who="tenant_admin") == 200
    rest = (await engine.call("POST", "/jobs/cancel", who="tenant_admin", json=wanted)).json()
    assert (rest["count"], rest["skipped"]) == (1, 0)


@pytest.mark.parametrize(("role", "offered"), [(Role.OPERATOR, False), (Role.TENANT_ADMIN, True)])
async def test_the_console_offers_only_what_the_server_does_with_a_job_that_runs_a_workflow(
    engine: World,
    role: Role,
    offered: bool,  # noqa: FBT001
) -> None:
    job = (await engine.call("POST", "/jobs", who="tenant_admin", json=RUN)).json()["id"]
    cookie = {"Cookie": await engine.signed_in(role)}

    async def offers(what: str) -> list[bool]:
        pages = [
            (await engine.call("GET", f"{BASE}/console{path}", who=None, headers=cookie)).text
            for path in ("/jobs", f"/jobs/{job}")
        ]
        assert all("This job runs a workflow" in page for page in pages) is not offered
        return [f'hx-post="/console/jobs/{job}/{what}"' in page for page in pages]

    assert await offers("cancel") == [offered] * 2
    assert await engine.status("POST", f"/jobs/{job}/cancel", who="tenant_admin") == 200
    assert await offers("retry") == [offered] * 2
    edit = await engine.call("GET", f"{BASE}/console/jobs/{job}/edit", who=None, headers=cookie)
    assert ("payload_way" in edit.text) is offered


def flow(url: Any, headers: Any) -> Any:
    payload = {"url": url, "secret_headers": headers}
    return {"key": "w", "steps": [{"name": "call", "definition": "http.request", "payload": payload}]}


@each_case(
    ("url", "headers", "refused"),
    [
        ("{{input.url}}", LITERAL, True),
        ("https://{{input.host}}/v1", LITERAL, True),
        ("https://api.example{{input.rest}}", LITERAL, True),
        ("https://api.example@{{input.rest}}/", LITERAL, True),
        ("{{input.scheme}}://api.example/", LITERAL, True),
        ("https://{{input.host}}/", {"authorization": "Bearer sk_live_1{{input.rest}}"}, True),
        ("https://{{input.host}}/", {"authorization": '{{input.token | default: "s3cret-word"}}'}, True),
        ("https://api.example/{{input.path}}", LITERAL, False),
        ("https://api.example?q={{input.q}}", LITERAL, False),
        ("https://{{tenant.slug}}.example/v1", LITERAL, False),
        ("https://{{input.host}}/", {"authorization": "Bearer {{input.token}}"}, False),
        ("{{input.url}}", "{{input.headers}}", False),
        ("{{input.url}}", None, False),
    ],
)
async def test_a_secret_that_is_written_out_goes_to_no_host_that_the_input_names(
    engine: World,
    url: str,
    headers: Any,
    refused: bool,  # noqa: FBT001
) -> None:
    answer = await engine.call("POST", "/workflows", who="tenant_admin", json=flow(url, headers))

    if not refused:
        assert answer.status_code in (200, 201), answer.text
        return
    assert (answer.status_code, answer.json()["code"]) == (422, "workflow_invalid")
    assert answer.json()["errors"][0]["path"] == "/steps/0/payload/url"
    assert "s3cret" not in answer.text


async def test_a_trigger_sends_no_secret_of_its_to_a_host_that_an_event_names(engine: World) -> None:
    trigger = {
        "label": "Call",
        "trigger_type": "event",
        "event_name": "a.b",
        "definition_key": "http.request",
        "payload_template": {"url": "https://{{event.host}}/", "secret_headers": LITERAL},
    }

    answer = await engine.call("POST", "/jobs/triggers", who="tenant_admin", json=trigger)

    assert (answer.status_code, answer.json()["code"]) == (422, "trigger_invalid")
    assert answer.json()["errors"][0]["path"] == "/payload_template/url"
