"""A process that attacks: `python -m fairlead.chaos.hostile.attacker --seed 7`, until SIGTERM."""

import argparse
import asyncio
import os
import random
import signal
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec

from fairlead.chaos.history import now
from fairlead.chaos.hostile.attacks import ATTACKS
from fairlead.chaos.hostile.requests import RequestMaker, encode_body

# Where the process finds its HostilePlan.
PLAN_VARIABLE = "FAIRLEAD_HOSTILE_PLAN"
REQUEST_SECONDS = 60.0
CONNECTIONS = 40
# Requests made of the OpenAPI document that are under way at once, and attacks.
REQUESTS_AT_ONCE = 16
ATTACKS_AT_ONCE = 2
ROLES = ("tenant_admin", "operator", "viewer", "application", "worker")


class HostilePlan(msgspec.Struct, frozen=True):
    """What attackers know, and what they do."""

    url: str
    # of each role, a token of the hostile tenant
    tokens: dict[str, str]
    # ids of other tenants' jobs
    foreign_ids: list[str]
    # where each process writes what it sent
    folder: str
    # names of ATTACKS; none: only requests made of the OpenAPI document
    attacks: list[str]
    fuzz: bool = True


class SentRecord(msgspec.Struct, frozen=True):
    """A request or an attack, and how it ended."""

    began: float
    ended: float
    name: str
    # 0: no answer
    status: int = 0
    sent_bytes: int = 0


class AttackClient:
    """Sends requests, and remembers which."""

    def __init__(self, plan: HostilePlan, chance: random.Random, log: Path) -> None:
        address = urlsplit(plan.url)
        self.plan = plan
        self.chance = chance
        self.host, self.port = str(address.hostname), int(address.port or 80)
        self._client = httpx2.AsyncClient(
            timeout=REQUEST_SECONDS, limits=httpx2.Limits(max_connections=CONNECTIONS)
        )
        self._log = log.open("ab", buffering=0)

    def header(self, role: str) -> str:
        return f"Bearer {self.plan.tokens.get(role, role)}"

    async def send(self, role: str, method: str, path: str, body: Any = None) -> bytes:
        return await self.send_text(role, method, path, None if body is None else encode_body(body))

    async def send_text(self, role: str, method: str, path: str, body: bytes | None) -> bytes:
        """Send a request; the path is below /api/v1, or complete."""
        began, status, text = now(), 0, b""
        url = f"{self.plan.url}{path if path.startswith(('/api/', '/hooks/', '/console')) else '/api/v1' + path}"
        headers = {"Authorization": self.header(role), "Content-Type": "application/json"}
        with suppress(httpx2.HTTPError, httpx2.InvalidURL):
            answer = await self._client.request(method, url, content=body, headers=headers)
            status, text = answer.status_code, answer.content
        self.note(SentRecord(began, now(), f"{method} {path[:120]}", status, len(body or b"")))
        return text if status < 300 else b""

    def note(self, record: SentRecord) -> None:
        self._log.write(msgspec.json.encode(record) + b"\n")

    async def close(self) -> None:
        await self._client.aclose()
        self._log.close()


async def _fuzz(client: AttackClient, maker: RequestMaker) -> None:
    while True:
        made = maker.make()
        role = client.chance.choice(ROLES)
        text = await client.send_text(role, made.method, made.path, made.body)
        maker.learn(made.path, text)


async def _attack(client: AttackClient) -> None:
    while True:
        name = client.chance.choice(client.plan.attacks)
        began = now()
        await ATTACKS[name](client)
        client.note(SentRecord(began, now(), name))


async def _read_document(plan: HostilePlan) -> Any:
    async with httpx2.AsyncClient(timeout=REQUEST_SECONDS) as client:
        headers = {"Authorization": f"Bearer {plan.tokens['viewer']}"}
        return (await client.get(f"{plan.url}/api/v1/openapi.json", headers=headers)).json()


async def _wait_for(stop: asyncio.Event) -> None:
    await stop.wait()


async def run_attacker(plan: HostilePlan, seed: int, stop: asyncio.Event) -> None:
    """Attack until `stop` is set."""
    chance = random.Random(seed)  # noqa: S311
    client = AttackClient(plan, chance, Path(plan.folder, f"sent-{os.getpid()}.jsonl"))
    works: list[Coroutine[Any, Any, None]] = []
    if plan.fuzz:
        maker = RequestMaker(await _read_document(plan), chance, plan.foreign_ids)
        works += [_fuzz(client, maker) for _ in range(REQUESTS_AT_ONCE)]
    if plan.attacks:
        works += [_attack(client) for _ in range(ATTACKS_AT_ONCE)]
    tasks = [asyncio.create_task(work) for work in works]
    print("ready", flush=True)  # noqa: T201 - the run waits for it
    stopping = asyncio.create_task(_wait_for(stop))
    try:
        # an attack that fails is a fault of the tool, and ends the process
        await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in (*tasks, stopping):
            task.cancel()
        await asyncio.gather(*tasks, stopping, return_exceptions=True)
        await client.close()


async def _main(plan: HostilePlan, seed: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run_attacker(plan, seed, stop)


def main() -> None:
    parser = argparse.ArgumentParser(description="The attackers of python -m fairlead.chaos.hostile.")
    parser.add_argument("--seed", type=int, required=True, help="Decides what is sent.")
    with suppress(OSError):
        os.nice(19)  # attackers are on other machines, and take no time of the server's
    plan = msgspec.json.decode(Path(os.environ[PLAN_VARIABLE]).read_bytes(), type=HostilePlan)
    asyncio.run(_main(plan, parser.parse_args().seed))


if __name__ == "__main__":
    main()
