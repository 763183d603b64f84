"""What an agent does about answers to its polls that do not come."""

import asyncio
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from fairlead.runtime import agent_poller
from fairlead.runtime.agent_poller import WAIT_SECONDS, AgentPoller, PollSession
from fairlead.runtime.http_source import HttpSource
from fairlead.runtime.server_client import ServerClient
from fairlead.runtime.spool import Spool

GONE = httpx2.Response(401, json={"code": "unauthenticated", "detail": "revoked"})


async def listened(folder: Path, answers: list[httpx2.Response]) -> list[float]:
    """How long each poll wanted to wait, when polls are answered so; the last sends the agent away."""
    waits = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        waits.append(float(request.url.params["wait"]))
        return answers.pop(0)

    async with ServerClient("http://box.test", "secret", transport=httpx2.MockTransport(answer)) as line:
        hearing = AgentPoller(line, HttpSource(line, Spool(folder), uuid4()), ["a"])
        session = PollSession(session_id=uuid4(), lease_seconds=30)
        nothing = lambda: None  # noqa: E731
        await hearing.listen(session, asyncio.Event(), room=lambda: 1, come=nothing, cancel=nothing)
    return waits


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After how many failures in a row there was a pause: none takes long here."""
    counted: list[int] = []

    def backoff(failures: int) -> float:
        counted.append(failures)
        return 0

    monkeypatch.setattr(agent_poller, "backoff", backoff)
    return counted


async def test_polls_that_a_proxy_cut_are_made_again_with_less_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[int]
) -> None:
    monkeypatch.setattr(agent_poller, "SHORTEST_WAIT_SECONDS", 0.0)

    first, *rest = await listened(tmp_path, [httpx2.Response(504), httpx2.Response(504), GONE])

    assert first == WAIT_SECONDS > rest[0]
    assert pauses[0] == 1


async def test_a_server_that_is_away_is_asked_less_and_less_often_and_as_patiently(
    tmp_path: Path, pauses: list[int]
) -> None:
    # a 504 that comes at once is no lack of patience
    waits = await listened(tmp_path, [httpx2.Response(503), httpx2.Response(504), httpx2.Response(502), GONE])

    assert (waits, pauses) == ([WAIT_SECONDS] * 4, [1, 2, 3])
