"""The victims: programs and people of other tenants, who notice how long each of their requests takes."""

import asyncio
from collections.abc import Coroutine
from itertools import count
from typing import Any

import httpx2
import msgspec

from fairlead.chaos.history import now
from fairlead.chaos.hostile.app import EVENT, QUICK

REQUEST_SECONDS = 120.0
VICTIM_ADDRESS = "127.0.0.2"
CONNECTIONS = 30
# How often each victim asks.
PERIOD_SECONDS = 0.25
# The status of a request that had no answer when the victim stopped; 0: the connection broke.
UNANSWERED = -1
EVENT_EVERY = 5
OVERVIEW_EVERY = 7


class Answered(msgspec.Struct, frozen=True):
    """A request of a victim, and how long it took."""

    at: float
    seconds: float
    name: str
    status: int


class Victim:
    """One program of a tenant, which asks at its times, whether or not it has the answers of earlier requests."""

    def __init__(self, url: str, tenant: str, token: str) -> None:
        self.tenant = tenant
        self.answers: list[Answered] = []
        self._tasks = set[asyncio.Task[Any]]()
        headers = {"Authorization": f"Bearer {token}"}
        # of another address than the attackers: they would use up its limits, too
        transport = httpx2.AsyncHTTPTransport(
            local_address=VICTIM_ADDRESS, limits=httpx2.Limits(max_connections=CONNECTIONS)
        )
        self._client = httpx2.AsyncClient(
            base_url=f"{url}/api/v1", headers=headers, timeout=REQUEST_SECONDS, transport=transport
        )

    async def work(self) -> None:
        """Enqueue, read and emit until canceled. Requests without an answer then count as long as they took until then."""
        began = now()
        try:
            for number in count():
                await asyncio.sleep(began + number * PERIOD_SECONDS - now())
                self._start(self._use_job(number))
                self._start(self._ask("GET", "/jobs?limit=20"))
                if number % EVENT_EVERY == 0:
                    self._start(self._ask("POST", "/events", {"name": EVENT, "data": {"n": number}}))
                if number % OVERVIEW_EVERY == 0:
                    self._start(self._ask("GET", "/overview"))
        finally:
            unanswered = list(self._tasks)
            for task in unanswered:
                task.cancel()
            await asyncio.gather(*unanswered, return_exceptions=True)

    def _start(self, request: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(request)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _use_job(self, number: int) -> None:
        made = await self._ask("POST", "/jobs", {"definition_key": QUICK, "payload": {"n": number}})
        if made:
            await self._ask("GET", f"/jobs/{made['id']}", name="/jobs/{id}")

    async def _ask(self, method: str, path: str, body: Any = None, *, name: str = "") -> Any:
        began, status, answer = now(), UNANSWERED, None
        try:
            response = await self._client.request(method, path, json=body)
            status = response.status_code
            answer = response.json() if response.is_success else None
        except httpx2.TransportError:
            status = 0
        finally:
            self.answers.append(Answered(began, now() - began, f"{method} {name or path}", status))
        return answer

    async def close(self) -> None:
        await self._client.aclose()
