"""A download breaks off when the sign-in of its caller ends: what follows is not sent."""

from collections.abc import Awaitable, Callable
from uuid import UUID

import httpx2
import pytest
from structlog.testing import capture_logs

from fairlead.actions import access
from fairlead.model.access import Role
from fairlead.server import auth
from fairlead.server.auth import Readmission
from fairlead.server.console.pages import downloads
from tests import given
from tests.acting import act
from tests.server.world import World, listening

End = Callable[[], Awaitable[object]]
CHUNKS = [f"line {number}\n" for number in range(5)]


@pytest.fixture
async def paths(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Downloads of several pages or pieces, each with five rows or lines."""
    monkeypatch.setattr(downloads, "PAGE_ROWS", 2)
    job_id = await given.queued_job(world)
    async with world.transaction() as tx:
        for _ in CHUNKS:
            await given.event(tx)
        await given.write_log(tx, job_id, *CHUNKS)
    return ["/events.csv", f"/jobs/{job_id}/log.txt"]


def end_before_second_check(monkeypatch: pytest.MonkeyPatch, end: End) -> None:
    """Check always, as after a while, and end the sign-in when a part was sent."""
    checked: list[Readmission] = []
    check = Readmission.check

    async def end_and_check(readmission: Readmission) -> None:
        checked.append(readmission)
        if len(checked) == 2:
            await end()
        await check(readmission)

    monkeypatch.setattr(auth, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(Readmission, "check", end_and_check)


async def download(port: int, path: str, headers: dict[str, str]) -> tuple[str, bool]:
    """What was sent, and whether it was all."""
    sent = ""
    async with (
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}/console") as client,
        client.stream("GET", path, headers=headers) as answer,
    ):
        assert answer.status_code == 200
        try:
            async for part in answer.aiter_text():
                sent += part
        except httpx2.RemoteProtocolError:
            return sent, False
    return sent, True


async def expect_a_break(world: World, path: str, headers: dict[str, str]) -> None:
    with capture_logs() as logs:
        async with listening(world) as port:
            sent, is_whole = await download(port, path, headers)
    assert not is_whole, path
    assert 1 <= sent.count("\n") < 5 + path.endswith("csv"), path
    assert [log["code"] for log in logs if log["event"] == "response_ended"] == ["unauthenticated"]
    assert not [log for log in logs if log["log_level"] == "error"]


@pytest.mark.parametrize("number", [0, 1])
async def test_a_download_breaks_off_when_its_session_ends(
    world: World, paths: list[str], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie = await world.signed_in(Role.VIEWER)

    async def sign_out() -> None:
        await world.call("POST", "/account/sign-out-everywhere", who=None, headers={"Cookie": cookie})

    end_before_second_check(monkeypatch, sign_out)
    await expect_a_break(world, paths[number], {"Cookie": cookie})


async def test_a_download_breaks_off_when_its_token_is_revoked(
    world: World, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    token_id: UUID = world.token_ids[given.TENANT, "viewer"]

    async def revoke() -> None:
        await act(world, access.revoke_token, given.TESTER, token_id)

    end_before_second_check(monkeypatch, revoke)
    await expect_a_break(world, paths[0], world.headers("viewer"))


async def test_a_download_of_a_valid_sign_in_comes_whole_and_counts_once(
    world: World, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "CHECK_SECONDS", 0.0)
    counted: list[str] = []

    async def count(caller: str, _tenant: UUID | None) -> None:
        counted.append(caller)

    monkeypatch.setattr(world.app.state.gatekeeper._requests, "take", count)
    async with listening(world) as port:
        for path in paths:
            sent, is_whole = await download(port, path, world.headers("viewer"))
            assert is_whole
            assert sent.count("\n") == 5 + path.endswith("csv")
    assert len(counted) == len(paths)
