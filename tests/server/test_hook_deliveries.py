"""Webhooks of other systems: verified, and each becomes one event."""

import asyncio
import json
import time
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from fairlead.model.hooks.hook import REMEMBERED_DAYS, Scheme
from fairlead.runtime.trigger_loops import trigger_due
from fairlead.server import hook_receiver, rate_limits
from fairlead.store import hooks as store
from tests import given
from tests.server.test_hooks_api import hook
from tests.server.test_triggers_api import ask, made, refusal
from tests.server.world import BASE, Uncounted, World, world_on
from tests.signing import signed
from tests.tables import each_case

SECRETS = {
    Scheme.STANDARD: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    Scheme.GITHUB: "a secret of sixteen",
    Scheme.STRIPE: "whsec_test_secret_of_stripe",
    Scheme.SLACK: "8f742231b10e8888abcd99yyyzzz85a5",
}
BODIES: dict[Scheme, dict[str, Any]] = {
    Scheme.STANDARD: {"type": "push", "data": {"n": 1}},
    Scheme.GITHUB: {"ref": "refs/heads/main"},
    Scheme.STRIPE: {"id": "evt_1", "type": "push"},
    Scheme.SLACK: {"type": "event_callback", "event_id": "Ev1", "event": {"type": "push"}},
}
FORGED, THEIRS = "a forged secret of mine", "another tenant's secret"
FORGED_STANDARD = "whsec_" + "A" * 32
FORM = "application/x-www-form-urlencoded"


async def send(
    world: World,
    body: bytes,
    headers: dict[str, str],
    *,
    tenant: str = given.TENANT,
    name: str = "h",
) -> httpx2.Response:
    return await world.client.post(f"{BASE}/hooks/{tenant}/{name}", content=body, headers=headers)


async def deliver(
    world: World,
    scheme: Scheme = Scheme.GITHUB,
    body: Any = None,
    *,
    secret: str = "",
    name: str = "h",
    **more: Any,
) -> httpx2.Response:
    """A delivery as its sender signs it."""
    text = body if isinstance(body, bytes) else json.dumps(BODIES[scheme] if body is None else body).encode()
    return await send(world, text, signed(scheme, secret or SECRETS[scheme], text, **more), name=name)


async def hook_of(world: World, scheme: Scheme = Scheme.GITHUB, **more: Any) -> Any:
    return await hook(world, **{"name": "h", "scheme": scheme, "secret": SECRETS[scheme], **more})


async def events_of(world: World) -> list[Any]:
    items: list[Any] = (await ask(world, "GET", "/events")).json()["items"]
    return items


@each_case("scheme", Scheme)
async def test_a_signed_delivery_becomes_one_event_however_often_it_is_sent(
    world: World, scheme: Scheme
) -> None:
    made_hook = await hook_of(world, scheme, name=scheme.value)
    first = await deliver(world, scheme, name=scheme.value)
    repeated = (deliver(world, scheme, name=scheme.value, sent_at=time.time() + 1) for _ in range(5))
    again = await asyncio.gather(*repeated)

    assert (first.status_code, first.json()["duplicate"]) == (202, False)
    assert [one.status_code for one in again] == [202] * 5
    assert [one.json() for one in again] == [{"id": first.json()["id"], "duplicate": True}] * 5
    [event] = [one for one in await events_of(world) if one["created_by"] == f"hook:{scheme}"]
    assert (event["id"], event["name"]) == (first.json()["id"], f"{scheme}.push")
    assert {**event["data"], **BODIES[scheme]} == event["data"]
    shown = (await ask(world, "GET", f"/hooks/{made_hook['id']}")).json()
    assert shown["last_received_at"] is not None
    assert shown["last_refused_at"] is None


@each_case("scheme", Scheme)
async def test_forged_late_and_tampered_deliveries_are_refused_alike(world: World, scheme: Scheme) -> None:
    world.app.state.gatekeeper.failures = Uncounted(world.fl)
    name = scheme.value
    await hook_of(world, scheme, name=name)
    body = json.dumps(BODIES[scheme]).encode()
    good = signed(scheme, SECRETS[scheme], body)
    forged = {
        "unsigned": send(world, body, {"content-type": "application/json"}, name=name),
        "forged": deliver(world, scheme, secret=FORGED_STANDARD, name=name),
        "tampered": send(world, body.replace(b"push", b"pull").replace(b"main", b"evil"), good, name=name),
        "late": deliver(world, scheme, sent_at=time.time() - 400, name=name),
        "early": deliver(world, scheme, sent_at=time.time() + 400, name=name),
    }
    if scheme is Scheme.GITHUB:  # has no timestamp
        forged.pop("late").close()
        forged.pop("early").close()
    answers = {why: await one for why, one in forged.items()}

    assert {why: refusal(one) for why, one in answers.items()} == dict.fromkeys(
        answers, (401, "webhook_unverified")
    )
    assert len({one.text for one in answers.values()}) == 1
    assert await events_of(world) == []


async def test_people_see_why_the_last_delivery_was_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_receiver, "REFUSAL_SECONDS", 0.0)
    world.app.state.gatekeeper.failures = Uncounted(world.fl)
    made_hook = await hook_of(world, Scheme.STRIPE)

    async def why() -> Any:
        shown = (await ask(world, "GET", f"/hooks/{made_hook['id']}", who="viewer")).json()
        assert shown["last_refused_at"] is not None
        return shown["last_refusal"]

    await send(world, b"{}", {})
    assert await why() == "signature_missing"
    await deliver(world, Scheme.STRIPE, secret=FORGED)
    assert await why() == "signature_wrong"
    await deliver(world, Scheme.STRIPE, sent_at=time.time() - 301)
    assert await why() == "too_old"
    assert refusal(await deliver(world, Scheme.STRIPE, b"not json")) == (422, "body_not_json")
    assert await why() == "body_invalid"
    assert refusal(await deliver(world, Scheme.STRIPE, content_type=FORM)) == (
        415,
        "content_type_unsupported",
    )
    too_deep = b'{"a":' * 65 + b"1" + b"}" * 65
    assert refusal(await deliver(world, Scheme.STRIPE, too_deep)) == (422, "payload_too_deep")
    assert await why() == "event_refused"
    await ask(world, "PATCH", f"/hooks/{made_hook['id']}", json={"is_enabled": False})
    assert refusal(await deliver(world, Scheme.STRIPE)) == (409, "hook_disabled")
    assert await why() == "disabled"
    assert await events_of(world) == []


async def test_unknown_tenants_and_hooks_are_refused_alike(world: World) -> None:
    await hook_of(world)
    body = b"{}"
    headers = signed(Scheme.GITHUB, SECRETS[Scheme.GITHUB], body)
    answers = [
        await send(world, body, headers, tenant=tenant, name=name)
        for tenant, name in (
            (given.TENANT, "x"),
            ("nobody", "h"),
            (given.OTHER, "h"),
            (given.TENANT, "a%01"),
        )
    ]
    answers.append(await send(world, b"{ }", headers))
    assert [refusal(answer) for answer in answers] == [(401, "webhook_unverified")] * 5
    assert len({answer.text for answer in answers}) == 1, "a hook that exists says the same to a forger"
    got = await world.client.get(f"{BASE}/hooks/{given.TENANT}/h")
    assert refusal(got) == (405, "method_not_allowed")


async def test_the_same_name_in_another_tenant_is_another_hook(world: World) -> None:
    await hook_of(world)
    await hook(world, name="h", secret=THEIRS, tenant=given.OTHER)
    body = b"{}"
    mine = signed(Scheme.GITHUB, SECRETS[Scheme.GITHUB], body)
    assert refusal(await send(world, body, mine, tenant=given.OTHER)) == (401, "webhook_unverified")
    assert (await send(world, body, mine)).status_code == 202
    theirs = signed(Scheme.GITHUB, THEIRS, body)
    answer = await send(world, body, theirs, tenant=given.OTHER)
    assert (answer.status_code, answer.json()["duplicate"]) == (202, False)


async def test_the_old_secret_is_valid_for_a_while_after_a_rotation(world: World) -> None:
    made_hook = await hook_of(world)
    rotate = f"/hooks/{made_hook['id']}/rotate-secret"
    new = (await ask(world, "POST", rotate, json={"keep_seconds": 3600})).json()["secret"]
    for number, secret in enumerate((new, SECRETS[Scheme.GITHUB])):
        assert (await deliver(world, secret=secret, message_id=str(number))).status_code == 202
    newest = (await ask(world, "POST", rotate, json={"keep_seconds": 0})).json()["secret"]
    for old in (new, SECRETS[Scheme.GITHUB]):
        assert refusal(await deliver(world, secret=old)) == (401, "webhook_unverified")
    assert (await deliver(world, secret=newest, message_id="2")).status_code == 202
    assert len(await events_of(world)) == 3


async def test_a_github_delivery_may_be_unique_by_its_body(world: World) -> None:
    await hook_of(world, unique_by="body")
    first = await deliver(world, message_id="d1")
    renamed = await deliver(world, message_id="d2", event="release")
    assert renamed.json() == {"id": first.json()["id"], "duplicate": True}
    assert [one["name"] for one in await events_of(world)] == ["h.push"]


async def test_a_delivery_is_remembered_when_its_event_is_gone(world: World) -> None:
    await hook_of(world)
    first = await deliver(world)
    async with world.transaction() as tx:
        await given.forget_events(tx)
        await given.age(tx, "hook deliveries", days=REMEMBERED_DAYS - 1)
        await store.remove_old(tx, days=REMEMBERED_DAYS)
    assert (await deliver(world)).json() == {"id": first.json()["id"], "duplicate": True}
    async with world.transaction() as tx:
        await given.age(tx, "hook deliveries", days=2)
        await store.remove_old(tx, days=REMEMBERED_DAYS)
    assert (await deliver(world)).json()["duplicate"] is False


async def test_slack_is_answered_as_it_expects(world: World) -> None:
    await hook_of(world, Scheme.SLACK)
    asked = await deliver(
        world, Scheme.SLACK, {"type": "url_verification", "challenge": "3eZb", "token": "x"}
    )
    assert (asked.status_code, asked.json()) == (200, {"challenge": "3eZb"})
    probe = await deliver(world, Scheme.SLACK, b"ssl_check=1", content_type=FORM)
    assert (probe.status_code, probe.content) == (200, b"")
    assert await events_of(world) == []
    typed = urlencode({"command": "/deploy", "text": "now"}).encode()
    answers = [
        await deliver(world, Scheme.SLACK, typed, content_type=FORM, sent_at=at) for at in [time.time()] * 2
    ]
    assert [(one.status_code, one.content) for one in answers] == [(200, b"")] * 2
    [event] = await events_of(world)
    assert (event["name"], event["data"]["command"]) == ("h.command", "/deploy")


async def test_a_delivery_makes_a_job_of_its_trigger(world: World) -> None:
    await hook_of(world)
    await made(
        world,
        trigger_type="event",
        cron_expr=None,
        event_name="h.push",
        filter={"ref": "refs/heads/main"},
        payload_template={"ref": "{{event.ref}}", "delivery": "{{event.webhook.id}}"},
    )
    await deliver(world, message_id="d1")
    await deliver(world, message_id="d1")
    await trigger_due(world.fl.database)
    [job] = (await ask(world, "GET", "/jobs")).json()["items"]
    shown = (await ask(world, "GET", f"/jobs/{job['id']}")).json()
    assert shown["payload"] == {"ref": "refs/heads/main", "delivery": "d1"}
    assert shown["correlation_id"] == "d1"


async def test_a_large_body_is_refused_before_it_is_verified(world: World) -> None:
    await hook_of(world)
    answer = await deliver(world, body=b'"' + b"x" * world.fl.settings.max_payload_bytes + b'"')
    assert refusal(answer) == (413, "body_too_large")
    [shown] = (await ask(world, "GET", "/hooks")).json()["items"]
    assert shown["last_refusal"] == "body_too_large"


@pytest.mark.usefixtures("slow_budgets")
async def test_forged_deliveries_are_limited_by_address_and_valid_ones_are_not(world: World) -> None:
    await hook_of(world)
    forged = [await deliver(world, secret=FORGED) for _ in range(12)]
    assert [one.status_code for one in forged] == [401] * 10 + [429] * 2
    assert (await deliver(world)).status_code == 202
    guessed = await send(world, b"{}", {}, name="another")
    assert (guessed.status_code, "retry-after" in guessed.headers) == (429, True)


async def test_a_hook_that_another_process_disabled_or_removed_takes_no_more_deliveries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_receiver, "REMEMBER_SECONDS", 600.0)
    made_hook = await hook_of(world)
    await deliver(world)
    for sql in ("update fairlead.hooks set is_enabled = false", "delete from fairlead.hooks"):
        async with world.fl.database.transaction() as tx:
            await tx.run(sql)
        assert refusal(await deliver(world, message_id="d2")) == (409, "hook_disabled")
    assert (await ask(world, "GET", f"/hooks/{made_hook['id']}")).status_code == 404
    assert len(await events_of(world)) == 1


async def test_a_flood_of_forged_deliveries_costs_no_queries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REMEMBER_SECONDS", "REFUSAL_SECONDS"):
        monkeypatch.setattr(hook_receiver, name, 600.0)
    await hook_of(world)
    world.app.state.gatekeeper.failures = Uncounted(world.fl)
    await deliver(world, secret=FORGED)

    def refuse(*_: Any) -> Any:
        raise AssertionError("a query")

    monkeypatch.setattr(type(world.fl.database), "transaction", refuse)
    monkeypatch.setattr(type(world.fl.database), "single", refuse)
    assert refusal(await deliver(world, secret=FORGED)) == (401, "webhook_unverified")


async def test_valid_deliveries_of_a_hook_are_limited(database_url: str) -> None:
    async with world_on(database_url, rate_limit_per_second=0.01, rate_limit_burst=20) as world:
        await hook_of(world)
        answers = [await deliver(world, message_id=str(number)) for number in range(21)]
        assert [one.status_code for one in answers] == [202] * 20 + [429]
        assert "retry-after" in answers[-1].headers


async def test_the_hooks_of_a_tenant_share_a_limit_of_their_own(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "TENANT_SHARES", 2)
    async with world_on(database_url, rate_limit_per_second=0.01, rate_limit_burst=20) as world:
        for name in ("one", "two", "three"):
            await hook_of(world, name=name)
        names = ["one"] * 20 + ["two"] * 20 + ["three"]
        answers = [
            await deliver(world, name=name, message_id=f"{name}-{number}")
            for number, name in enumerate(names)
        ]
        assert [one.status_code for one in answers] == [202] * 40 + [429]
        assert refusal(answers[-1]) == (429, "too_many_requests")
        assert "retry-after" in answers[-1].headers
        assert await world.status("GET", "/jobs", who="viewer") == 200


async def test_a_full_queue_refuses_a_delivery_and_forgets_it(world: World) -> None:
    await hook_of(world)
    tenant = f"/admin/tenants/{given.TENANT}"
    await world.call("PATCH", tenant, who="super_admin", json={"quotas": {"queued_jobs": 1}})
    await ask(world, "POST", "/jobs", json={"definition_key": "anything", "payload": {}})
    assert (await deliver(world)).status_code == 429
    await world.call("PATCH", tenant, who="super_admin", json={"quotas": {"queued_jobs": None}})
    assert (await deliver(world)).json()["duplicate"] is False


async def test_a_session_or_token_is_no_signature(world: World) -> None:
    await hook_of(world)
    answer = await send(world, b"{}", world.headers("tenant_admin"))
    assert refusal(answer) == (401, "webhook_unverified")
    cross = {**signed(Scheme.GITHUB, SECRETS[Scheme.GITHUB], b"{}"), "sec-fetch-site": "cross-site"}
    assert (await send(world, b"{}", cross)).status_code == 202
