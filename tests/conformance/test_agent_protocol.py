"""The agent's protocol, step by step in plain HTTP, as docs/reference/agent-protocol.md has it.

Runs against a server of its own, or against one that is given:

    AGENT_CONFORMANCE_URL=https://jobs.example.com AGENT_CONFORMANCE_TOKEN=<of a tenant admin> \
    AGENT_CONFORMANCE_DEFINITION=<key of a definition with any payload, one attempt or more> pytest tests/conformance

Whoever writes an agent can read here what it has to do; whoever writes a server, what an agent relies on.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from fairlead.actions import definitions
from fairlead.server.app import bind, create_server
from tests import given
from tests.server.world import world_on
from tests.waiting import SECONDS

KEY = "conformance"


@pytest.fixture
async def served(database_url: str) -> AsyncIterator[tuple[str, str, str]]:
    """An address, a tenant admin's token, and a definition's key."""
    if url := os.environ.get("AGENT_CONFORMANCE_URL"):
        yield url, os.environ["AGENT_CONFORMANCE_TOKEN"], os.environ["AGENT_CONFORMANCE_DEFINITION"]
        return
    async with world_on(database_url) as world:
        async with world.fl.database.transaction() as tx:
            await definitions.patch(tx, given.TESTER, KEY, {"kind": "host"})
        listening = bind("127.0.0.1", 0)
        ours = create_server(world.app)
        serving = asyncio.create_task(ours.serve(sockets=[listening]))
        await ours.up.wait()
        try:
            port = listening.getsockname()[1]
            yield f"http://127.0.0.1:{port}", world.secrets[given.TENANT, "tenant_admin"], KEY
        finally:
            ours.should_exit = True
            await serving


class Http:
    """Calls with one token, whose answers are JSON."""

    def __init__(self, client: httpx2.AsyncClient, url: str, token: str | None = None) -> None:
        self._client = client
        self._url = f"{url}/api/v1"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def __call__(self, method: str, path: str, expected: int, **more: Any) -> Any:
        answer = await self._client.request(method, self._url + path, headers=self._headers, **more)
        assert answer.status_code == expected, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()


class Played:
    """A host that was registered, and its agent."""

    def __init__(self, admin: Http, key: str, http: Callable[[str | None], Http]) -> None:
        self.admin = admin
        self.key = key
        self.http = http

    async def enrol(self) -> None:
        """Register a host, and exchange a code for the agent's token."""
        host = await self.admin("POST", "/hosts", 201, json={"name": f"conformance-{uuid4().hex[:12]}"})
        self.code = (await self.admin("POST", f"/hosts/{host['id']}/enrolment", 201))["code"]
        enrolled = await self.http(None)("POST", "/agent/enrol", 201, json={"code": self.code})
        assert enrolled["host_id"] == host["id"]
        self.at = f"/agent/hosts/{host['id']}"
        self.host_id = host["id"]
        self.agent = self.http(enrolled["token"])

    async def start(self) -> None:
        """Become the host's agent."""
        started = await self.agent("POST", f"{self.at}/session", 201, json={"version": "conformance 1"})
        self.session = started["session_id"]

    async def enqueue(self) -> str:
        body = {"definition_key": self.key, "payload": {}, "host_id": self.host_id}
        return str((await self.admin("POST", "/jobs", 201, json=body))["id"])

    async def poll(self, expected: int = 200, **params: Any) -> Any:
        return await self.agent(
            "GET", f"{self.at}/jobs", expected, params={"session": self.session, "wait": 30, **params}
        )

    async def say(self, what: str, job: Any, expected: int = 200, **more: Any) -> Any:
        """Something about a job, under its lease."""
        path = f"{self.at}/jobs/{job['job_id']}/{what}"
        return await self.agent("POST", path, expected, json={**lease(job), **more})


def lease(job: Any) -> dict[str, Any]:
    return {"attempt_no": job["attempt_no"], "lease_token": job["lease_token"]}


@pytest.fixture
async def played(served: tuple[str, str, str]) -> AsyncIterator[Played]:
    url, token, key = served
    async with httpx2.AsyncClient(timeout=SECONDS) as client:
        one = Played(Http(client, url, token), key, lambda secret: Http(client, url, secret))
        await one.enrol()
        await one.start()
        yield one


async def test_a_job_from_its_poll_to_its_result(played: Played) -> None:
    job_id = await played.enqueue()

    [job] = (await played.poll())["items"]
    assert {"job_run_id", "definition_key", "payload", "timeout_seconds", "lease_seconds"} <= job.keys()
    assert job["job_id"] == job_id
    accepted = await played.say("accept", job)
    assert accepted["lease_seconds"] > 0
    assert accepted["cancel_requested"] is False
    await played.say("progress", job, percent=50, message="half")
    chunk = {"seq": 0, "stream": "stdout", "text": "hello\n"}
    assert (await played.say("logs", job, chunks=[chunk]))["kept"] == 1
    await played.say("logs", job, chunks=[chunk])  # again, and kept once
    held = {"leases": [{**lease(job), "job_id": job_id}]}
    [beat] = (await played.agent("POST", f"{played.at}/heartbeat", 200, json=held))["leases"]
    assert (beat["job_id"], beat["lost"], beat["cancel_requested"]) == (job_id, False, False)
    ended = await played.say("result", job, status="succeeded", output={"ok": True}, duration_ms=5)

    assert ended == {"job_id": job_id, "status": "succeeded"}
    assert (
        await played.say("result", job, status="succeeded", output={"ok": True}) == ended
    )  # again, the same
    told = await played.admin("GET", f"/jobs/{job_id}", 200)
    assert (told["status"], told["output"]) == ("succeeded", {"ok": True})


async def test_a_job_is_given_again_until_it_is_accepted(played: Played) -> None:
    await played.enqueue()

    [job] = (await played.poll())["items"]
    assert (await played.poll(wait=0))["items"] == [job]
    await played.say("accept", job)
    await played.say("accept", job)  # its answer was lost
    assert (await played.poll(wait=0))["items"] == []
    await played.say("result", job, status="succeeded")


async def test_a_failure_and_a_release(played: Played) -> None:
    job_id = await played.enqueue()
    [job] = (await played.poll())["items"]
    await played.say("accept", job)

    assert (await played.say("release", job))["status"] == "queued"
    [again] = (await played.poll())["items"]
    assert (again["job_id"], again["attempt_no"]) == (job_id, 2)
    await played.say("accept", again)
    failed = await played.say(
        "result", again, status="failed", error={"type": "NoDisk", "message": "no disk"}, retryable=False
    )

    assert failed["status"] == "failed"


async def test_what_ended_is_refused_under_another_lease_with_a_reason(played: Played) -> None:
    await played.enqueue()
    [job] = (await played.poll())["items"]
    await played.say("accept", job)

    refused = await played.say("result", {**job, "lease_token": str(uuid4())}, 409, status="succeeded")

    assert refused["code"] == "lease_lost"
    assert refused["detail"]
    await played.say("result", job, status="succeeded")


async def test_a_cancel_is_pushed_to_an_agent_without_room(played: Played) -> None:
    job_id = await played.enqueue()
    [job] = (await played.poll())["items"]
    await played.say("accept", job)
    waiting = asyncio.create_task(played.poll(wait=30, limit=0))
    await played.admin("POST", f"/jobs/{job_id}/cancel", 200)

    assert (await waiting)["cancel"] == [job_id]
    assert (await played.say("release", job))["status"] == "canceled"


async def test_a_pause_is_pushed_with_its_note(played: Played) -> None:
    waiting = asyncio.create_task(played.poll(wait=30))
    change = {"paused": True, "note": "new disk"}
    await played.admin("PATCH", f"/hosts/{played.host_id}", 200, json=change)

    told = await waiting
    assert (told["paused"], told["note"], told["items"]) == (True, "new disk", [])


async def test_an_agent_that_was_replaced_is_told_so(played: Played) -> None:
    older = played.session
    await played.start()

    assert (await played.poll(409, session=older))["code"] == "agent_superseded"
    assert (await played.poll(wait=0))["items"] == []


async def test_a_code_is_good_once_and_a_token_for_its_host_only(played: Played) -> None:
    refused = await played.http(None)("POST", "/agent/enrol", 401, json={"code": played.code})
    assert refused["code"] == "enrolment_refused"
    elsewhere = f"/agent/hosts/{uuid4()}/session"
    assert (await played.agent("POST", elsewhere, 404, json={"version": "1"}))["code"] == "host_unknown"


async def test_a_token_is_exchanged_for_a_new_one(played: Played) -> None:
    rotated = await played.agent("POST", f"{played.at}/token", 200)
    played.agent = played.http(rotated["token"])

    assert (await played.poll(wait=0))["items"] == []
