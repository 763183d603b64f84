"""Thousands of webhooks at two servers at once, many of them repeated and some forged: each becomes one event.

`make hooks` sends 20,000; `make test` some hundreds.
"""

import asyncio
import contextlib
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any

import httpx2
import pytest

from fairlead.model.hooks.hook import Scheme
from tests import given
from tests.server.server_processes import serving
from tests.server.test_hook_deliveries import BODIES, FORGED_STANDARD, SECRETS, hook_of
from tests.server.world import World, world_on
from tests.signing import signed
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

DELIVERIES = int(os.environ.get("HOOK_DELIVERIES", "200"))
SENDERS = 16


@dataclass(frozen=True)
class Message:
    """What a sender sends, again and again under the same id until it is accepted."""

    scheme: Scheme
    number: int
    forged: bool

    @property
    def id(self) -> str:
        return f"{self.scheme}-{self.number}"

    @property
    def body(self) -> bytes:
        ids = {"id": self.id} if self.scheme is Scheme.STRIPE else {"event_id": self.id}
        return json.dumps(
            {**BODIES[self.scheme], **ids, "number": self.number, "forged": self.forged}
        ).encode()

    @property
    def headers(self) -> dict[str, str]:
        secret = FORGED_STANDARD if self.forged else SECRETS[self.scheme]
        return signed(self.scheme, secret, self.body, message_id=self.id)


UNLIMITED = {
    "FAIRLEAD_MAINTENANCE": "false",
    "FAIRLEAD_RATE_LIMIT_PER_SECOND": "1000000",
    "FAIRLEAD_RATE_LIMIT_BURST": "1000000",
}


@pytest.fixture
async def world_with_hooks(database_url: str) -> AsyncIterator[World]:
    async with world_on(database_url) as world:
        for scheme in Scheme:
            await hook_of(world, scheme, name=scheme.value, event_name=f"{scheme}.received")
        yield world


def messages(total: int) -> list[Message]:
    """A twentieth is forged; of the others, half are sent twice: a third of what is sent is a repetition."""
    chance = random.Random(22)  # noqa: S311
    schemes = list(Scheme)
    forged = total // 20
    distinct = [Message(schemes[n % 4], n, forged=False) for n in range((total - forged) * 2 // 3)]
    repeated = chance.choices(distinct, k=total - forged - len(distinct))
    # under ids of genuine ones: a forged delivery must not take the place of a genuine one
    false = [Message(schemes[n % 4], n, forged=True) for n in range(forged)]
    sent = [*distinct, *repeated, *false]
    chance.shuffle(sent)
    return sent


async def test_each_webhook_becomes_one_event_at_two_servers_of_which_one_is_killed(
    world_with_hooks: World, database_url: str
) -> None:
    sent = messages(DELIVERIES)
    got: list[tuple[Message, int, Any]] = []
    resent = count()
    turns = iter(sent)
    with serving(database_url, **UNLIMITED) as (one, _), serving(database_url, **UNLIMITED) as (two, doomed):
        begun = monotonic()

        async def deliver(client: httpx2.AsyncClient, message: Message) -> httpx2.Response:
            ports = [one, two] if random.random() < 0.5 else [two, one]  # noqa: S311
            path = f"/hooks/{given.TENANT}/{message.scheme}"
            with contextlib.suppress(httpx2.TransportError):
                url = f"http://127.0.0.1:{ports[0]}{path}"
                return await client.post(url, content=message.body, headers=message.headers)
            next(resent)  # its server is gone, and it may have been stored
            return await client.post(
                f"http://127.0.0.1:{one}{path}", content=message.body, headers=message.headers
            )

        async def send() -> None:
            async with httpx2.AsyncClient(timeout=SECONDS) as client:
                for message in turns:
                    if len(got) >= DELIVERIES // 2 and doomed.poll() is None:
                        doomed.kill()
                    answer = await deliver(client, message)
                    got.append((message, answer.status_code, answer.json()))

        await asyncio.gather(*(send() for _ in range(SENDERS)))
        seconds = monotonic() - begun
        assert doomed.wait() != 0

    assert len(got) == len(sent) == DELIVERIES
    statuses = Counter((message.forged, status) for message, status, _ in got)
    assert set(statuses) <= {(False, 202), (True, 401), (True, 429)}, statuses
    genuine = {message.id for message in sent if not message.forged}
    by_message: dict[str, set[str]] = {}
    for message, _, answer in got:
        if not message.forged:
            by_message.setdefault(message.id, set()).add(answer["id"])
    assert by_message.keys() == genuine
    assert [ids for ids in by_message.values() if len(ids) != 1] == []
    async with world_with_hooks.fl.database.transaction() as tx:
        stored = await tx.values(
            "select id::text, data ->> 'forged', data -> 'webhook' ->> 'id' from fairlead.events"
        )
        deliveries = await given.count(tx, "hook_deliveries")
    assert [one for one in stored if one[1] != "false"] == []
    assert Counter(str(message_id) for _, _, message_id in stored) == dict.fromkeys(genuine, 1)
    assert {str(message_id): {str(event_id)} for event_id, _, message_id in stored} == by_message
    assert deliveries == len(genuine)
    print(  # noqa: T201 - for `make hooks`
        f"{DELIVERIES} deliveries in {seconds:.0f} s ({DELIVERIES / seconds:.0f}/s): {len(stored)} events, "
        f"{statuses[True, 401] + statuses[True, 429]} forged, {next(resent)} sent again after a server was killed"
    )
