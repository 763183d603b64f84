"""Canaries: secrets that are put everywhere they may be, and looked for everywhere they may not."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from fairlead.actions import definitions
from fairlead.model.access import Role
from fairlead.runtime.trigger_loops import trigger_due
from fairlead.server.console.pages import downloads
from fairlead.server.problems import CONSOLE
from tests import given
from tests.server import matrix
from tests.server.world import BASE, PASSWORD, World
from tests.waiting import SECONDS

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("patient_feeds")]

IN_PAYLOAD = "canary-payload-7f3a"
IN_NESTED = "canary-nested-91bc"
IN_HEADER = "canary-header-55d0"
IN_PASSWORD = "canary-password-c4e8"  # noqa: S105
IN_ENVIRONMENT = "canary-environment-02aa"
IN_PATTERN = "canary-pattern-77"

SECRETIVE = {
    "key": "secretive",
    "max_attempts": 1,
    "arg_schema": {
        "type": "object",
        "properties": {
            "password": {"type": "string", "writeOnly": True, "maxLength": 30},
            "smtp": {"type": "object", "properties": {"key": {"type": "string", "x-secret": True}}},
            "note": {"type": "string"},
        },
        "additionalProperties": False,
    },
}
SECRETS_IN = {
    "job_records": "payload",
    "job_triggers": "payload_template",
    "events": "data",
    "workflows": "spec",
    "workflow_runs": "input",
    "workflow_steps": "spec",
}
PAYLOAD = {"password": IN_PAYLOAD, "smtp": {"key": IN_NESTED}, "note": "plain"}


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Every line of every log."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("FAIRLEAD_CANARY", IN_ENVIRONMENT)
    monkeypatch.setenv("PGPASSWORD", IN_ENVIRONMENT)
    with capture_logs() as lines:
        yield lines
        lines.extend({"stdlib": record.getMessage()} for record in caplog.records)


def canaries(world: World) -> list[str]:
    return [
        IN_PAYLOAD,
        IN_NESTED,
        IN_HEADER,
        IN_PASSWORD,
        IN_ENVIRONMENT,
        PASSWORD,
        *world.secrets.values(),
    ]


def found(text: str, secrets: list[str]) -> list[str]:
    return [secret for secret in secrets if secret in text]


@asynccontextmanager
async def watched(world: World) -> AsyncIterator[list[str]]:
    """The frames of the live socket, as they come."""
    frames: list[str] = []
    gone = asyncio.Event()
    begun = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        if not begun.is_set():
            begun.set()
            return {"type": "websocket.connect"}
        await gone.wait()
        return {"type": "websocket.disconnect", "code": 1000}

    async def send(message: MutableMapping[str, Any]) -> None:
        frames.append(repr(message))

    serving = asyncio.create_task(world.app(world.live_scope(world.headers("viewer")), receive, send))
    try:
        yield frames
    finally:
        gone.set()
        await asyncio.wait_for(serving, SECONDS)


async def until(frames: list[str], text: str) -> None:
    async with asyncio.timeout(SECONDS):
        while not any(text in frame for frame in frames):
            await asyncio.sleep(0.05)


async def everything_kept(world: World) -> str:
    """All rows of all tables as text, but for payloads and what they are made of: those that run jobs need them."""
    async with world.fl.database.transaction() as tx:
        tables = await tx.values(
            "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where n.nspname = 'fairlead' and c.relkind = 'r' and not c.relname = any(%s)",
            [list(SECRETS_IN)],
        )
        kept = [
            *[
                repr(await tx.values(f"select to_jsonb(t) - '{column}' from fairlead.{table} t"))
                for table, column in SECRETS_IN.items()
            ],
            *[repr(await tx.values(f"select t::text from fairlead.{name} t")) for (name,) in tables],
        ]
    return "\n".join(kept)


async def everything_shown(
    world: World, to: Sequence[str] = ("viewer", "tenant_admin", "super_admin")
) -> str:
    """What every GET route shows, to everybody who may see anything there, about the newest of each kind."""
    async with world.transaction() as tx:
        job, trigger, event, run = [
            await given.newest_id(tx, table) for table in ("jobs", "job_triggers", "events", "workflow_runs")
        ]
    values = {
        "job_id": job,
        "trigger_id": trigger or job,
        "event_id": event or job,
        "run_id": run or job,
        "key": "secretive",
        "tenant": given.TENANT,
        "definition": "secretive",
    }
    shown = []
    for rule in matrix.rules(world.app):
        if rule.method != "GET" or "name" in rule.params:
            continue
        path = rule.path.format(**{param: values.get(param, job) for param in rule.params})
        for who in to:
            answer = await world.call("GET", BASE + path, who=who, params=matrix.QUERIES.get(str(rule), {}))
            assert answer.status_code < 500, f"{rule}: {answer.text}"
            shown.append(answer.text + repr(answer.headers))
    for route in downloads.router.routes:
        path = CONSOLE + route.path.format(**values, host_id=world.hosts[given.TENANT])  # type: ignore[attr-defined]
        answer = await world.call("GET", BASE + path, who="super_admin")
        assert answer.status_code in (200, 404), f"{path}: {answer.text}"
        shown.append(answer.text)
    return "\n".join(shown)


@pytest.fixture
async def secretive(world: World) -> World:
    async with world.fl.database.transaction() as tx:
        await definitions.patch(tx, given.TESTER, "secretive", SECRETIVE)
    return world


async def test_secrets_of_a_payload_are_seen_by_nobody_but_who_runs_the_job(
    secretive: World, heard: list[Any]
) -> None:
    world, secrets, answers = secretive, canaries(secretive), []
    async with watched(world) as frames:
        await until(frames, "hello")
        for number, payload in enumerate(
            (
                PAYLOAD,
                {**PAYLOAD, "password": IN_PAYLOAD + "x" * 50},  # too long: refused, and not repeated
                {**PAYLOAD, "password": [IN_PAYLOAD]},
                {**PAYLOAD, "smtp": IN_NESTED},
                {**PAYLOAD, "unknown": 1},
            )
        ):
            body = {"definition_key": "secretive", "payload": payload}
            answers += [
                await world.call("POST", "/jobs", json=body, headers={"Idempotency-Key": str(number)}),
                await world.call("POST", "/jobs", json={**body, "priority": "x"}),
                await world.call("POST", "/jobs/bulk", json={"jobs": [body]}),
            ]
        await _run(world, answers)
        await until(frames, "failed")
    job = answers[0].json()["id"]
    answers += [
        await world.call("POST", f"/jobs/{job}/retry", json={"payload": {**PAYLOAD, "note": "again"}}),
        await world.call("POST", f"/jobs/{job}/cancel"),
    ]
    shown = "\n".join(answer.text + repr(answer.headers) for answer in answers)
    assert found(shown, secrets) == []
    assert found(await everything_shown(world), secrets) == []
    assert found(await everything_kept(world), secrets) == []
    assert found("\n".join(frames), secrets) == []
    assert found(repr(heard), secrets) == []
    assert "[redacted]" in shown


async def _run(world: World, answers: list[Any]) -> None:
    """Run what waits, and tell its secrets wherever one can."""
    claimed = await world.call(
        "POST", "/worker/jobs/claim", who="worker", json={"definitions": ["secretive"], "limit": 2}
    )
    taken = claimed.json()["items"]
    assert {job["payload"]["password"] for job in taken} == {IN_PAYLOAD}, "who runs it needs it"
    said = f"connecting with {IN_PAYLOAD} and {IN_NESTED}"
    for number, job in enumerate(taken):
        lease = {"attempt_no": job["attempt_no"], "lease_token": job["lease_token"]}

        async def tell(what: str, job: Any = job, lease: Any = lease, **more: Any) -> None:
            path = f"/worker/jobs/{job['job_id']}/{what}"
            answer = await world.call("POST", path, who="worker", json={**lease, **more})
            assert answer.status_code == 200, answer.text
            answers.append(answer)

        await tell("progress", percent=50, message=said)
        await tell("logs", chunks=[{"seq": 0, "text": said}])
        if number:
            await tell("complete", output={"said": said}, stdout_tail=said, stderr_tail=said)
        else:
            error = {"type": "LoginFailed", "message": said, "traceback": said}
            await tell("fail", error=error, retryable=False, stdout_tail=said)


# Triggers and events

ON_EVENT: dict[str, Any] = {
    "label": "Send",
    "trigger_type": "event",
    "event_name": "mail.wanted",
    "definition_key": "secretive",
    "dedupe_window_seconds": 0,
}
# Each fills the secrets of its jobs in a way of its own.
TEMPLATES = (
    PAYLOAD,
    {**PAYLOAD, "password": '{{event.password | default: "canary-payload-7f3a"}}'},
    {"password": "{{event.password}}", "smtp": "{{event.smtp}}", "note": "{{meta.event_name}}"},
    {"smtp": {"key": "x{{event.smtp.key}}"}, "password": "{{event.password}}"},
    {"smtp": '{{event.smtp | default: {"key": "canary-nested-91bc"}}}'},
    {"smtp": IN_NESTED},  # which can fit nothing
    "{{event}}",
)


@pytest.mark.parametrize("says", TEMPLATES, ids=range(len(TEMPLATES)))
async def test_secrets_of_templates_and_events_are_seen_by_nobody_but_who_runs_the_job(
    secretive: World, heard: list[Any], says: Any
) -> None:
    world, secrets = secretive, canaries(secretive)

    async def ask(method: str, path: str, **more: Any) -> Any:
        answers.append(await world.call(method, path, who="tenant_admin", **more))
        assert answers[-1].status_code < 500, answers[-1].text
        return answers[-1].json()

    answers: list[Any] = []
    async with watched(world) as frames:
        await until(frames, "hello")
        body = {**ON_EVENT, "payload_template": says}
        key = {"Idempotency-Key": "t"}
        trigger = await ask("POST", "/jobs/triggers", json=body, headers=key)
        await ask("POST", "/jobs/triggers", json=body, headers=key)
        path = f"/jobs/triggers/{trigger['id']}"
        shown = (await ask("GET", path))["payload_template"]
        changes: list[dict[str, Any]] = [{"payload_template": shown}, {"label": "New"}]
        changes += [{"payload_template": {**PAYLOAD, "x": "{{y}}"}}]
        if not feeds_secrets(says):  # refused: to another definition the secrets in it would be none
            changes += [{"definition_key": "anything"}]
            changes += [{"definition_key": "anything", "payload_template": shown}]
        for change in changes:
            await ask("PATCH", path, json=change)
        assert await given.stored_template(world, trigger["id"]) == says, "what was not seen is not lost"
        # one whose job has no secrets at all, of the same event
        await ask(
            "POST",
            "/jobs/triggers",
            json={**body, "definition_key": "greet", "payload_template": {"name": "{{event.note}}"}},
        )
        event = await ask("POST", "/events", json={"name": "mail.wanted", "data": PAYLOAD})
        await ask("POST", "/events", json={"name": "mail wanted", "data": PAYLOAD})
        await trigger_due(world.fl.database)
        await ask("POST", f"/events/{event['id']}/replay")
        for wanted in (
            {"trigger_id": trigger["id"], "event_id": event["id"]},
            {"trigger_id": trigger["id"], "sample": PAYLOAD},
            {"trigger_id": trigger["id"], "sample": {**PAYLOAD, "password": [IN_PAYLOAD]}},
            {"trigger_id": trigger["id"], "event_id": event["id"], "definition_key": "anything"},
            {**body, "event_id": event["id"]},
        ):
            await ask("POST", "/jobs/triggers/preview", json=wanted)
        if feeds_secrets(says):  # so they are secrets, whoever else has a use for them
            spying = {
                "event_id": event["id"],
                "payload_template": {"a": "{{event}}", "b": "-{{event.password}}"},
            }
            spied = {**body, "definition_key": "anything", **spying}
            said = await ask("POST", "/jobs/triggers/preview", json=spied)
            assert said["payload"]["b"] == "-[redacted]"
        for what in (
            path,
            path + "/firings",
            f"/events/{event['id']}",
            "/events",
            "/jobs/triggers",
            "/audit",
        ):
            await ask("GET", what)
        if any(firing["job_id"] for firing in (await ask("GET", f"/events/{event['id']}"))["firings"]):
            await until(frames, "job.created")
    told = "\n".join(answer.text + repr(answer.headers) for answer in answers)
    in_events = [] if feeds_secrets(says) else [IN_PAYLOAD, IN_NESTED]
    if in_events:  # nothing says that what is in the event is a secret: forget it for what follows
        async with world.fl.database.transaction() as tx:
            await tx.run("update fairlead.events set data = '{}'")
        told = "\n".join(answer.text for answer in answers if '"data"' not in answer.text)
    assert found(told, secrets) == []
    assert found(await everything_shown(world, ("viewer", "tenant_admin", "super_admin")), secrets) == []
    assert found(await everything_kept(world), secrets) == []
    assert found("\n".join(frames), secrets) == []
    assert found(repr(heard), secrets) == []
    assert "[redacted]" in told


def feeds_secrets(says: Any) -> bool:
    """Whether all secrets of the payload come from the event."""
    return says in (TEMPLATES[2], TEMPLATES[3], TEMPLATES[6])


# Workflows

FLOW: dict[str, Any] = {
    "key": "secretive",
    "steps": [
        {"name": "said", "definition": "secretive", "payload": PAYLOAD},
        {
            "name": "given",
            "definition": "secretive",
            "payload": {"password": "{{input.password}}", "smtp": "{{input.smtp}}"},
        },
        {
            "name": "after",
            "definition": "secretive",
            "payload": {"password": "{{input.password}}", "unknown": "{{input.smtp.key}}"},
            "after": ["said"],
            "on_failure": "continue",
        },
    ],
    "input_schema": {
        "properties": {"password": {"type": "string", "maxLength": 30, "x-secret": True}},
    },
    "output": {"all": "{{input}}", "text": "-{{input.password}}", "said": "{{steps.said.output}}"},
}


async def test_secrets_of_workflows_and_their_input_are_seen_by_nobody_but_who_runs_the_jobs(
    secretive: World, heard: list[Any]
) -> None:
    world, secrets, answers = secretive, canaries(secretive), list[Any]()

    async def ask(method: str, path: str, **more: Any) -> Any:
        answers.append(await world.call(method, path, who="tenant_admin", **more))
        assert answers[-1].status_code < 500, answers[-1].text
        return answers[-1].json()

    async with watched(world) as frames:
        await until(frames, "hello")
        made = await ask("POST", "/workflows", json=FLOW, headers={"Idempotency-Key": "w"})
        again = await ask("POST", "/workflows", json={**made["spec"], "description": "sent back"})
        async with world.fl.database.transaction() as tx:
            [(kept,)] = await tx.values("select spec from fairlead.workflows where version = 2")
        assert kept["steps"][0]["payload"] == PAYLOAD, "what was not seen is not lost"
        assert again["spec"]["steps"] == made["spec"]["steps"]
        wrong = {**PAYLOAD, "password": IN_PAYLOAD + "x" * 50}
        for given_input in (PAYLOAD, wrong, {**PAYLOAD, "password": [IN_PAYLOAD]}):
            await ask("POST", "/workflows/secretive/runs", json={"input": given_input, "key": "k"})
        await _run(world, answers)
        await until(frames, "failed")
        [run] = (await ask("GET", "/workflows/runs"))["items"]
        await ask("GET", f"/workflows/runs/{run['id']}")
        await ask("POST", f"/workflows/runs/{run['id']}/retry")
        await _complete(world)
        over = await ask("GET", f"/workflows/runs/{run['id']}")
    assert over["run"]["status"] == "succeeded", over
    assert [step["state"] for step in over["steps"]] == ["succeeded", "succeeded", "failed"]
    told = "\n".join(answer.text + repr(answer.headers) for answer in answers)
    assert found(told, secrets) == []
    assert found(await everything_shown(world), secrets) == []
    assert found(await everything_kept(world), secrets) == []
    assert found("\n".join(frames), secrets) == []
    assert found(repr(heard), secrets) == []


async def _complete(world: World) -> None:
    """Run what waits, to a good end."""
    body = {"definitions": ["secretive"], "limit": 10}
    claimed = await world.call("POST", "/worker/jobs/claim", who="worker", json=body)
    for job in claimed.json()["items"]:
        lease = {"attempt_no": job["attempt_no"], "lease_token": job["lease_token"]}
        path = f"/worker/jobs/{job['job_id']}/complete"
        end = {**lease, "output": {"used": IN_PAYLOAD}}
        assert (await world.call("POST", path, who="worker", json=end)).status_code == 200


async def test_tokens_passwords_and_cookies_are_said_by_nobody(world: World, heard: list[Any]) -> None:
    cookie = await world.signed_in(Role.TENANT_ADMIN)
    secrets = [*canaries(world), cookie.partition("=")[2]]
    email = f"tenant_admin.{given.TENANT}@fairlead.test"
    answers = [
        await world.call("POST", "/login", who=None, json={"email": email, "password": IN_PASSWORD}),
        await world.call(
            "POST", "/login", who=None, json={"email": IN_PASSWORD, "password": IN_PASSWORD, "x": 1}
        ),
        await world.call("POST", "/login", who=None, json={"email": email, "password": {"is": IN_PASSWORD}}),
        await world.call("POST", "/login", who=None, content=f'{{"password": "{IN_PASSWORD}'.encode()),
        await world.call("GET", "/me", who=None, headers={"Cookie": cookie}),
        await world.call("GET", "/jobs", who=None, headers={"Authorization": f"Bearer {IN_HEADER}"}),
        await world.call("GET", "/jobs", who=None, headers={"Authorization": f"Basic {IN_HEADER}"}),
        await world.call("GET", "/jobs", who=None, headers={"Cookie": f"fairlead_session={IN_HEADER}"}),
        await world.call("GET", "/jobs", who="viewer", headers={"X-Secret": IN_HEADER}),
        await world.call("PUT", "/jobs", who="viewer", headers={"Cookie": cookie}),
        await world.call(
            "POST",
            "/users",
            who="tenant_admin",
            headers={"Idempotency-Key": "u"},
            json={"email": "new@fairlead.test", "password": IN_PASSWORD, "role": "viewer"},
        ),
        await world.call(
            "POST",
            "/users",
            who="tenant_admin",
            json={"email": "nobody", "password": IN_PASSWORD, "role": "super_admin"},
        ),
        await world.call(
            "POST", "/users", who="tenant_admin", json={"email": "x@y", "password": IN_PASSWORD, "role": 1}
        ),
    ]
    shown = "\n".join(answer.text + repr(answer.headers) for answer in answers)
    assert found(shown, secrets) == []
    assert found(await everything_shown(world), secrets) == []
    assert found(await everything_kept(world), secrets) == []
    assert found(repr(heard), secrets) == []


async def test_a_canary_would_be_found(secretive: World, heard: list[Any]) -> None:
    """The tests above can fail: this is where they look."""
    body = {"definition_key": "secretive", "payload": {"note": IN_PATTERN}, "correlation_id": IN_PATTERN}
    structlog.get_logger("x").warning("said", what=IN_PATTERN)
    logging.getLogger("x").warning(IN_PATTERN)
    async with watched(secretive) as frames:
        await until(frames, "hello")
        answer = await secretive.call("POST", "/jobs", json=body)
        await until(frames, answer.json()["id"])
    assert found(answer.text, [IN_PATTERN])
    assert found(await everything_shown(secretive, ["viewer"]), [IN_PATTERN])
    assert found(await everything_kept(secretive), [IN_PATTERN])
    assert found(repr(heard), [IN_PATTERN])
    assert os.environ["FAIRLEAD_CANARY"] == IN_ENVIRONMENT
