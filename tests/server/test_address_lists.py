"""Allow-lists of addresses: what they admit, whom they bind, and how soon."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from fairlead.model.access import Role
from fairlead.model.address_list import AddressList, is_within, read_networks
from fairlead.model.job import JobStatus
from fairlead.server.live_sockets import ADDRESS_NOT_ALLOWED
from fairlead.server.problems import PREFIX
from tests import given
from tests.server.test_agent_polling import Waiting
from tests.server.test_live import refusal, served, ticket, watching
from tests.server.world import BASE, PASSWORD, World
from tests.tables import each_case
from tests.waiting import SECONDS

HERE = "127.0.0.1"
ELSEWHERE = "203.0.113.9"


@asynccontextmanager
async def _from(world: World, address: str | None) -> AsyncIterator[World]:
    """The world as it answers a client with this address."""
    before = world.client
    client = ("" if address is None else address, 1)
    transport = httpx2.ASGITransport(app=world.app, client=client, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport) as world.client:
        yield world
    world.client = before


async def _status(world: World, address: str | None, who: str | None = "viewer", **more: Any) -> int:
    async with _from(world, address):
        return await world.status("GET", "/me", who=who, **more)


async def _set(
    world: World, *networks: str, tenant: str = given.TENANT, status: int = 200, **more: Any
) -> Any:
    answer = await world.call(
        "PUT", "/addresses", who="tenant_admin", tenant=tenant, json={"addresses": networks, **more}
    )
    assert answer.status_code == status, answer.text
    return answer.json()


async def _refusals(world: World) -> list[tuple[str, str]]:
    """Who was refused because of which address, as the audit log has it."""
    entries = await world.call("GET", "/audit", who="super_admin", params={"action": "address_refused"})
    return [(one["actor"], one["details"]["address"]) for one in entries.json()["items"]]


# What a list admits


@each_case(
    ("networks", "address", "is_admitted"),
    [
        (["10.0.0.0/8"], "10.1.2.3", True),
        (["10.0.0.0/8"], "11.1.2.3", False),
        (["10.0.0.0/8"], "::ffff:10.1.2.3", True),  # an IPv4 client of a socket for both
        (["::ffff:10.0.0.0/104"], "10.1.2.3", True),
        (["::ffff:10.0.0.0/104"], "11.1.2.3", False),
        (["192.0.2.7"], "192.0.2.7", True),
        (["2001:db8::/32"], "2001:db8:1::1", True),
        (["2001:db8::/32"], "2001:db9::1", False),
        (["fe80::/10"], "fe80::1%eth0", True),
        (["::/0"], "10.1.2.3", False),
        (["::/0"], "::ffff:10.1.2.3", False),
        (["0.0.0.0/0"], "2001:db8::1", False),
        (["0.0.0.0/0", "::/0"], None, False),
        (["0.0.0.0/0", "::/0"], "unknown", False),
    ],
)
def test_what_a_list_admits(networks: list[str], address: str | None, *, is_admitted: bool) -> None:
    kept, faults = read_networks(networks)

    assert faults == []
    assert AddressList("tenant", kept or ()).admits(address) is is_admitted


def test_a_list_is_kept_in_its_usual_form() -> None:
    assert read_networks([" 10.0.0.0/255.0.0.0 ", "10.0.0.0/8", "2001:DB8::/32"])[0] == (
        "10.0.0.0/8",
        "2001:db8::/32",
    )
    assert read_networks([]) == (None, [])
    assert "write 10.0.0.0/8" in read_networks(["10.1.2.3/8"])[1][0].message
    assert is_within(["10.1.0.0/16"], ["10.0.0.0/8"])
    assert not is_within(["10.0.0.0/8"], ["10.1.0.0/16"])
    assert not is_within(["2001:db8::/32"], ["0.0.0.0/0"])


# Whom it binds


async def test_a_list_binds_tokens_and_users_of_its_tenant_alone(world: World) -> None:
    cookies = {
        tenant: {"Cookie": await world.signed_in(Role.VIEWER, tenant)}
        for tenant in (given.TENANT, given.OTHER)
    }

    await _set(world, "127.0.0.0/8")

    for who in ("viewer", "operator", "tenant_admin", "application", "worker", "agent"):
        assert await _status(world, HERE, who) == 200, who
        assert await _status(world, ELSEWHERE, who) == 403, who
        assert await _status(world, ELSEWHERE, who, tenant=given.OTHER) == 200, who
    assert await _status(world, ELSEWHERE, None, headers=cookies[given.TENANT]) == 403
    assert await _status(world, ELSEWHERE, None, headers=cookies[given.OTHER]) == 200
    assert await _status(world, None) == 403
    # super admins are not bound, also not in the tenant
    assert await _status(world, ELSEWHERE, "super_admin", headers={"X-Tenant": given.TENANT}) == 200


async def test_the_refusal_says_what_was_seen_and_is_audited_once_a_minute(world: World) -> None:
    await _set(world, "127.0.0.0/8")
    async with _from(world, ELSEWHERE):
        answers = [await world.call("GET", "/jobs", who="viewer") for _ in range(5)]

    assert {one.json()["code"] for one in answers} == {"address_not_allowed"}
    assert ELSEWHERE in answers[0].json()["detail"]
    assert "127.0.0.0" not in answers[0].text
    entries = await world.call("GET", "/audit", who="viewer", params={"action": "address_refused"})
    [entry] = entries.json()["items"]
    assert (entry["actor"], entry["details"]) == (f"token:{given.TENANT}.viewer", {"address": ELSEWHERE})


async def test_a_right_password_from_elsewhere_starts_no_session_is_told_so_and_audited(world: World) -> None:
    await world.signed_in(Role.VIEWER)
    await _set(world, "127.0.0.0/8")
    email = f"viewer.{given.TENANT}@fairlead.test"

    async with _from(world, ELSEWHERE):
        right = await world.call("POST", "/login", who=None, json={"email": email, "password": PASSWORD})
        wrong = await world.call("POST", "/login", who=None, json={"email": email, "password": "wrong"})

    assert (right.status_code, right.json()["code"]) == (403, "address_not_allowed")
    assert "set-cookie" not in right.headers
    assert wrong.status_code == 401
    assert await _refusals(world) == [(f"user:{email}", ELSEWHERE)]
    assert await given.count(world, "sessions") == 1  # that of before


async def test_the_sign_in_page_audits_it_too(world: World) -> None:
    await world.signed_in(Role.VIEWER)
    await _set(world, "127.0.0.0/8")
    email = f"viewer.{given.TENANT}@fairlead.test"

    async with _from(world, ELSEWHERE):
        page = await world.call(
            "POST", f"{BASE}/console/sign-in", who=None, data={"email": email, "password": PASSWORD}
        )

    assert (page.status_code, ELSEWHERE in page.text) == (403, True)
    assert await _refusals(world) == [(f"user:{email}", ELSEWHERE)]


async def test_an_admin_is_not_locked_out_by_mistake(world: World) -> None:
    refused = await _set(world, "10.0.0.0/8", status=409)
    assert refused["code"] == "address_list_excludes_you"
    assert await _status(world, HERE) == 200

    await _set(world, "10.0.0.0/8", force=True)

    assert await _status(world, HERE) == 403
    changed = await world.call(
        "PATCH", f"/admin/tenants/{given.TENANT}", who="super_admin", json={"addresses": []}
    )
    assert (changed.status_code, changed.json()["addresses"]) == (200, None)
    assert await _status(world, HERE) == 200


async def test_a_token_has_a_list_of_its_own_and_both_bind(world: World) -> None:
    made = await world.call(
        "POST",
        "/tokens",
        who="tenant_admin",
        json={"name": "x", "role": "viewer", "addresses": [f"{HERE}/32", "198.51.100.0/24"]},
    )
    bearer = {"Authorization": f"Bearer {made.json()['secret']}"}

    before = [await _status(world, one, None, headers=bearer) for one in (HERE, "198.51.100.7", ELSEWHERE)]
    await _set(world, "127.0.0.0/8")
    after = [await _status(world, one, None, headers=bearer) for one in (HERE, "198.51.100.7")]

    assert (before, after) == ([200, 200, 403], [200, 403])


# How soon


async def test_another_process_applies_a_new_list_to_a_cached_token(world: World) -> None:
    assert await _status(world, ELSEWHERE) == 200  # the token is cached now

    # as another process: nothing is forgotten here
    await given.set_tenant(world, given.TENANT, addresses=["127.0.0.0/8"])

    async with asyncio.timeout(SECONDS):
        while await _status(world, ELSEWHERE) != 403:
            await asyncio.sleep(0.05)


async def test_the_poll_of_an_agent_ends_though_polls_keep_its_token_cached(world: World) -> None:
    agent = Waiting(world)
    await agent.start()
    poll = await agent.waits()

    await _set(world, ELSEWHERE, force=True)
    answer = await poll

    assert (answer.status_code, answer.json()["code"]) == (403, "address_not_allowed")
    assert (await agent.answer()).status_code == 403


async def test_the_long_poll_of_a_worker_ends_and_takes_no_job(world: World) -> None:
    body = {"definitions": ["anything"], "wait": 30}
    poll = asyncio.create_task(world.call("POST", "/worker/jobs/claim", who="worker", json=body))
    async with asyncio.timeout(SECONDS):
        while not world.app.state.claims._waiting:
            await asyncio.sleep(0.001)

    await _set(world, ELSEWHERE, force=True)
    job = await world.fl.enqueue("anything", tenant=given.TENANT)  # which wakes the poll
    answer = await poll

    assert (answer.status_code, answer.json()["code"]) == (403, "address_not_allowed")
    assert (await world.fl.read(job.id)).status is JobStatus.QUEUED
    assert await world.status("POST", "/worker/jobs/claim", who="worker", json=body) == 403


async def test_live_sockets_close_and_tickets_are_bound(world: World, patient_feeds: None) -> None:
    bearer = world.headers("viewer")
    async with served(world) as address:
        unused = await ticket(world, who="viewer")
        async with watching(address, bearer) as viewer:
            await _set(world, ELSEWHERE, force=True)
            assert await viewer.closed() == ADDRESS_NOT_ALLOWED
            assert (await _refusals(world)) == []  # a close is none
        assert await refusal(address, ticket=unused) == (403, "address_not_allowed")
        assert await refusal(address, bearer) == (403, "address_not_allowed")
        assert await _refusals(world) == [(f"token:{given.TENANT}.viewer", HERE)]


@pytest.mark.parametrize(("trusted", "status"), [("127.0.0.1", 200), ("192.0.2.1", 403)])
async def test_a_forwarded_address_counts_only_from_a_trusted_proxy(
    world: World, monkeypatch: pytest.MonkeyPatch, trusted: str, status: int
) -> None:
    await _set(world, "198.51.100.0/24", force=True)
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", trusted)
    async with served(world) as address, httpx2.AsyncClient(timeout=SECONDS) as client:
        url = address.replace("ws://", "http://").removesuffix("/live") + "/me"
        headers = world.headers("viewer") | {"X-Forwarded-For": "198.51.100.7"}
        answer = await client.get(url, headers=headers)
        plain = await client.get(url, headers=world.headers("viewer"))

    assert (answer.status_code, plain.status_code) == (status, 403)


async def test_a_tenant_without_a_list_costs_no_statement(world: World, statements: list[str]) -> None:
    async def count() -> int:
        world.app.state.gatekeeper.forget()
        statements.clear()
        assert (
            await world.client.get(BASE + PREFIX + "/me", headers=world.headers("viewer"))
        ).status_code == 200
        return len(statements)

    await count()
    without = await count()
    await _set(world, "127.0.0.0/8")
    await count()

    assert without == await count() == 3  # the token, its use, the tenant of the answer
