"""Sessions of users: listed, ended one by one or all, ended when idle; and what it costs to note their use."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from fastapi import Request

from fairlead.actions.logs import LogPage
from fairlead.model.access import Role
from fairlead.model.user_agent import LONGEST_USER_AGENT, clean_user_agent, describe_user_agent
from fairlead.server.auth import COOKIE, LIVE_PARTS
from fairlead.server.log_tailing import wait_for_log
from fairlead.server.rest import jobs as rest_jobs
from tests import given
from tests.server.test_live import served, watching
from tests.server.world import PASSWORD, World, world_on
from tests.tables import each_case
from tests.waiting import SECONDS

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
EMAIL = f"viewer.{given.TENANT}@fairlead.test"


async def _ask(world: World, cookie: str, method: str = "GET", path: str = "/me", **more: str) -> Any:
    return await world.call(method, path, who=None, headers={"Cookie": cookie, **more})


async def _sessions(world: World, cookie: str) -> list[dict[str, Any]]:
    answer = await _ask(world, cookie, path="/account/sessions")
    assert answer.status_code == 200
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


async def test_the_list_says_which_browser_and_which_is_this_one(world: World) -> None:
    await world.signed_in(Role.VIEWER)
    login = await world.call(
        "POST",
        "/login",
        who=None,
        json={"email": EMAIL, "password": PASSWORD},
        headers={"User-Agent": FIREFOX},
    )
    cookie = login.headers["set-cookie"].partition(";")[0]

    this, other = await _sessions(world, cookie)

    assert (this["is_current"], this["browser"], this["user_agent"]) == (True, "Firefox on Linux", FIREFOX)
    assert (other["is_current"], other["browser"], other["user_agent"]) == (False, "Unknown browser", None)
    assert UUID(this["id"]) != UUID(other["id"])
    assert this["ip"] == "127.0.0.1"
    assert this["created_at"] <= this["last_seen_at"] < this["expires_at"]
    assert "secret" not in str(this)


async def test_one_session_ends_and_the_others_stay(world: World) -> None:
    here, there, third = [await world.signed_in(Role.VIEWER) for _ in range(3)]
    [named] = [one["id"] for one in await _sessions(world, there) if one["is_current"]]

    ended = await _ask(world, here, "DELETE", f"/account/sessions/{named}")

    assert ended.status_code == 204
    statuses = [(await _ask(world, one)).status_code for one in (here, there, third)]
    assert statuses == [200, 401, 200]
    again = await _ask(world, here, "DELETE", f"/account/sessions/{named}")
    assert (again.status_code, again.json()["code"]) == (404, "session_unknown")


async def test_nobody_ends_the_session_of_another_user(world: World) -> None:
    mine, theirs = await world.signed_in(Role.TENANT_ADMIN), await world.signed_in(Role.VIEWER)
    elsewhere = await world.signed_in(Role.VIEWER, given.OTHER)
    answers = []
    for cookie in (theirs, elsewhere):
        [other] = await _sessions(world, cookie)
        answers.append(await _ask(world, mine, "DELETE", f"/account/sessions/{other['id']}"))
    missing = uuid4()
    answers.append(await _ask(world, mine, "DELETE", f"/account/sessions/{missing}"))

    assert {one.status_code for one in answers} == {404}
    assert [(await _ask(world, one)).status_code for one in (theirs, elsewhere)] == [200, 200]


async def test_all_others_end_and_everywhere_is_also_here(world: World) -> None:
    here, there = await world.signed_in(Role.VIEWER), await world.signed_in(Role.VIEWER)

    others = await _ask(world, here, "POST", "/account/sign-out-others")
    left = [(await _ask(world, one)).status_code for one in (here, there)]
    everywhere = await _ask(world, here, "POST", "/account/sign-out-everywhere")

    assert (others.json(), left) == ({"sessions_ended": 1}, [200, 401])
    assert everywhere.status_code == 204
    assert f'{COOKIE}=""' in everywhere.headers["set-cookie"]
    assert (await _ask(world, here)).status_code == 401
    entries = await world.call("GET", "/audit", who="viewer", params={"action": "sessions_ended"})
    assert [one["details"] for one in entries.json()["items"]] == [
        {"sessions": 1, "everywhere": True},
        {"sessions": 1},
    ]


async def test_an_admin_signs_a_user_out_who_may_sign_in_again(world: World) -> None:
    cookie = await world.signed_in(Role.VIEWER)
    user = await given.user_id(world, EMAIL)

    ended = await world.call("POST", f"/users/{user}/sign-out", who="tenant_admin")

    assert (ended.status_code, ended.json()["sessions_ended"]) == (200, 1)
    assert (await _ask(world, cookie)).status_code == 401
    assert await world.status("POST", "/login", who=None, json={"email": EMAIL, "password": PASSWORD}) == 200


async def test_a_sign_in_ignores_the_cookie_that_the_browser_has(world: World) -> None:
    planted = await world.signed_in(Role.OPERATOR)
    await world.signed_in(Role.VIEWER)

    for cookie in (planted, f"{COOKIE}=chosen-by-an-attacker"):
        login = await world.call(
            "POST",
            "/login",
            who=None,
            json={"email": EMAIL, "password": PASSWORD},
            headers={"Cookie": cookie},
        )
        assert login.status_code == 200
        assert login.headers["set-cookie"].partition(";")[0] != cookie
    assert (await _ask(world, planted)).json()["role"] == "operator"


async def test_an_idle_session_ends_and_never_comes_back(world: World) -> None:
    cookie = await _login(world)

    await given.age(world, "sessions", seconds=3600)

    assert (await _ask(world, cookie)).status_code == 401
    assert (await _ask(world, cookie)).status_code == 401


async def test_use_puts_the_end_off_but_refreshes_of_a_page_do_not(world: World) -> None:
    cookie = await _login(world)
    await given.age(world, "sessions", seconds=120)
    before = await _idle_end(world)

    await _ask(world, cookie, **{LIVE_PARTS: "levels="})
    await _ask(world, cookie, path=f"/jobs/{uuid4()}/logs?follow=true")
    after_refresh = await _idle_end(world)
    await _ask(world, cookie)

    assert after_refresh == before
    assert await _idle_end(world) > before


async def test_no_idle_timeout_if_the_setting_is_0(database_url: str) -> None:
    async with world_on(database_url, session_idle_minutes=0) as world:
        cookie = await _login(world)
        await given.age(world, "sessions", seconds=36_000)
        assert (await _ask(world, cookie)).status_code == 200
        assert await _idle_end(world) is None


async def test_a_request_changes_nothing_in_the_common_case(world: World, statements: list[str]) -> None:
    cookie = await _login(world)
    await _ask(world, cookie)  # the first takes shares of rate limits

    async def count() -> list[str]:
        statements.clear()
        await _ask(world, cookie)
        return list(statements)

    quick = await count()
    await given.age(world, "sessions", seconds=61)
    noted = await count()
    after = await count()

    assert [one for one in noted if one not in quick] == [one for one in noted if "last_seen_at =" in one]
    assert (len(noted), len(after)) == (len(quick) + 1, len(quick))
    assert not [one for one in quick if "update " in one]


async def test_the_socket_of_an_ended_session_closes(world: World, patient_feeds: None) -> None:
    cookie = await world.signed_in(Role.VIEWER)
    async with served(world) as address, watching(address, {"Cookie": cookie}) as viewer:
        await _ask(world, cookie, "POST", "/account/sign-out-everywhere")
        assert await viewer.closed() == 4401


async def test_a_follower_of_a_log_is_refused_when_its_session_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the end of its wait would refuse it, too
    monkeypatch.setattr(rest_jobs, "wait_for_log", _wait_for_hours)
    cookie = await world.signed_in(Role.VIEWER)
    job_id = await given.queued_job(world)
    follower = asyncio.create_task(_ask(world, cookie, path=f"/jobs/{job_id}/logs?follow=true&wait=30"))
    await asyncio.sleep(0)
    await _ask(world, cookie, "POST", "/account/sign-out-everywhere")

    async with asyncio.timeout(SECONDS):
        answer = await follower

    assert answer.status_code == 401


async def _wait_for_hours(request: Request, look: Callable[[], Awaitable[LogPage]], **_: float) -> LogPage:
    return await wait_for_log(request, look, seconds=36_000)


@each_case(
    ("text", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/141.0 Safari/537.36", "Chrome on Windows"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/141.0 Safari/537.36 Edg/141.0", "Edge on Windows"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/18 Safari/605.1", "Safari on macOS"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Safari/604.1", "Safari on iPhone"),
        ("curl/8.1", "curl"),
        ("my-script/2 (x)", "my-script"),
        ("/", "Unknown browser"),
        (None, "Unknown browser"),
    ],
)
def test_user_agents_in_words(text: str | None, words: str) -> None:
    assert describe_user_agent(text) == words


def test_user_agents_are_cut_and_printable() -> None:
    assert clean_user_agent("a\x1b[31mb\x00c\ud800") == "a[31mbc"
    assert clean_user_agent("x" * 5000) == "x" * LONGEST_USER_AGENT
    assert clean_user_agent("\x07 ") is None


async def _login(world: World) -> str:
    await world.signed_in(Role.VIEWER)
    login = await world.call("POST", "/login", who=None, json={"email": EMAIL, "password": PASSWORD})
    cookie: str = login.headers["set-cookie"].partition(";")[0]
    return cookie


async def _idle_end(world: World) -> Any:
    async with world.fl.database.transaction() as tx:
        [(value,)] = await tx.values(
            "select idle_ends_at from fairlead.sessions order by created_at desc limit 1"
        )
    return value
