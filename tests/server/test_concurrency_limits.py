"""Sockets and followed logs are bounded, for each caller and each tenant, and refusals name the cap."""

import asyncio
import contextlib

import httpx2
import pytest

from tests import given
from tests.server.test_live import refusal, served, watching
from tests.server.world import world_on
from tests.waiting import SECONDS, eventually


async def test_a_caller_has_so_many_sockets_and_a_tenant_too(database_url: str) -> None:
    caps = {"max_sockets_per_caller": 2, "max_sockets_per_tenant": 3}
    async with (
        world_on(database_url, **caps) as world,
        served(world) as address,
        contextlib.AsyncExitStack() as open_ones,
    ):
        for _ in range(2):
            await open_ones.enter_async_context(watching(address, world.headers("viewer")))
        told = await refusal(address, world.headers("viewer"))
        await open_ones.enter_async_context(watching(address, world.headers("operator")))
        of_tenant = await refusal(address, world.headers("operator"))
        await open_ones.enter_async_context(watching(address, world.headers("viewer", given.OTHER)))

        await open_ones.aclose()
        await eventually(lambda: not world.app.state.sockets.busiest, "the sockets to be closed")
        async with watching(address, world.headers("viewer")):
            pass

    assert (told, of_tenant) == ((429, "too_many_requests"), (429, "too_many_requests"))


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("max_followers_per_caller", "FAIRLEAD_MAX_FOLLOWERS_PER_CALLER"),
        ("max_followers_per_tenant", "the quota followed_logs is 2"),
    ],
)
async def test_followers_of_logs_are_bounded(database_url: str, setting: str, told: str) -> None:
    async with world_on(database_url, **{setting: 2}) as world:
        made = await world.call("POST", "/jobs", json={"definition_key": "greet", "payload": {"name": "Ada"}})
        path = f"/jobs/{made.json()['id']}/logs"
        following = [
            asyncio.create_task(world.call("GET", path, params={"follow": "true", "wait": "30"}))
            for _ in range(2)
        ]
        await eventually(lambda: world.app.state.followers.busiest == 2, "two followers")

        refused = await world.call("GET", path, params={"follow": "true"})
        read = await world.call("GET", path)
        for one in following:
            one.cancel()
        await asyncio.gather(*following, return_exceptions=True)

    assert (refused.status_code, read.status_code) == (429, 200)
    assert told in refused.json()["detail"]


async def test_over_tls_browsers_are_told_to_stay_there(database_url: str) -> None:
    async with world_on(database_url) as world, served(world) as address:
        at = address.replace("ws://", "http://").replace("/api/v1/live", "/healthz")
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            answers = [await client.get(at, headers={"X-Forwarded-Proto": way}) for way in ("https", "http")]
    assert [answer.headers.get("strict-transport-security") for answer in answers] == [
        "max-age=31536000",
        None,
    ]
