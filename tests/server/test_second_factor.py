"""The second factor over HTTP: set it up, sign in with it, lose it, and everything that an attacker would try."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
from structlog.testing import capture_logs

from fairlead import Fairlead
from fairlead.actions import encryption, second_factor
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.model.second_factor import SignInProof
from fairlead.server.app import create_app
from fairlead.store import second_factors
from tests import given
from tests.acting import act
from tests.second_factors import PATH, Person, person, protected
from tests.server.cells import FAR, cells_on
from tests.server.world import PASSWORD, World, world_on

CONFIRM, RENEW = f"{PATH}/confirm", f"{PATH}/recovery-codes"
NOT_THIS_ONE = "not this password"


def outcome(answer: httpx2.Response) -> tuple[int, str | None]:
    return answer.status_code, answer.json().get("code")


# Set it up


async def test_a_second_factor_is_set_up_with_password_and_first_code(world: World) -> None:
    ada = await person(world)
    elsewhere = await world.signed_in()
    assert (await ada.call("GET")).json() == {
        "is_active": False,
        "confirmed_at": None,
        "recovery_codes_left": 0,
        "is_required": False,
    }

    assert outcome(await ada.call("POST", password=NOT_THIS_ONE)) == (422, "password_wrong")
    await ada.begin()
    assert (await ada.login()).status_code == 200  # nothing has changed yet
    wrong = await ada.call("POST", CONFIRM, code=ada.wrong_code)
    confirmed = await ada.call("POST", CONFIRM, code=ada.code())

    assert outcome(wrong) == (422, "second_factor_wrong")
    assert confirmed.status_code == 200
    assert len(confirmed.json()["recovery_codes"]) == 10
    assert confirmed.json()["sessions_ended"] == 2  # `elsewhere`, and that of the login
    assert (await ada.call("GET", cookie=elsewhere)).status_code == 401
    shown = (await ada.call("GET")).json()
    assert (shown["is_active"], shown["recovery_codes_left"]) == (True, 10)
    assert outcome(await ada.login()) == (401, "second_factor_required")
    [entry] = await given.audit_entries(world, "second_factor_enabled")
    assert (entry.actor, entry.details) == (f"user:{ada.email}", {"sessions_ended": 2})


async def test_an_unfinished_setup_ends_after_an_hour_and_a_new_one_replaces_its_key(world: World) -> None:
    ada = await person(world)
    assert outcome(await ada.call("POST", CONFIRM, code="123456")) == (409, "second_factor_missing")
    await ada.begin()
    old = ada.code()
    await ada.begin()
    assert outcome(await ada.call("POST", CONFIRM, code=old)) == (422, "second_factor_wrong")

    await given.age(world, "setups of second factors", seconds=61 * 60)
    assert outcome(await ada.call("POST", CONFIRM, code=ada.code())) == (409, "second_factor_missing")
    async with world.fl.database.transaction() as tx:
        await second_factors.forget_setups(tx)
        assert await given.count(tx, "second_factors") == 0


async def test_an_active_one_is_replaced_only_after_its_removal(world: World) -> None:
    ada = await protected(world)

    assert outcome(await ada.call("POST", password=PASSWORD)) == (409, "second_factor_exists")
    assert outcome(await ada.call("POST", CONFIRM, code=ada.code())) == (409, "second_factor_exists")
    assert (await ada.login(code=ada.code())).status_code == 200


async def test_a_user_without_a_password_has_none(world: World) -> None:
    ada = await person(world)
    await given.take_password(world, ada.email)

    assert outcome(await ada.call("POST", password=PASSWORD)) == (422, "password_not_set")


# Sign in


async def test_the_password_alone_does_not_suffice_and_a_wrong_one_reveals_nothing(world: World) -> None:
    ada, bob = await protected(world), await person(world, Role.VIEWER)

    assert outcome(await ada.login()) == (401, "second_factor_required")
    assert outcome(await ada.login(code="")) == (401, "second_factor_required")
    missing = Person(world, "nobody@fairlead.test", "")
    for more in ({}, {"code": ada.code()}, {"code": ada.wrong_code}, {"code": ada.recovery_codes[0]}):
        answers = [await who.login(NOT_THIS_ONE, **more) for who in (ada, bob, missing)]
        assert {outcome(answer) for answer in answers} == {(401, "unauthenticated")}
        assert len({answer.text for answer in answers}) == 1
        assert len({tuple(sorted(answer.headers)) for answer in answers}) == 1
    # nothing of it was used up by the attempts with a wrong password
    assert (await ada.login(code=ada.code())).status_code == 200
    assert (await ada.login(code=ada.recovery_codes[0])).status_code == 200
    assert (await bob.login(code="123456")).status_code == 200  # who has none needs none


async def test_the_second_factor_is_looked_at_only_after_the_right_password(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await protected(world)
    asked: list[UUID] = []
    lock = second_factors.lock

    async def noting(tx: Tx, user_id: UUID) -> Any:
        asked.append(user_id)
        return await lock(tx, user_id)

    monkeypatch.setattr(second_factors, "lock", noting)

    await ada.login(NOT_THIS_ONE, code=ada.code())
    await Person(world, "nobody@fairlead.test", "").login(code="123456")
    assert asked == []  # so it takes no time that could be measured
    await ada.login(code=ada.code())
    assert len(asked) == 1


async def test_a_code_is_accepted_once(world: World) -> None:
    ada = await protected(world)
    code, next_code = ada.code(), ada.code(1)

    assert (await ada.login(code=f"{code[:3]} {code[3:]}")).status_code == 200
    assert outcome(await ada.login(code=code)) == (401, "second_factor_required")
    assert (await ada.login(code=next_code)).status_code == 200
    # and no earlier one after a later one
    assert outcome(await ada.login(code=code)) == (401, "second_factor_required")
    assert outcome(await ada.login(code=next_code)) == (401, "second_factor_required")


async def test_the_code_that_confirmed_the_setup_does_not_sign_in(world: World) -> None:
    ada = await person(world)
    await ada.begin()
    code = ada.code()
    assert (await ada.call("POST", CONFIRM, code=code)).status_code == 200

    assert outcome(await ada.login(code=code)) == (401, "second_factor_required")


async def test_codes_of_another_user_are_refused(world: World) -> None:
    ada, bob = await protected(world), await protected(world, Role.VIEWER)

    assert outcome(await ada.login(code=bob.code())) == (401, "second_factor_required")
    assert outcome(await ada.login(code=bob.recovery_codes[0])) == (401, "second_factor_required")
    assert (await bob.login(code=bob.recovery_codes[0])).status_code == 200


async def test_a_recovery_code_is_accepted_once_however_it_is_typed(world: World) -> None:
    ada = await protected(world)
    code = ada.recovery_codes[3]

    assert (await ada.login(code=code.upper().replace("-", " "))).status_code == 200
    assert outcome(await ada.login(code=code)) == (401, "second_factor_required")
    assert (await ada.call("GET")).json()["recovery_codes_left"] == 9


@pytest.mark.parametrize("kind", ["app", "recovery"])
async def test_of_simultaneous_requests_with_one_code_exactly_one_succeeds(world: World, kind: str) -> None:
    ada = await protected(world)
    code = ada.code() if kind == "app" else ada.recovery_codes[0]

    answers = await asyncio.gather(*(ada.login(code=code) for _ in range(6)))

    assert sorted(answer.status_code for answer in answers) == [200] + [401] * 5


async def test_a_session_never_begins_with_a_password_alone(world: World) -> None:
    """Whatever calls start_session, such as a link in a mail: the statement itself refuses."""
    ada = await protected(world)
    with pytest.raises(AssertionError):  # as the helper starts one with a password
        await world.signed_in()

    async with world.fl.database.transaction() as tx:
        rows = await tx.values("select proof from fairlead.sessions where revoked_at is null")
    assert [proof for (proof,) in rows] == [SignInProof.PASSWORD]  # the one that set it up
    assert (await ada.login(code=ada.code())).status_code == 200


# Limits


@pytest.mark.usefixtures("slow_budgets")
async def test_wrong_codes_are_failures_of_the_account_and_the_address(world: World) -> None:
    ada = await protected(world)
    answers = [outcome(await ada.login(code="a wrong recovery code")) for _ in range(12)]

    assert answers[:10] == [(401, "second_factor_required")] * 10
    assert answers[10:] == [(429, "too_many_requests")] * 2
    assert outcome(await ada.login(code=ada.code())) == (429, "too_many_requests")
    assert len(await given.audit_entries(world, "login_failed")) == 10


@asynccontextmanager
async def second_process(world: World) -> AsyncIterator[World]:
    """Another server of the same database."""
    async with Fairlead(settings=world.fl.settings, actor="tester") as fl:
        app = create_app(fl)
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport) as client:
            yield World(fl, app, client)


async def test_codes_cannot_be_guessed_from_many_addresses_and_processes(database_url: str) -> None:
    """Each address has another budget; that of the user's codes is one, in the database."""
    async with world_on(database_url) as one, second_process(one) as two:
        ada = await protected(one)
        seen = []
        for number in range(14):
            for world in (one, two):
                world.app.state.gatekeeper.failures._refused.clear()
            await given.forget_failures(one, but="failed:code:")
            guesser = Person((one, two)[number % 2], ada.email, "", ada.key)
            seen.append(await guesser.login(code=ada.wrong_code))
        right = await ada.login(code=ada.code())
        recovered = await ada.login(code=ada.recovery_codes[0])

    assert [outcome(answer) for answer in seen[:10]] == [(401, "second_factor_required")] * 10
    assert {outcome(answer) for answer in seen[10:]} == {(429, "too_many_requests")}
    assert outcome(right) == (429, "too_many_requests")
    assert int(right.headers["retry-after"]) > 60
    assert recovered.status_code == 200  # its 80 bits cannot be guessed: the user is not locked out
    budget = second_factor.WRONG_CODES
    guesses = budget.burst + 365 * 86_400 / budget.seconds
    assert 1 - (1 - 3e-6) ** guesses < 0.11  # in a year, by an attacker who has the password


# Change it


async def test_removing_needs_password_and_code_and_ends_the_other_sessions(world: World) -> None:
    ada = await protected(world)
    await ada.login(code=ada.code())

    for body, code in (
        ({"password": NOT_THIS_ONE, "code": ada.code(1)}, "password_wrong"),
        ({"password": PASSWORD, "code": ada.wrong_code}, "second_factor_wrong"),
        ({"password": PASSWORD, "code": ada.code()}, "second_factor_wrong"),  # used at the sign-in
        ({"password": PASSWORD}, "invalid_input"),
        ({"code": ada.code(1)}, "invalid_input"),
    ):
        assert outcome(await ada.call("DELETE", **body)) == (422, code)
    assert (await ada.call("GET")).json()["is_active"]
    removed = await ada.call("DELETE", password=PASSWORD, code=ada.code(1))

    assert (removed.status_code, removed.json()) == (200, {"sessions_ended": 1})
    assert not (await ada.call("GET")).json()["is_active"]
    assert (await ada.login()).status_code == 200
    assert len(await given.audit_entries(world, "second_factor_change_failed")) == 3
    assert outcome(await ada.call("DELETE", password=PASSWORD, code="123456")) == (
        409,
        "second_factor_missing",
    )


async def test_new_recovery_codes_replace_the_old_ones(world: World) -> None:
    ada = await protected(world)
    refused = await ada.call("POST", RENEW, password=NOT_THIS_ONE, code=ada.code())
    renewed = await ada.call("POST", RENEW, password=PASSWORD, code=ada.code())

    assert outcome(refused) == (422, "password_wrong")
    new = renewed.json()["recovery_codes"]
    assert len(set(new) | set(ada.recovery_codes)) == 20
    assert outcome(await ada.login(code=ada.recovery_codes[0])) == (401, "second_factor_required")
    assert (await ada.login(code=new[0])).status_code == 200


@pytest.mark.usefixtures("slow_budgets")
async def test_guesses_with_a_stolen_session_are_limited(world: World) -> None:
    ada = await protected(world)
    answers = [
        outcome(await ada.call("DELETE", password=NOT_THIS_ONE, code=ada.wrong_code)) for _ in range(12)
    ]

    assert answers == [(422, "password_wrong")] * 10 + [(429, "too_many_requests")] * 2


async def test_first_codes_of_a_stolen_session_are_limited(world: World) -> None:
    ada = await person(world)
    await ada.begin()  # of the user; whoever has only the session does not know the key
    statuses = []
    for _ in range(12):
        await given.forget_failures(world, but="failed:code:")
        world.app.state.gatekeeper.failures._refused.clear()
        statuses.append((await ada.call("POST", CONFIRM, code=ada.wrong_code)).status_code)

    assert statuses == [422] * 10 + [429] * 2


# By an admin


async def test_an_admin_removes_the_one_that_a_user_has_lost(world: World) -> None:
    ada = await protected(world)
    path = f"/users/{await given.user_id(world, ada.email)}/second-factor"
    listed = (await world.call("GET", "/users", who="tenant_admin")).json()["items"]
    assert [one["has_second_factor"] for one in listed if one["email"] == ada.email] == [True]

    assert await world.status("DELETE", path, who="tenant_admin") == 204
    assert (await ada.call("GET")).status_code == 401  # the sessions have ended
    assert (await ada.login()).status_code == 200
    [entry] = await given.audit_entries(world, "second_factor_removed")
    assert (entry.actor, entry.details) == ("token:acme.tenant_admin", {"email": ada.email})
    again = await world.call("DELETE", path, who="tenant_admin")
    assert outcome(again) == (409, "second_factor_missing")


async def test_admins_do_not_remove_their_own_without_password_and_code(world: World) -> None:
    """A stolen session must not be enough, nor a token that it creates."""
    ada = await protected(world, Role.TENANT_ADMIN)
    path = f"/users/{await given.user_id(world, ada.email)}/second-factor"
    made = await ada.call("POST", "/tokens", name="x", role="tenant_admin")

    assert outcome(await ada.call("DELETE", path)) == (403, "forbidden")
    by_token = await world.call(
        "DELETE", path, who=None, headers={"Authorization": f"Bearer {made.json()['secret']}"}
    )
    assert outcome(by_token) == (403, "forbidden")
    assert outcome(await ada.login()) == (401, "second_factor_required")


async def test_a_new_password_by_an_admin_does_not_bypass_it(world: World) -> None:
    ada = await protected(world)
    path, new = f"/users/{await given.user_id(world, ada.email)}", "another horse, another battery"
    assert await world.status("PATCH", path, who="tenant_admin", json={"password": new}) == 200

    assert outcome(await ada.login(new)) == (401, "second_factor_required")
    assert (await ada.login(new, code=ada.code())).status_code == 200


# The policy


async def test_a_role_that_needs_one_can_do_nothing_else_before(database_url: str) -> None:
    async with world_on(database_url, require_second_factor=("operator",)) as world:
        ada, bob = await person(world), await person(world, Role.VIEWER)
        login = await ada.login()
        ada.cookie = login.headers["set-cookie"].partition(";")[0]

        assert login.status_code == 200
        for method, path in (
            ("GET", "/me"),
            ("GET", "/jobs"),
            ("POST", "/jobs"),
            ("POST", "/tokens"),
            ("POST", "/live/ticket"),
            ("POST", "/account/password"),
            ("POST", RENEW),
            ("DELETE", PATH),
            ("GET", "/openapi"),
        ):
            answer = await ada.call(method, path)
            assert outcome(answer) == (403, "second_factor_setup_required") or answer.status_code == 404, path
        assert (await ada.call("GET")).json()["is_required"]
        assert (await bob.call("GET", "/jobs")).status_code == 200
        assert await world.status("GET", "/jobs", who="operator") == 200  # a token
        await ada.enable()
        assert (await ada.call("GET", "/jobs")).status_code == 200
        assert (await ada.login(code=ada.code())).status_code == 200
        # who removes it is where they were
        assert (await ada.call("DELETE", password=PASSWORD, code=ada.code(1))).status_code == 200
        assert outcome(await ada.call("GET", "/jobs")) == (403, "second_factor_setup_required")


async def test_users_of_a_provider_need_none(database_url: str) -> None:
    async with world_on(database_url, require_second_factor=("operator",)) as world:
        ada = await person(world)
        assert outcome(await ada.call("GET", "/jobs")) == (403, "second_factor_setup_required")
        async with world.fl.database.transaction() as tx:
            await tx.run("update fairlead.sessions set proof = %s", [SignInProof.PROVIDER])
        assert (await ada.call("GET", "/jobs")).status_code == 200


# Cells


@pytest.mark.thorough
@pytest.mark.postgres_only("these cells are databases of one server")
async def test_it_works_for_users_of_another_cell(database_url: str) -> None:
    async with cells_on(database_url) as world:
        member = await world.fl.cells.member("b")
        inside = World(member, world.app, world.client, world.tenants, world.hosts, world.secrets)
        ada = await person(inside, Role.VIEWER, FAR)
        await ada.enable()

        assert outcome(await ada.login()) == (401, "second_factor_required")
        code = ada.code()
        signed_in = await ada.login(code=code)
        assert (signed_in.status_code, signed_in.json()["tenant"]) == (200, FAR)
        assert outcome(await ada.login(code=code)) == (401, "second_factor_required")
        user_id = await given.user_id(inside, ada.email)
        assert await world.status("DELETE", f"/users/{user_id}/second-factor", who="super_admin") == 204
        assert (await ada.login()).status_code == 200


# Secrets


async def test_keys_and_codes_are_in_no_other_response_nor_audit_nor_log(world: World) -> None:
    with capture_logs() as logs:
        ada = await protected(world, Role.TENANT_ADMIN)
        used, wrong = ada.code(), ada.wrong_code
        answers = [
            await ada.login(code=wrong),
            await ada.login(code=used),
            await ada.login(code=ada.recovery_codes[0]),
            await ada.call("GET"),
            await ada.call("GET", "/users"),
            await ada.call("GET", "/me"),
            await ada.call("POST", password=PASSWORD),
            await ada.call("POST", RENEW, password=PASSWORD, code=wrong),
            await ada.call("POST", RENEW, password=NOT_THIS_ONE, code=ada.recovery_codes[1]),
            await ada.call("DELETE", password=PASSWORD, code="x" * 65),
        ]
    async with world.transaction() as tx:
        entries = await given.stored_text(tx, "audit_entries")
        factor = await second_factors.lock(tx, await given.user_id(tx, ada.email))
    assert factor is not None
    told = "\n".join([*(one.text for one in answers), repr(logs), entries])

    plain = [code.replace("-", "") for code in ada.recovery_codes]
    for secret in (ada.key, PASSWORD, *ada.recovery_codes, *plain):
        assert secret not in told
    assert f'"{used}"' not in told
    assert "x" * 65 not in told
    assert all(len(one) == 32 for one in factor.recovery_hashes)


async def test_the_key_is_sealed_in_a_database_that_encrypts(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "master.key").write_text(os.urandom(32).hex())
    async with world_on(database_url, encryption_key=f"file:{tmp_path / 'master.key'}") as world:
        await act(world.fl.database, encryption.enable, given.TESTER)
        ada, bob = await protected(world), await protected(world, Role.VIEWER)
        stored = await given.stored_text(world, "second_factors")
        assert not any(one.key in stored for one in (ada, bob))
        assert (await ada.login(code=ada.code())).status_code == 200


async def test_a_second_factor_works_after_a_rotation_of_the_data_keys(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "master.key").write_text(os.urandom(32).hex())
    monkeypatch.setattr(encryption, "CURRENT_SECONDS", 0.0)
    async with world_on(database_url, encryption_key=f"file:{tmp_path / 'master.key'}") as world:
        ada = await protected(world)
        database = world.fl.database
        await database.transact(lambda tx: encryption.enable(tx, given.TESTER))
        sealed = await database.transact(lambda tx: encryption.reseal_texts(tx, given.TESTER))
        [[before]] = await database.transact(
            lambda tx: tx.values("select secret from fairlead.second_factors")
        )
        await database.transact(lambda tx: encryption.renew_keys(tx, given.TESTER))
        rotated = await database.transact(lambda tx: encryption.reseal_texts(tx, given.TESTER))
        [[after]] = await database.transact(
            lambda tx: tx.values("select secret from fairlead.second_factors")
        )
        retired = await database.transact(lambda tx: encryption.retire_keys(tx, given.TESTER))

        assert (sealed, rotated) == (1, 1)
        assert before.split(":")[2] != after.split(":")[2]
        assert ada.key not in before + after
        assert retired[1] == 0
        assert (await ada.login(code=ada.code())).status_code == 200
