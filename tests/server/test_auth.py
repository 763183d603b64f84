"""Who is asking, how often they may, and from which page."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.requests import HTTPConnection

from fairlead.actions import access
from fairlead.errors import CrossSite
from fairlead.model.access import Permission, Role
from fairlead.server import auth, rate_limits
from fairlead.server.app import create_app
from fairlead.server.auth import (
    COOKIE,
    HOST_COOKIE,
    REMEMBER_SECONDS,
    GuardedRoute,
    Requires,
    is_same_site,
    require_same_site,
)
from fairlead.server.client_addresses import address_group
from fairlead.server.problems import PREFIX
from fairlead.server.rate_limits import RateLimiter, account_failures
from fairlead.store import access as stored_access
from fairlead.store import allowances
from fairlead.store.allowances import RateBudget
from tests import given
from tests.acting import act
from tests.given import OTHER
from tests.server import matrix
from tests.server.world import BASE, PASSWORD, World, world_on
from tests.tables import Faults, each_case


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The gatekeeper's clock."""
    made = Clock()

    class Time:
        monotonic = staticmethod(made)

    monkeypatch.setattr(auth, "time", Time)
    return made


def asked(method: str = "POST", kind: str = "http", **headers: str) -> HTTPConnection:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return HTTPConnection({"type": kind, "method": method, "path": "/", "headers": pairs})


# Budgets


async def test_processes_share_one_budget_and_most_requests_ask_nobody(world: World) -> None:
    one, other = (RateLimiter(world.fl, rate=0.01, burst=100) for _ in range(2))
    one._share = other._share = 10
    granted = [[await rates.take("key") for _ in range(80)].count(0.0) for rates in (one, other)]
    assert granted == [80, 20]
    assert await given.count(world, "allowances") == 1


async def test_a_share_is_taken_once_for_many_at_the_same_time(world: World) -> None:
    rates = RateLimiter(world.fl, rate=0.0001, burst=100)
    rates._share = 10
    waits = await asyncio.gather(*(rates.take("key") for _ in range(10)))
    assert waits == [0.0] * 10
    left = await act(world, allowances.seconds_until_unit, "requests:key", RateBudget(1, 10_000.0))
    # a share of ten: a second one would be ten times 10,000 seconds more
    assert 90_000 < left <= 100_000


async def test_a_budget_comes_back_with_time(world: World) -> None:
    budget = RateBudget(3, 60.0)
    async with world.fl.transaction() as tx:
        taken = [(await allowances.take_units(tx, "key", budget)).granted for _ in range(4)]
        wait = await allowances.seconds_until_unit(tx, "key", budget)
        await given.age(tx, "allowances", seconds=61)
        again = [(await allowances.take_units(tx, "key", budget)).granted for _ in range(2)]
        await given.age(tx, "allowances", seconds=181)
        await allowances.remove_full_budgets(tx)
        assert await given.count(tx, "allowances") == 0
    assert (taken, again) == ([1, 1, 1, 0], [1, 0])
    assert 0 < wait <= 60


async def test_shares_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "MOST_KEYS", 3)
    rates = RateLimiter(world.fl, rate=1.0, burst=1)
    for number in range(5):
        await rates.take(f"key {number}")
    assert len(rates._shares) == 3


# Same site


@each_case(
    ("headers", "ours"),
    [
        ({}, True),
        ({"sec_fetch_site": "same-origin"}, True),
        ({"sec_fetch_site": "none"}, True),
        ({"sec_fetch_site": "same-site"}, False),
        ({"sec_fetch_site": "cross-site"}, False),
        ({"sec_fetch_site": "cross-site", "origin": "http://us.test", "host": "us.test"}, False),
        ({"origin": "http://us.test", "host": "us.test"}, True),
        ({"origin": "ftp://us.test", "host": "us.test"}, False),
        ({"origin": "http://evil.test", "host": "us.test"}, False),
        ({"origin": "http://us.test.evil.test", "host": "us.test"}, False),
        ({"origin": "http://us.test:8000", "host": "us.test"}, False),
        ({"origin": "null", "host": "us.test"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://evil.test"}, False),
        ({"origin": "http://[", "host": "us.test"}, False),
        ({"origin": ""}, False),
    ],
)
def test_a_page_of_another_site_is_told_apart(headers: dict[str, str], ours: bool) -> None:  # noqa: FBT001
    assert is_same_site(asked(**headers)) is ours


def test_reading_across_sites_is_harmless_but_a_socket_is_not() -> None:
    require_same_site(asked("GET", sec_fetch_site="cross-site"))
    with pytest.raises(CrossSite):
        require_same_site(asked("DELETE", sec_fetch_site="cross-site"))
    with pytest.raises(CrossSite):
        require_same_site(asked("GET", "websocket", sec_fetch_site="cross-site"))


async def test_a_cookie_works_from_our_pages_only(world: World) -> None:
    cookie = await world.signed_in(Role.OPERATOR)
    job = {"definition_key": "greet", "payload": {"name": "Ada"}}

    async def send(**headers: str) -> int:
        sent = {"Cookie": cookie, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await world.status("POST", "/jobs", who=None, headers=sent, json=job)

    assert await send(Sec_Fetch_Site="cross-site") == 403
    assert await send(Origin="http://evil.test") == 403
    assert await send(Sec_Fetch_Site="same-origin") == 201
    assert await send(Origin="http://fairlead.test") == 201
    assert await given.count(world, "jobs") == 2


async def test_the_cookie_is_for_us_and_not_for_scripts(world: World) -> None:
    await world.signed_in(Role.VIEWER)
    body = {"email": f"viewer.{given.TENANT}@fairlead.test", "password": PASSWORD}
    answer = await world.call("POST", "https://fairlead.test/api/v1/login", who=None, json=body)
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith(HOST_COOKIE.lower())
    for part in ("httponly", "samesite=lax", "secure", "path=/"):
        assert part in cookie
    assert "domain" not in cookie


# Tokens and sessions that end


async def test_a_revoked_token_is_of_no_use_within_five_seconds(world: World, clock: Clock) -> None:
    assert REMEMBER_SECONDS < 5
    assert await world.status("GET", "/jobs", who="viewer") == 200
    async with world.fl.database.transaction() as tx:  # as another process would
        await access.revoke_token(tx, given.TESTER, world.token_ids[given.TENANT, "viewer"])
    clock.now += REMEMBER_SECONDS + 0.01
    assert await world.status("GET", "/jobs", who="viewer") == 401


async def test_a_token_ends_with_its_time(world: World, clock: Clock) -> None:
    assert await world.status("GET", "/jobs", who="viewer") == 200
    await act(world, stored_access.end_token, world.token_ids[given.TENANT, "viewer"], seconds=0)
    clock.now += REMEMBER_SECONDS + 0.01
    assert await world.status("GET", "/jobs", who="viewer") == 401


@pytest.mark.parametrize(
    "end",
    [
        given.end_sessions,
        partial(given.expire, what="sessions"),
        partial(given.set_user, disabled_at=datetime.now(UTC)),
    ],
)
async def test_a_session_that_ended_is_nobodys(world: World, end: Callable[[World], Awaitable[None]]) -> None:
    cookie = {"Cookie": await world.signed_in()}
    assert await world.status("GET", "/jobs", who=None, headers=cookie) == 200
    await end(world)
    assert await world.status("GET", "/jobs", who=None, headers=cookie) == 401


async def test_only_bearers_are_let_in_by_a_token_even_a_known_one(world: World) -> None:
    assert await world.status("GET", "/jobs", who="viewer") == 200
    secret = world.secrets[given.TENANT, "viewer"]
    for text in (f"Basic {secret}", secret, f"Bearer  {secret}x", "Bearer", "Bearer \x7f"):
        answer = await world.call("GET", "/jobs", who=None, headers={"Authorization": text})
        assert answer.status_code == 401, text
        assert answer.headers["www-authenticate"] == "Bearer"


# Rates


@pytest.mark.usefixtures("slow_budgets")
async def test_who_guesses_tokens_has_to_wait_and_good_tokens_do_not(world: World) -> None:
    wrong = {"Authorization": "Bearer fl_guessed"}
    statuses = [await world.status("GET", "/jobs", who=None, headers=wrong) for _ in range(11)]
    assert statuses == [401] * 10 + [429]
    assert await world.status("GET", "/jobs", who="viewer") == 200, "others share the address"


@pytest.mark.usefixtures("slow_budgets")
async def test_who_makes_cookies_up_has_to_wait_and_who_was_signed_in_does_not(world: World) -> None:
    was = await world.signed_in(Role.VIEWER)
    await given.end_sessions(world)

    async def statuses(cookie: str) -> list[int]:
        headers = {"Cookie": cookie}
        return [await world.status("GET", "/jobs", who=None, headers=headers) for _ in range(11)]

    assert await statuses(was) == [401] * 11
    assert await statuses(f"{COOKIE}=made-up") == [401] * 10 + [429]


@pytest.mark.usefixtures("slow_budgets")
async def test_failures_are_counted_for_all_processes(world: World) -> None:
    other = create_app(world.fl)
    wrong = {"Authorization": "Bearer fl_guessed"}
    for _ in range(10):
        assert await world.status("GET", "/jobs", who=None, headers=wrong) == 401
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=other)) as client:
        assert (await client.get(f"{BASE}{PREFIX}/jobs", headers=wrong)).status_code == 429


@pytest.mark.usefixtures("slow_budgets")
async def test_an_account_is_guarded_against_many_addresses_and_not_locked_by_one(world: World) -> None:
    body = {"email": "nobody@fairlead.test", "password": "not the password"}

    async def guess(ip: str, times: int, email: str = "nobody@fairlead.test") -> list[int]:
        transport = httpx2.ASGITransport(app=world.app, client=(ip, 0))
        async with httpx2.AsyncClient(transport=transport) as client:
            return [
                (await client.post(f"{BASE}{PREFIX}/login", json={**body, "email": email})).status_code
                for _ in range(times)
            ]

    assert await guess("192.0.2.1", 11) == [401] * 10 + [429]
    assert await guess("192.0.2.1", 1, "other@fairlead.test") == [401]
    assert await guess("192.0.2.2", 1) == [401], "one address does not lock the account"
    async with world.fl.transaction() as tx:
        await tx.run(
            "update fairlead.allowances set until = until + interval '1 day' where key ~ '^failed:account:[0-9a-f]+$'"
        )
    assert await guess("192.0.2.3", 1, "NOBODY@fairlead.test") == [429]


def test_addresses_of_one_network_are_one_place() -> None:
    assert (
        address_group("2001:db8::1") == address_group("2001:db8::ffff:2") != address_group("2001:db8:0:1::1")
    )
    assert address_group("192.0.2.1") != address_group("192.0.2.2")
    assert [address_group(None), address_group("testclient")] == [None, "testclient"]


@each_case(
    ("told", "ip"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:5678", "192.0.2.1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("[::1]", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("[fe80::1%25eth0]:443", "fe80::1"),
        *((nonsense, None) for nonsense in ("unknown", "_hidden", "", "[", "1.2.3", "host:80", "::1::")),
    ],
)
async def test_whatever_a_proxy_says_of_the_address_the_request_is_audited(
    shared_world: World, told: str, ip: str | None
) -> None:
    transport = httpx2.ASGITransport(app=shared_world.app, client=(told, 0))
    async with httpx2.AsyncClient(transport=transport) as client:
        made, denied = [
            await client.post(
                f"{BASE}{PREFIX}/jobs", headers=shared_world.headers(who), json={"definition_key": "anything"}
            )
            for who in ("operator", "viewer")
        ]

    assert (made.status_code, denied.status_code) == (201, 403)
    *_, entry = await given.audit_entries(shared_world, "access_denied")
    assert entry.ip == ip


async def test_a_token_that_asks_too_often_has_to_wait(database_url: str) -> None:
    async with world_on(database_url, rate_limit_per_second=0.01, rate_limit_burst=3) as world:
        statuses = [await world.status("GET", "/jobs", who="viewer") for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        assert await world.status("GET", "/jobs", who="operator") == 200


async def test_the_tokens_of_a_tenant_share_a_limit(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "TENANT_SHARES", 2)
    async with world_on(database_url, rate_limit_per_second=0.01, rate_limit_burst=3) as world:
        callers = ["viewer"] * 3 + ["operator"] * 3
        statuses = [await world.status("GET", "/jobs", who=who) for who in callers]
        assert statuses == [200] * 6

        answer = await world.call("GET", "/jobs", who="tenant_admin")
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_requests")
        assert "Retry-After" in answer.headers
        assert await world.status("GET", "/jobs", who="viewer", tenant=OTHER) == 200
        assert await world.status("GET", "/admin/tenants", who="super_admin") == 200


# Headers that try to confuse


@pytest.mark.parametrize("name", ["Authorization", "X-Tenant"])
async def test_two_of_a_header_that_decides_are_one_too_many(world: World, name: str) -> None:
    own = world.headers("super_admin")["Authorization"]
    sent = [("Authorization", own), ("X-Tenant", given.TENANT)]
    sent.append((name, dict(sent)[name]))
    answer = await world.client.get("http://fairlead.test/api/v1/jobs", headers=sent)
    assert answer.status_code == 422


@each_case("named", ["", "%00", "\x00", "umbrella,acme", "../acme", "ACME", "é", "x" * 5000])
async def test_a_tenant_that_is_not_there_is_not_there_however_it_is_spelt(
    shared_world: World, named: str
) -> None:
    for who in ("super_admin", "viewer"):
        headers: Any = {"X-Tenant": named.encode("latin-1")}
        answer = await shared_world.call("GET", "/jobs", who=who, headers=headers)
        assert answer.status_code == 404
        assert len(answer.text) < 1000


@pytest.mark.parametrize("spelling", [str, str.upper])
async def test_a_tenant_may_name_itself_by_id(world: World, spelling: Callable[[str], str]) -> None:
    named = spelling(str(world.tenants[given.TENANT]))
    assert await world.status("GET", "/jobs", headers={"X-Tenant": named}) == 200


# What is sent


async def test_nobody_has_their_words_read_before_they_are_known(world: World) -> None:
    """Otherwise anybody could have us parse what they like."""
    for who, expected in ((None, 401), ("expired", 401), ("viewer", 403)):
        answer = await world.call(
            "POST", "/jobs", who=who, content=b"{not json", headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == expected, answer.text


async def test_who_need_not_be_known_may_send_only_a_little(world: World) -> None:
    answer = await world.call("POST", "/login", who=None, json={"email": "x" * 70_000, "password": "x"})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


async def test_a_body_that_says_that_it_is_too_large_is_not_read(database_url: str) -> None:
    async with world_on(database_url, max_body_bytes=2048) as world:
        for said in ("2049", "-1", "1e3", "９"):
            answer = await world.call(
                "POST",
                "/jobs",
                content=b"{}",
                headers={"Content-Length": said.encode()},  # type: ignore[dict-item]
            )
            assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large"), said


async def test_a_body_that_turns_out_too_large_is_not_kept(database_url: str) -> None:
    async with world_on(database_url, max_body_bytes=2048) as world:
        sent = 0

        async def stream() -> Any:
            nonlocal sent
            for _ in range(100):
                sent += 1
                yield b" " * 1024

        answer = await world.call(
            "POST", "/jobs", content=stream(), headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
        assert answer.headers["connection"] == "close"


# Once


JOB = {"definition_key": "greet", "payload": {"name": "Ada"}}
KEY = {"Idempotency-Key": "k"}


async def _jobs(world: World) -> int:
    return await given.count(world, "jobs")


# What creates need that the matrix does not say.
USER = {"password": PASSWORD, "role": "viewer"}
CREATES: dict[str, dict[str, Any]] = {
    "/account/tokens": {"name": "mine"},
    "/admin/jobs/definitions": {"key": "made"},
    "/admin/tenants": {"slug": "made"},
    "/admin/users": {**USER, "email": "one@fairlead.test", "tenant": given.TENANT},
    "/users": {**USER, "email": "two@fairlead.test"},
}
# These need a job that a function waits in: tests/server/test_durable_api.py.
DURABLE = {f"POST {PREFIX}/jobs/{{job_id}}/{what}" for what in ("replay", "signals/{name}")}


@pytest.mark.thorough
async def test_each_create_that_is_repeated_is_answered_as_the_first(world: World) -> None:
    keyed = {
        str(route.path)
        for route in iter_route_contexts(world.app.routes)
        if isinstance(one := route.original_route, APIRoute)
        and "create_once" in one.endpoint.__code__.co_names
    }
    faults = Faults()
    for rule in matrix.rules(world.app):
        if rule.method == "POST" and rule.path in keyed and str(rule) not in DURABLE:
            with faults.of(str(rule)):
                await _repeat(world, rule)
    faults.conclude()
    assert len(keyed) == 23, "no route lost or got the header unnoticed"


async def _repeat(world: World, rule: matrix.Rule) -> None:
    async with world.transaction() as tx:
        made = {name: await matrix.builder(rule, name).make(tx, world, given.TENANT) for name in rule.params}
        body = {**await matrix.body(tx, rule, ""), **CREATES.get(rule.path.removeprefix(PREFIX), {})}
    if "host_id" in body:
        body["host_id"] = str(world.hosts[given.TENANT])
    headers = {"X-Tenant": given.TENANT, "Content-Type": "application/json", "Idempotency-Key": str(rule)}
    who: str | None = "super_admin"
    if "/account/" in rule.path:  # a user's own
        headers["Cookie"], who = await world.signed_in(), None
    ask = partial(world.call, "POST", BASE + rule.path.format(**made), who=who, headers=headers)

    first, again = [await ask(json=body) for _ in range(2)]

    assert first.is_success, first.text
    assert (again.status_code, again.headers.get("idempotent-replayed")) == (first.status_code, "true")
    secret = {"secret": None} if "secret" in first.json() else {}  # which is shown once
    assert again.json() == {**first.json(), **secret}
    other = await ask(content=json.dumps(body) + "  ")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_clash")


async def test_creates_with_one_key_at_the_same_time_are_one(world: World) -> None:
    answers = await asyncio.gather(*[world.call("POST", "/jobs", json=JOB, headers=KEY) for _ in range(8)])
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert await _jobs(world) == 1


async def test_a_key_is_for_one_request(world: World) -> None:
    assert await world.status("POST", "/jobs", json=JOB, headers=KEY) == 201
    other = {**JOB, "payload": {"name": "Bob"}}
    answer = await world.call("POST", "/jobs", json=other, headers=KEY)
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_clash")
    answer = await world.call("POST", "/jobs/bulk", json={"jobs": [JOB]}, headers=KEY)
    assert answer.status_code == 409
    assert await _jobs(world) == 1


async def test_a_key_is_for_one_address(world: World) -> None:
    for key in ("one", "other"):
        flow = {"key": key, "steps": [{"name": "a", "definition": "anything"}]}
        assert await world.status("POST", "/workflows", who="tenant_admin", json=flow) == 201

    async def start(key: str) -> int:
        path = f"/workflows/{key}/runs"
        return await world.status("POST", path, who="tenant_admin", json={"input": {}}, headers=KEY)

    assert [await start(key) for key in ("one", "one", "other")] == [201, 201, 409]


async def test_another_tenants_key_is_another_key(world: World) -> None:
    mine = await world.call("POST", "/jobs", json=JOB, headers=KEY)
    theirs = await world.call("POST", "/jobs", json=JOB, headers=KEY, tenant=given.OTHER)
    assert (mine.status_code, theirs.status_code) == (201, 201)
    assert mine.json()["id"] != theirs.json()["id"]
    assert "idempotent-replayed" not in theirs.headers


async def test_a_create_that_was_refused_leaves_its_key_free(world: World) -> None:
    bad = {"definition_key": "greet", "payload": {}}
    assert await world.status("POST", "/jobs", json=bad, headers=KEY) == 422
    assert await world.status("POST", "/jobs", json=JOB, headers=KEY) == 201


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
async def test_a_key_has_to_be_one(world: World, key: str) -> None:
    assert await world.status("POST", "/jobs", json=JOB, headers={"Idempotency-Key": key}) == 422
    assert await _jobs(world) == 0


# Denials


async def test_a_denial_by_an_action_is_in_the_audit_log_too(world: World) -> None:
    for path, body in (
        ("/tokens", {"name": "mine", "role": "super_admin"}),
        ("/users", {"email": "me@fairlead.test", "password": PASSWORD, "role": "super_admin"}),
    ):
        assert await world.status("POST", path, who="tenant_admin", json=body) == 403
    denied = await given.audit_entries(world, "access_denied")
    tenant_id = world.tenants[given.TENANT]
    assert [(entry.actor, entry.tenant_id) for entry in denied] == [
        ("token:acme.tenant_admin", tenant_id)
    ] * 2
    assert all("cannot grant the role super_admin" in entry.details["why"] for entry in denied)


async def test_who_may_not_make_a_token_is_told_who_may(world: World) -> None:
    body = {"name": "mine", "role": "worker"}
    answer = await world.call("POST", "/tokens", who="tenant_admin", json=body)

    assert answer.json()["detail"].endswith(
        "cannot grant the role worker, which may do more than tenant_admin. Ask a super admin."
    )


async def test_answers_are_not_to_be_kept_on_the_way(world: World) -> None:
    for answer in (
        await world.call("GET", "/jobs"),
        await world.call("GET", "/jobs", who=None),
        await world.call("POST", "/tokens", who="tenant_admin", json={"name": "x", "role": "viewer"}),
    ):
        assert answer.headers["cache-control"] == "no-store"


async def test_a_route_that_requires_two_things_requires_both(world: World) -> None:
    reads, writes = Depends(Requires(Permission.READ_JOBS)), Depends(Requires(Permission.WRITE_JOBS))
    router = APIRouter(route_class=GuardedRoute)

    @router.get("/both", dependencies=[reads, writes])
    async def both() -> str:
        return "done"

    world.app.include_router(router, prefix="/api/v1")
    assert await world.status("GET", "/both", who="viewer") == 403
    assert await world.status("GET", "/both", who="operator") == 200


def test_no_spelling_of_an_address_has_a_counter_of_its_own() -> None:
    # PostgreSQL finds victim@example.com with these, in one collation or another
    counters = {
        account_failures(f"v{letter}ctim@example.com", None)[1] for letter in ("i", "I", "\u0130", "i\u0307")
    }
    assert len(counters) == 1
