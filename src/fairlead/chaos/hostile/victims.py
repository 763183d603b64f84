"""The victims: programs and people of other tenants, who notice how long each of their requests takes."""

import asyncio
import math
from collections.abc import Sequence
from itertools import count
from typing import Any

import httpx2
import msgspec

from fairlead.chaos.history import now
from fairlead.chaos.hostile.app import EVENT, QUICK

REQUEST_SECONDS = 120.0
# How often each victim asks.
PAUSE_SECONDS = 0.1
EVENT_EVERY = 5
OVERVIEW_EVERY = 7


class Answered(msgspec.Struct, frozen=True):
    """A request of a victim, and how long it took."""

    at: float
    seconds: float
    name: str
    status: int


class Spread(msgspec.Struct, frozen=True):
    """How a set of durations is spread, in seconds."""

    number: int
    p50: float
    p95: float
    p99: float
    longest: float


def measure_spread(seconds: Sequence[float]) -> Spread:
    """The percentiles of some durations."""
    if not seconds:
        return Spread(0, 0.0, 0.0, 0.0, 0.0)
    ordered = sorted(seconds)

    def percentile(part: float) -> float:
        return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)]

    return Spread(len(ordered), percentile(0.5), percentile(0.95), percentile(0.99), ordered[-1])


class Victim:
    """One program of a tenant, with a connection that it keeps."""

    def __init__(self, url: str, tenant: str, token: str) -> None:
        self.tenant = tenant
        self.answers: list[Answered] = []
        headers = {"Authorization": f"Bearer {token}"}
        self._client = httpx2.AsyncClient(base_url=f"{url}/api/v1", headers=headers, timeout=REQUEST_SECONDS)

    async def work(self) -> None:
        """Enqueue, read and emit until canceled."""
        for number in count():
            made = await self._ask("POST", "/jobs", {"definition_key": QUICK, "payload": {"n": number}})
            await self._ask("GET", "/jobs?limit=20")
            if made:
                await self._ask("GET", f"/jobs/{made['id']}", name="/jobs/{id}")
            if number % EVENT_EVERY == 0:
                await self._ask("POST", "/events", {"name": EVENT, "data": {"n": number}})
            if number % OVERVIEW_EVERY == 0:
                await self._ask("GET", "/overview")
            await asyncio.sleep(PAUSE_SECONDS)

    async def _ask(self, method: str, path: str, body: Any = None, *, name: str = "") -> Any:
        began = now()
        try:
            answer = await self._client.request(method, path, json=body)
        except httpx2.TransportError:
            self.answers.append(Answered(began, now() - began, f"{method} {name or path}", 0))
            return None
        self.answers.append(Answered(began, now() - began, f"{method} {name or path}", answer.status_code))
        return answer.json() if answer.is_success else None

    async def close(self) -> None:
        await self._client.aclose()
