"""Who may ask learns nothing of a secret: whatever it is, the same requests are answered alike."""

import re
from typing import Any

import pytest

from fairlead.runtime.trigger_loops import trigger_due
from tests.server.test_canary import ON_EVENT, SECRETIVE
from tests.server.world import World
from tests.thorough import mostly_thorough

# Of the same length: that may be seen.
THESE = ("Beadc0de-7f3a-41bc-9d55-0c4e8aa2b791", "Q1w2e3r4-t5z6-u7i8-o9p0-a1s2d3f4g5h6")
GUESSES = [
    *(secret[:size] for secret in THESE for size in (3, 4, 5, 12, 35)),
    *(secret[9:] for secret in THESE),
]
_CHANGES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)")


class Answers(list[str]):
    """What a tenant was answered, without ids, times and its name."""

    def __init__(self, world: World, tenant: str) -> None:
        super().__init__()
        self._world = world
        self._tenant = tenant

    async def prepare(self, path: str, **more: Any) -> str:
        """The id of what was made as the owner of the secret makes it."""
        answer = await self._world.call("POST", path, tenant=self._tenant, **more)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def ask(self, method: str, path: str, **more: Any) -> None:
        answer = await self._world.call(method, path, tenant=self._tenant, **more)
        told = _CHANGES.sub("*", answer.text).replace(self._tenant, "*")
        self.append(f"{answer.status_code} {told}")


async def _prepare(world: World) -> None:
    schema = {"properties": {"password": {"type": "string", "x-secret": True}}}
    made = {**SECRETIVE, "arg_schema": schema}
    await world.call("POST", "/admin/jobs/definitions", who="super_admin", json=made)


async def _by_retries(world: World, answers: Answers, secret: str) -> None:
    """The payload's other fields hold guesses, and the secret is kept."""
    job = {"definition_key": "secretive", "payload": {"password": secret, "note": "plain"}}
    path = f"/jobs/{await answers.prepare('/jobs', who='application', json=job)}"
    await answers.ask("POST", f"{path}/cancel")
    guesses = [form.format(guess) for guess in GUESSES for form in ("{}", "{}…", "…{}", "x {}…")]
    for note in (guesses, [THESE[0]], THESE[0][:7] + "…"):
        for password in ("[redacted]", None):
            payload = {"note": note} | ({} if password is None else {"password": password})
            await answers.ask("POST", f"{path}/retry", json={"payload": payload})
            await answers.ask("GET", path)
            await answers.ask("POST", f"{path}/cancel")


async def _by_chosen_texts(world: World, answers: Answers, secret: str) -> None:
    """The secret stands in a trigger's template; an application chooses the event and its correlation id."""
    template = {"password": secret, "note": "{{event}}"}
    trigger = {**ON_EVENT, "payload_template": template}
    await answers.prepare("/jobs/triggers", who="tenant_admin", json=trigger)
    for guess in GUESSES:
        for text in (guess, f"{guess}…", f"…{guess}"):
            event = {"name": "mail.wanted", "data": {"guess": [text]}, "correlation_id": text}
            await answers.ask("POST", "/events", who="application", json=event)
    await trigger_due(world.fl.database)
    await answers.ask("GET", "/jobs", params={"limit": 200})
    await answers.ask("GET", "/events", who="tenant_admin", params={"limit": 200})
    for guess in GUESSES:
        await answers.ask("GET", "/jobs", params={"q": guess, "limit": 1})


async def _by_short_values(world: World, answers: Answers, secret: str) -> None:
    """A short secret, of which one request could try thousands of values."""
    short = secret[:8]
    template = {"password": short, "note": "{{event}}"}
    trigger = {**ON_EVENT, "payload_template": template}
    await answers.prepare("/jobs/triggers", who="tenant_admin", json=trigger)
    guesses = [one[:8] for one in THESE]
    for guess in guesses:
        event = {"name": "mail.wanted", "data": {"guesses": guesses}, "correlation_id": guess}
        await answers.ask("POST", "/events", who="application", json=event)
    await trigger_due(world.fl.database)
    await answers.ask("GET", "/jobs")


@pytest.mark.parametrize(
    ("password", "status"), [("1234567", 422), ("12345678", 201), ("", 201), (None, 201)]
)
async def test_a_secret_that_could_be_found_by_trying_is_refused(
    world: World, password: str | None, status: int
) -> None:
    schema = {"properties": {"password": {"type": ["string", "null"], "x-secret": True}}}
    made = {"key": "short", "arg_schema": schema}
    await world.call("POST", "/admin/jobs/definitions", who="super_admin", json=made)
    payload = {"password": password, "note": "1234"}
    flow = {"key": "flow", "steps": [{"name": "one", "definition": "short", "payload": "{{input}}"}]}
    await world.call("POST", "/workflows", who="tenant_admin", json=flow)

    one = await world.call("POST", "/jobs", json={"definition_key": "short", "payload": payload})
    many = await world.call(
        "POST", "/jobs/bulk", json={"jobs": [{"definition_key": "short", "payload": payload}]}
    )
    run = await world.call("POST", "/workflows/flow/runs", who="tenant_admin", json={"input": payload})
    shown = await world.call("GET", f"/workflows/runs/{run.json()['id']}", who="tenant_admin")

    assert (one.status_code, many.status_code) == (status, status)
    assert ("at least 8 characters" in one.text) is (status == 422)
    assert ("at least 8 characters" in str(shown.json()["steps"][0]["error"])) is (status == 422)
    assert "1234567" not in one.text + many.text


@pytest.mark.parametrize("beside", ["correlation_id", "dedupe_key"])
async def test_an_edit_does_not_uncover_a_secret_that_stands_beside_the_payload(
    world: World, beside: str
) -> None:
    await _prepare(world)
    job = {"definition_key": "secretive", "payload": {"password": THESE[0]}, beside: f"call {THESE[0]}"}
    made = await world.call("POST", "/jobs", who="application", json=job)
    path = f"/jobs/{made.json()['id']}"
    await world.call("POST", f"{path}/cancel")

    edit = {"payload": {"password": "quite another secret"}}
    refused = await world.call("POST", f"{path}/retry", json=edit)

    assert (refused.status_code, refused.json()["code"]) == (409, "job_not_retryable")
    assert [one["path"] for one in refused.json()["errors"]] == [beside]
    assert (await world.call("GET", path)).json()[beside] == "call [redacted]"
    for body in (None, {"payload": {"password": "[redacted]"}}):  # as it is
        assert await world.status("POST", f"{path}/retry", json=body) == 200
        assert (await world.call("POST", f"{path}/cancel")).json()[beside] == "call [redacted]"


@pytest.mark.parametrize("tried", mostly_thorough([_by_retries, _by_chosen_texts, _by_short_values]))
async def test_two_secrets_cannot_be_told_apart(world: World, tried: Any) -> None:
    await _prepare(world)
    seen = []
    for tenant, secret in zip(sorted(world.tenants), THESE, strict=True):
        seen.append(Answers(world, tenant))
        await tried(world, seen[-1], secret)
    assert seen[0] == seen[1]
    assert "[redacted]" in str(seen[0])
