"""A request whose body arrives slowly is not carried out if the sign-in of its caller has ended meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlencode
from uuid import UUID

import httpx2
import pytest

from fairlead.actions import access
from fairlead.model.access import Role
from fairlead.server import auth
from fairlead.server.console.payload_form import RAW, TEXT, WAY
from fairlead.server.problems import CONSOLE, PREFIX
from tests import given
from tests.acting import act
from tests.server.world import BASE, World
from tests.waiting import SECONDS

JOB = json.dumps({"definition_key": "anything", "payload": {"n": 1}}).encode()
FORM = urlencode({TEXT: "{}", WAY: RAW}).encode()
JSON_TYPE, FORM_TYPE = "application/json", "application/x-www-form-urlencoded"
API, PAGE = f"{BASE}{PREFIX}/jobs", f"{BASE}{CONSOLE}/enqueue?definition=anything"


@pytest.fixture(autouse=True)
def every_body_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "CHECK_SECONDS", 0.0)


async def post(
    world: World,
    url: str,
    body: bytes,
    kind: str,
    headers: dict[str, str],
    meanwhile: Callable[[], Awaitable[object]],
) -> httpx2.Response:
    """Send a request whose body ends after something else has happened."""
    begun = asyncio.Event()
    goes_on = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:-1]
        begun.set()
        await goes_on.wait()
        yield body[-1:]

    sending = asyncio.create_task(
        world.client.post(url, content=slowly(), headers={**headers, "Content-Type": kind})
    )
    async with asyncio.timeout(SECONDS):
        await begun.wait()
        await meanwhile()
        goes_on.set()
        return await sending


async def count_jobs(world: World) -> int:
    async with world.transaction() as tx:
        return len(await given.all_jobs(tx))


async def nothing() -> None:
    pass


async def test_a_slow_body_is_refused_if_its_token_was_revoked_meanwhile(world: World) -> None:
    token_id: UUID = world.token_ids[given.TENANT, "operator"]

    async def revoke() -> None:
        await act(world, access.revoke_token, given.TESTER, token_id)

    answer = await post(world, API, JOB, JSON_TYPE, world.headers("operator"), revoke)

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert await count_jobs(world) == 0


@pytest.mark.parametrize(
    ("url", "body", "kind", "status"), [(API, JOB, JSON_TYPE, 401), (PAGE, FORM, FORM_TYPE, 303)]
)
async def test_a_slow_body_is_refused_if_its_session_ended_meanwhile(
    world: World, url: str, body: bytes, kind: str, status: int
) -> None:
    cookie = {"Cookie": await world.signed_in(Role.OPERATOR)}

    async def sign_out() -> None:
        await world.call("POST", "/account/sign-out-everywhere", who=None, headers=cookie)

    answer = await post(world, url, body, kind, cookie, sign_out)

    assert answer.status_code == status
    assert status == 401 or answer.headers["location"].startswith(f"{CONSOLE}/sign-in")
    assert await count_jobs(world) == 0


@pytest.mark.parametrize(("url", "body", "kind"), [(API, JOB, JSON_TYPE), (PAGE, FORM, FORM_TYPE)])
async def test_a_slow_body_of_a_valid_sign_in_is_taken(
    world: World, url: str, body: bytes, kind: str
) -> None:
    cookie = {"Cookie": await world.signed_in(Role.OPERATOR)}

    answer = await post(world, url, body, kind, cookie, nothing)

    assert answer.status_code < 400, answer.text
    assert await count_jobs(world) == 1
