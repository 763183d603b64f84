"""An application's token: it hands in work, reads what became of it, and does nothing else."""

from typing import Any

from tests import given
from tests.server import matrix
from tests.server.world import World
from tests.tables import each_case


async def ask(world: World, method: str, path: str, json: Any = None, **more: Any) -> Any:
    return await world.call(method, path, who="application", json=json, **more)


async def published(world: World) -> None:
    made = await world.call("POST", "/workflows", who="tenant_admin", json=matrix.WORKFLOW)
    assert made.status_code == 201


async def test_an_application_enqueues_emits_and_starts(world: World) -> None:
    await published(world)
    once = {"Idempotency-Key": "k"}

    one = await ask(world, "POST", "/jobs", {"definition_key": "anything"}, headers=once)
    again = await ask(world, "POST", "/jobs", {"definition_key": "anything"}, headers=once)
    many = await ask(world, "POST", "/jobs/bulk", {"jobs": [{"definition_key": "anything"}]})
    event = await ask(world, "POST", "/events", {"name": "thing.happened"})
    run = await ask(world, "POST", "/workflows/made/runs", {"input": {}})

    assert [answer.status_code for answer in (one, again, many, event, run)] == [201, 201, 201, 202, 201]
    assert again.json()["id"] == one.json()["id"]


async def test_an_application_reads_its_jobs_and_runs(world: World) -> None:
    await published(world)
    job = (await ask(world, "POST", "/jobs", {"definition_key": "anything"})).json()["id"]
    run = (await ask(world, "POST", "/workflows/made/runs", {})).json()["id"]
    paths = [
        "/jobs",
        "/jobs/summary",
        "/jobs/times",
        f"/jobs/{job}",
        *(f"/jobs/{job}/{what}" for what in ("attempts", "why", "logs")),
    ]

    answers = [(await ask(world, "GET", path)).status_code for path in (*paths, f"/workflows/runs/{run}")]

    assert set(answers) == {200}


@each_case(
    ("method", "path", "permission"),
    [
        ("POST", "/jobs/{job}/cancel", "jobs.write"),
        ("POST", "/jobs/{job}/retry", "jobs.write"),
        ("POST", "/jobs/cancel", "jobs.write"),
        ("GET", "/events", "events.read"),
        ("GET", "/jobs/triggers", "triggers.read"),
        ("GET", "/workflows", "workflows.read"),
        ("POST", "/workflows", "workflows.manage"),
        ("GET", "/tokens", "tokens.manage"),
        ("GET", "/users", "users.manage"),
        ("GET", "/hosts", "hosts.read"),
        ("GET", "/definitions", "definitions.read"),
        ("GET", "/audit", "audit.read"),
        ("GET", "/usage", "usage.read"),
        ("GET", "/admin/tenants", "tenants.read"),
    ],
)
async def test_an_application_does_nothing_else(
    shared_world: World, method: str, path: str, permission: str
) -> None:
    job = (await ask(shared_world, "POST", "/jobs", {"definition_key": "anything"})).json()["id"]

    answer = await ask(shared_world, method, path.format(job=job))

    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert f"The role application lacks the permission {permission}" in answer.json()["detail"]


async def test_application_is_a_role_of_tokens_of_one_tenant_and_not_of_people(world: World) -> None:
    person = {"email": "app@acme.example", "password": "correct horse battery", "role": "application"}
    user = await world.call("POST", "/users", who="tenant_admin", json=person)
    token = await world.call(
        "POST", "/tokens", who="tenant_admin", json={"name": "app", "role": "application"}
    )
    of_all = await world.call(
        "POST", "/tokens", who="super_admin", json={"name": "app", "role": "application"}
    )

    assert user.status_code == 422
    assert user.json()["errors"] == [{"path": "role", "message": "is for tokens, not for people"}]
    assert token.json()["tenant_id"] == str(world.tenants[given.TENANT])
    assert of_all.json()["errors"] == [{"path": "tenant", "message": "is required for the role application"}]
