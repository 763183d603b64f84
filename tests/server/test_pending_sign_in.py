"""The second page of a sign-in in a browser: its cookie, and what an attacker would do with it."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from fairlead.model.access import Role
from fairlead.server.auth import COOKIE
from fairlead.server.second_factor import COOKIE as PENDING
from fairlead.server.second_factor import HOST_COOKIE
from tests import given
from tests.second_factors import Person, person, protected
from tests.server.cells import FAR, cells_on
from tests.server.world import BASE, PASSWORD, World, world_on

CONSOLE = f"{BASE}/console"


def cookies(answer: httpx2.Response) -> dict[str, str]:
    """The cookies that a response sets."""
    pairs = (line.partition(";")[0].partition("=") for line in answer.headers.get_list("set-cookie"))
    return {name: value for name, _, value in pairs if value.strip('"')}


async def post(
    world: World, path: str, sent: Mapping[str, str] | None = None, **form: str
) -> httpx2.Response:
    world.client.cookies.clear()
    header = {"Cookie": "; ".join(f"{name}={value}" for name, value in (sent or {}).items())}
    answer = await world.client.post(f"{CONSOLE}{path}", data=form, headers=header)
    world.client.cookies.clear()
    return answer


async def wait_for_code(ada: Person, **form: str) -> dict[str, str]:
    """The cookie of a sign-in that waits for the code."""
    answer = await post(ada.world, "/sign-in", None, email=ada.email, password=PASSWORD, **form)
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"].startswith("/console/sign-in/code")
    return cookies(answer)


async def enter(ada: Person, sent: dict[str, str], code: str, **form: str) -> httpx2.Response:
    return await post(ada.world, "/sign-in/code", sent, **{"code": code, **form})


async def test_the_password_gives_only_a_cookie_that_waits_for_the_code(world: World) -> None:
    ada = await protected(world)
    answer = await post(world, "/sign-in", email=ada.email, password=PASSWORD, next="/audit?a=b")

    assert cookies(answer).keys() == {PENDING}
    parts = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")}
    assert {"httponly", "samesite=strict", "path=/", "max-age=300"} <= parts
    assert answer.headers["location"] == "/console/sign-in/code?next=%2Faudit%3Fa%3Db"
    secret = cookies(answer)[PENDING]
    assert secret.encode().hex() not in await given.stored_text(world, "pending_sign_ins")
    # it is no session, under whatever name
    for name in (PENDING, COOKIE):
        assert await world.status("GET", "/me", who=None, headers={"Cookie": f"{name}={secret}"}) == 401
    signed_in = await enter(ada, {PENDING: secret}, ada.code(), next="/audit?a=b")
    assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/console/audit?a=b")
    assert cookies(signed_in).keys() == {COOKIE}  # the other is deleted
    me = await world.call(
        "GET", "/me", who=None, headers={"Cookie": f"{COOKIE}={cookies(signed_in)[COOKIE]}"}
    )
    assert me.json()["actor"] == f"user:{ada.email}"


async def test_over_https_the_cookie_belongs_to_this_host(world: World) -> None:
    ada = await protected(world)
    answer = await world.client.post(
        "https://fairlead.test/console/sign-in", data={"email": ada.email, "password": PASSWORD}
    )

    assert answer.headers["set-cookie"].startswith(f"{HOST_COOKIE}=")
    assert "secure" in answer.headers["set-cookie"].lower()


async def test_it_is_used_once_also_by_two_requests_at_once(world: World) -> None:
    ada = await protected(world)
    sent = await wait_for_code(ada)

    answers = await asyncio.gather(*(enter(ada, sent, code) for code in ada.recovery_codes[:4]))

    assert sorted(answer.status_code for answer in answers) == [303, 401, 401, 401]
    assert (await ada.call("GET")).json()["recovery_codes_left"] == 9
    assert (await enter(ada, sent, ada.code())).status_code == 401


async def test_without_it_or_with_another_no_code_signs_in(world: World) -> None:
    ada, bob = await protected(world), await protected(world, Role.VIEWER)
    of_ada, of_bob = await wait_for_code(ada), await wait_for_code(bob)

    for sent in ({}, {PENDING: "fl_made-up"}, {PENDING: of_ada[PENDING][:-1]}, of_bob):
        answer = await enter(ada, sent, ada.code())
        assert answer.status_code == 401
        assert COOKIE not in cookies(answer)
    # each signs in as the user of its password, whichever page it came from
    signed_in = await enter(ada, of_bob, bob.code())
    me = await world.call(
        "GET", "/me", who=None, headers={"Cookie": f"{COOKIE}={cookies(signed_in)[COOKIE]}"}
    )
    assert me.json()["actor"] == f"user:{bob.email}"


async def test_it_ends_after_five_minutes(world: World) -> None:
    ada = await protected(world)
    sent = await wait_for_code(ada)
    assert 0 < await given.seconds_left(world, "pending_sign_ins") <= 300
    await given.expire(world, "sign-ins")
    late = await enter(ada, sent, ada.code())
    assert late.status_code == 401
    assert "Enter your password again" in late.text
    assert COOKIE not in cookies(late)


async def test_it_ends_after_five_wrong_codes(world: World) -> None:
    ada = await protected(world)
    sent = await wait_for_code(ada)
    for _ in range(5):
        assert "The code is wrong" in (await enter(ada, sent, ada.wrong_code)).text

    late = await enter(ada, sent, ada.code())
    assert late.status_code == 401
    assert "Enter your password again" in late.text
    assert (await enter(ada, await wait_for_code(ada), ada.code())).status_code == 303


@pytest.mark.usefixtures("slow_budgets")
async def test_new_ones_give_no_more_guesses(world: World) -> None:
    ada = await protected(world)
    for _ in range(2):
        sent = await wait_for_code(ada)
        for _ in range(5):
            assert (await enter(ada, sent, ada.wrong_code)).status_code == 401

    refused = await post(world, "/sign-in", email=ada.email, password=PASSWORD)
    assert refused.status_code == 429


@pytest.mark.parametrize(
    "change",
    [{"role": "viewer"}, {"disabled_at": datetime.now(UTC)}, {"password_hash": "x"}],
    ids=["role", "disabled", "password"],
)
async def test_a_change_of_the_user_ends_it(world: World, change: dict[str, Any]) -> None:
    ada = await protected(world)
    sent = await wait_for_code(ada)
    await given.set_user(world, ada.email, **change, updated_at=datetime.now(UTC))

    assert (await enter(ada, sent, ada.code())).status_code == 401


async def test_removing_the_second_factor_ends_it(world: World) -> None:
    ada = await protected(world)
    sent = await wait_for_code(ada)
    assert (await ada.call("DELETE", password=PASSWORD, code=ada.code())).status_code == 200

    assert (await enter(ada, sent, ada.code(1))).status_code == 401


async def test_another_site_neither_begins_nor_finishes_it(world: World) -> None:
    ada = await protected(world)
    sent = await wait_for_code(ada)
    headers = {"Cookie": f"{PENDING}={sent[PENDING]}", "Sec-Fetch-Site": "cross-site"}
    for path, form in (
        ("/sign-in", {"email": ada.email, "password": PASSWORD}),
        ("/sign-in/code", {"code": ada.code()}),
    ):
        answer = await world.client.post(f"{CONSOLE}{path}", data=form, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


async def test_the_session_has_a_new_secret_and_no_redirect_leads_away(world: World) -> None:
    ada = await protected(world)
    sent = await wait_for_code(ada)
    planted = {**sent, COOKIE: "fl_planted"}

    signed_in = await enter(ada, planted, ada.code(), next="//evil.example/")

    assert cookies(signed_in)[COOKIE] not in (sent[PENDING], "fl_planted")
    assert signed_in.headers["location"] == "/console/overview"


async def test_the_second_page_without_a_pending_sign_in_is_the_first(world: World) -> None:
    answer = await world.client.get(f"{CONSOLE}/sign-in/code", params={"next": "/audit"})

    assert (answer.status_code, answer.headers["location"]) == (303, "/console/sign-in?next=%2Faudit")


@pytest.mark.thorough
@pytest.mark.postgres_only("these cells are databases of one server")
async def test_users_of_another_cell_have_it_there(database_url: str) -> None:
    async with cells_on(database_url) as world:
        member = await world.fl.cells.member("b")
        inside = World(member, world.app, world.client, world.tenants, world.hosts, world.secrets)
        ada = await (await person(inside, Role.VIEWER, FAR)).enable()

        sent = await wait_for_code(ada)
        assert await given.count(world, "pending_sign_ins") == 0
        shown = await world.client.get(
            f"{CONSOLE}/sign-in/code", headers={"Cookie": f"{PENDING}={sent[PENDING]}"}
        )
        assert ada.email in shown.text
        assert (await enter(ada, sent, ada.wrong_code)).status_code == 401
        signed_in = await enter(ada, sent, ada.code())
        assert signed_in.status_code == 303
        me = await world.call(
            "GET", "/me", who=None, headers={"Cookie": f"{COOKIE}={cookies(signed_in)[COOKIE]}"}
        )
        assert me.json()["tenant"] == FAR


async def test_a_role_that_needs_one_is_led_to_the_setup_and_nowhere_else(database_url: str) -> None:
    async with world_on(database_url, require_second_factor=("operator",)) as world:
        ada = await person(world)
        signed_in = await post(world, "/sign-in", email=ada.email, password=PASSWORD)
        sent = {"Cookie": f"{COOKIE}={cookies(signed_in)[COOKIE]}"}

        for path in ("/overview", "/jobs", "/account", "/enqueue", "/members"):
            answer = await world.client.get(f"{CONSOLE}{path}", headers=sent)
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/console/account/second-factor?next=")
        changed = await world.client.post(
            f"{CONSOLE}/account/password", headers={**sent, "HX-Request": "true"}
        )
        assert changed.status_code == 403
        assert "/account/second-factor" in changed.headers["hx-redirect"]
        page = await world.client.get(f"{CONSOLE}/account/second-factor", headers=sent)
        assert page.status_code == 200
        assert "needs a second factor" in page.text
