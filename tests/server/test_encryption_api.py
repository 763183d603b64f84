"""Sealed secrets over HTTP, by triggers, workflows and hooks: whole tables have none in plain form."""

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.actions import definitions, encryption, hooks
from fairlead.model.hooks.hook import Scheme
from fairlead.store import hooks as stored_hooks
from fairlead.store import tenants
from tests.acting import act
from tests.databases import find_in_database
from tests.encrypted_app import read_payload
from tests.given import TENANT, TESTER
from tests.server.test_worker_api import claimed, tell
from tests.server.world import World, world_on

VALUE = "sk-live-0123456789-canary"


SCHEMA = {
    "type": "object",
    "properties": {"token": {"type": "string", "x-secret": True}, "amount": {"type": "integer"}},
}


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    """A server that has the key, on a database that encrypts, with a definition that has a secret field."""
    (tmp_path / "master.key").write_text(base64.b64encode(os.urandom(32)).decode())
    async with world_on(database_url, encryption_key=f"file:{tmp_path / 'master.key'}") as one:
        async with one.fl.database.transaction() as tx:
            await encryption.enable(tx, TESTER)
            await definitions.patch(tx, TESTER, "pay", {"key": "pay", "arg_schema": SCHEMA})
        yield one


async def test_a_worker_over_http_gets_the_secret_and_its_answers_are_masked(
    world: World, database_url: str
) -> None:
    made = await world.call("POST", "/jobs", json={"definition": "pay", "payload": {"token": VALUE}})
    assert made.status_code in (200, 201, 202), made.text
    assert find_in_database(database_url, VALUE) == []

    item = await claimed(world, definitions=["pay"])
    assert item["payload"] == {"token": VALUE}
    await tell(world, item, "progress", percent=5, message=f"with {VALUE}")
    await tell(world, item, "logs", chunks=[{"seq": 0, "text": f"with {VALUE}\n"}])
    await tell(world, item, "complete", output={"said": f"with {VALUE}"})

    shown = (await world.call("GET", f"/jobs/{item['job_id']}")).json()
    assert (shown["payload"], shown["output"]) == ({"token": "[redacted]"}, {"said": "with [redacted]"})
    assert find_in_database(database_url, VALUE) == []


async def test_own_loops_and_replays_get_sealed_secrets(world: World, database_url: str) -> None:
    fl = world.fl
    first = await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE})
    [lease] = await fl.claim(1, definitions=["pay"])
    assert lease.payload == {"token": VALUE}
    await lease.succeed(f"with {VALUE}")

    again = await fl.replay(first.id)

    assert read_payload(database_url, again.id)["token"].keys() == {"$sealed"}
    assert (await claimed(world, definitions=["pay"]))["payload"] == {"token": VALUE}
    assert find_in_database(database_url, VALUE) == []


async def test_documents_with_sealed_literals_are_shown_masked_and_kept_when_they_are_sent_back(
    world: World, database_url: str
) -> None:
    body = {"label": "n", "trigger_type": "schedule", "cron_expr": "0 2 * * *", "definition_key": "pay"}
    made = await world.call(
        "POST", "/jobs/triggers", who="tenant_admin", json={**body, "payload_template": {"token": VALUE}}
    )
    assert made.status_code == 201, made.text
    at = f"/jobs/triggers/{made.json()['id']}"
    shown = (await world.call("GET", at, who="tenant_admin")).json()["payload_template"]
    kept = await world.call("PATCH", at, who="tenant_admin", json={"payload_template": shown})
    step = {"name": "pay", "definition": "pay", "payload": {"token": VALUE}}
    published = await world.call(
        "POST", "/workflows", who="tenant_admin", json={"key": "billing", "steps": [step]}
    )
    assert published.status_code == 201, published.text
    spec = (await world.call("GET", "/workflows/billing", who="tenant_admin")).json()["spec"]
    again = await world.call("POST", "/workflows", who="tenant_admin", json=spec)

    assert shown == spec["steps"][0]["payload"] == {"token": "[redacted]"}
    assert (kept.status_code, again.status_code) == (200, 200), (kept.text, again.text)
    assert find_in_database(database_url, VALUE) == []
    fired = await world.call("POST", f"{at}/fire", who="tenant_admin", json={})
    assert fired.status_code < 300, fired.text
    assert (await claimed(world, definitions=["pay"]))["payload"] == {"token": VALUE}


async def test_secrets_of_hooks_are_sealed_and_can_be_used(world: World, database_url: str) -> None:
    async with world.fl.database.transaction() as tx:
        tenant_id = (await tenants.get_ids(tx, [TENANT]))[TENANT]
        await hooks.create(tx, TESTER, tenant_id=tenant_id, name="shop", scheme=Scheme.GITHUB, secret=VALUE)
    assert find_in_database(database_url, VALUE) == []

    found = await act(world.fl.database, stored_hooks.find_keyed, tenant=TENANT, name="shop")

    assert found is not None
    assert list(found.secrets) == [VALUE]


async def poll(world: World) -> list[Any]:
    """The jobs that the agent of the tenant's host gets."""
    at = f"/agent/hosts/{world.hosts[TENANT]}"
    begun = await world.call("POST", f"{at}/session", who="agent", json={"version": "1"})
    assert begun.status_code == 201, begun.text
    params = {"session": begun.json()["session_id"], "wait": 0}
    answer = await world.call("GET", f"{at}/jobs", who="agent", params=params)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["jobs"])


async def test_an_agent_gets_the_secret_and_a_server_without_the_key_gives_the_job_back(
    world: World, database_url: str
) -> None:
    await act(world.fl.database, definitions.patch, TESTER, "pay", {"kind": "host", "max_attempts": 1})
    body = {"definition_key": "pay", "payload": {"token": VALUE}, "host_id": str(world.hosts[TENANT])}
    made = (await world.call("POST", "/jobs", json=body)).json()["id"]
    assert find_in_database(database_url, VALUE) == []

    ring = world.fl.database.keyring
    master, ring.current_master = ring.current_master, None
    ring._keys.clear()  # as in a process that was started without the key
    assert await poll(world) == []
    shown = (await world.call("GET", f"/jobs/{made}")).json()
    assert (shown["status"], shown["failure_count"]) == ("queued", 0)

    ring.current_master = master
    answer = await world.call("PATCH", f"/jobs/{made}", json={"delay": 0})
    assert answer.status_code == 200, answer.text
    [taken] = await poll(world)
    assert (taken["job_id"], taken["payload"]) == (made, {"token": VALUE})
