"""A client that attacks: `python -m fairlead.chaos.load.hostile --seed 7`.

It is a tenant admin of the tenant `hostile`, and sends everything that its own people may send: costly schemas, patterns and
templates, large and deep payloads, floods, idle connections. What it leaves behind is bounded. It also forges requests about other
tenants' jobs, which must be refused: each of those is a call of kind `attack` in the history, and an accepted one is a finding.
"""

import argparse
import asyncio
import json
import random
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx2
import structlog
from uuid_utils.compat import uuid7

from fairlead.chaos import scenario
from fairlead.chaos.history import AnswerRecord, CallRecord, HistoryWriter, now
from fairlead.chaos.load.client_calls import CallOutcome
from fairlead.chaos.site.access import RunAccess, read_access

log = structlog.get_logger(__name__)

REQUEST_SECONDS = 30.0
# Between two attacks: the machine is the victims', too.
PAUSE_SECONDS = (1.0, 4.0)
# About 6 MB as Python objects, and 180 kB as JSON.
BIG: list[dict[str, Any]] = [{} for _ in range(60_000)]
# What it leaves behind in one run, of all attacks together.
MOST_JOBS = 600
MOST_EVENTS = 300
MOST_TRIGGERS = 10
IDLE_SOCKETS = 100
IDLE_SECONDS = 3.0
DEPTH = 5000
LEVELS = 40
ITEMS = 10

Attack = Callable[["HostileClient"], Coroutine[Any, Any, None]]


class HostileClient:
    """The attacker: its token, its choices, and how much it has left behind."""

    def __init__(self, access: RunAccess, history: HistoryWriter, chance: random.Random) -> None:
        self.access = access
        self.chance = chance
        self.jobs_left, self.events_left, self.triggers_left = MOST_JOBS, MOST_EVENTS, MOST_TRIGGERS
        self._history = history
        self._client = httpx2.AsyncClient(timeout=REQUEST_SECONDS)

    async def send(
        self, method: str, path: str, body: Any = None, *, token: str | None = None
    ) -> httpx2.Response | None:
        """The response; None if the server could not be reached. A body that is text is sent as it is."""
        headers = {
            "Authorization": f"Bearer {token or self.access.tokens[scenario.HOSTILE]}",
            "Content-Type": "application/json",
        }
        content = body if isinstance(body, str) else json.dumps(body)
        url = f"{self.chance.choice(self.access.servers)}/api/v1{path}"
        try:
            return await self._client.request(
                method, url, content=None if body is None else content, headers=headers
            )
        except httpx2.TransportError as error:
            log.info("not_answered", path=path, why=repr(error))
            return None

    async def forge(
        self, name: str, job: UUID, path: str, body: Any = None, *, token: str | None = None
    ) -> None:
        """Send a request that must be refused, and record whether it was."""
        call_id = uuid7()
        what = {"attack": name, "job": job}
        self._history.write(CallRecord(now(), call_id, "attack", scenario.HOSTILE, what))
        outcome: CallOutcome = "unknown"
        code = "stopped"
        try:
            response = await self.send("POST", path, body, token=token)
            code = "not_answered" if response is None else f"http_{response.status_code}"
            if response is not None and response.status_code < 500:
                outcome = "ok" if response.is_success else "fail"
        finally:
            self._history.write(AnswerRecord(now(), call_id, outcome, code=code))

    async def close(self) -> None:
        await self._client.aclose()


# Attacks on time and memory


async def publish_costly_schema(client: HostileClient) -> None:
    """Definitions that name the next one twice: 2^40 checks."""
    definitions: dict[str, Any] = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(LEVELS)
    }
    schema = {"$defs": {**definitions, f"d{LEVELS}": {"type": "integer"}}, "$ref": "#/$defs/d0"}
    await client.send("POST", "/workflows", _workflow("schema", schema))
    await client.send("POST", "/workflows/schema/runs", {"input": "no"})


async def publish_costly_pattern(client: HostileClient) -> None:
    """A pattern that backtracks, and a text that makes it do so."""
    schema = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^(a+)+$"}}}
    await client.send("POST", "/workflows", _workflow("pattern", schema))
    await client.send("POST", "/workflows/pattern/runs", {"input": {"text": "a" * 50_000 + "!"}})


async def multiply_payload(client: HostileClient) -> None:
    """A job with a large payload for each of many items."""
    step = {
        "name": "a",
        "definition": scenario.QUICK,
        "for_each": "{{input.items}}",
        "payload": {"big": "{{input.big}}"},
    }
    await client.send("POST", "/workflows", {"key": "many", "steps": [step]})
    if client.jobs_left >= ITEMS:
        client.jobs_left -= ITEMS
        await client.send(
            "POST", "/workflows/many/runs", {"input": {"items": list(range(ITEMS)), "big": BIG}}
        )


async def enqueue_large(client: HostileClient) -> None:
    """Large payloads in one body, and in pages."""
    number = min(5, client.jobs_left)
    client.jobs_left -= number
    body = {"jobs": [{"definition_key": scenario.QUICK, "payload": {"big": BIG}}] * number}
    await client.send("POST", "/jobs/bulk", body)
    await asyncio.gather(*(client.send("GET", "/jobs?limit=1000") for _ in range(2)))


async def enqueue_deep(client: HostileClient) -> None:
    """A payload that is nested too deeply, as text: no encoder of ours would write it."""
    deep = '{"a":' * DEPTH + "1" + "}" * DEPTH
    await client.send("POST", "/jobs", f'{{"definition_key": "{scenario.QUICK}", "payload": {deep}}}')


async def add_costly_triggers(client: HostileClient) -> None:
    """Triggers with large templates and long filters, and one large event for all of them."""
    number = min(5, client.triggers_left)
    client.triggers_left -= number
    conditions = {f"field_{n}": {"ne": n} for n in range(80)}
    for n in range(number):
        body = {
            "label": f"hostile {client.triggers_left} {n}",
            "trigger_type": "event",
            "event_name": "boom",
            "filter": conditions,
            "definition_key": scenario.QUICK,
            "payload_template": {"big": "{{event.big}}", "deep": [["{{event.small}}"] * 50] * 20},
        }
        await client.send("POST", "/jobs/triggers", body)
    if client.events_left and client.jobs_left >= MOST_TRIGGERS:
        client.events_left -= 1
        client.jobs_left -= MOST_TRIGGERS
        await client.send("POST", "/events", {"name": "boom", "data": {"big": BIG, "small": 1}})


# Floods


async def flood_events(client: HostileClient) -> None:
    number = min(60, client.events_left)
    client.events_left -= number
    body = {"name": "nothing.listens", "data": {"text": "x" * 1000}}
    await asyncio.gather(*(client.send("POST", "/events", body) for _ in range(number)))


async def flood_jobs(client: HostileClient) -> None:
    number = min(100, client.jobs_left)
    if number:
        client.jobs_left -= number
        job = {"definition_key": scenario.SLOW, "payload": {"seconds": 0.05}, "priority": -1000}
        await client.send("POST", "/jobs/bulk", {"jobs": [job] * number})


async def open_idle_sockets(client: HostileClient) -> None:
    """Connections that send the beginning of a request, and then nothing."""
    address = urlsplit(client.chance.choice(client.access.servers))
    async with AsyncExitStack() as stack:
        for _ in range(IDLE_SOCKETS):
            with suppress(OSError):
                _, writer = await asyncio.open_connection(address.hostname, address.port)
                stack.callback(writer.close)
                writer.write(b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        await asyncio.sleep(IDLE_SECONDS)


async def guess_tokens(client: HostileClient) -> None:
    """Tokens that do not exist, from the address that everybody has."""
    tokens = [f"flt_{client.chance.getrandbits(160):040x}" for _ in range(20)]
    await asyncio.gather(*(client.send("GET", "/jobs?limit=1", token=token) for token in tokens))


# Forged requests, which must be refused


async def change_foreign_jobs(client: HostileClient) -> None:
    """Cancel and retry other tenants' jobs with its own token."""
    for job in await _list_foreign_jobs(client):
        for action in ("cancel", "retry"):
            await client.forge(f"foreign_{action}", job, f"/jobs/{job}/{action}")


async def forge_worker_calls(client: HostileClient) -> None:
    """End other tenants' jobs: with its own token, and as a worker that makes up the lease."""
    for job in await _list_foreign_jobs(client):
        lease = {"attempt_no": client.chance.randint(1, 3), "lease_token": str(uuid4())}
        error = {"type": "Forged", "message": "forged"}
        chunks = [{"seq": 0, "stream": "log", "text": "forged"}]
        for action, more in (
            ("complete", {"output": "forged"}),
            ("fail", {"error": error}),
            ("release", {}),
            ("heartbeat", {}),
            ("progress", {"percent": 99, "message": "forged"}),
            ("logs", {"chunks": chunks}),
        ):
            path, body = f"/worker/jobs/{job}/{action}", {**lease, **more}
            await client.forge(f"own_token_{action}", job, path, body)
            await client.forge(f"made_up_lease_{action}", job, path, body, token=client.access.worker_token)


async def _list_foreign_jobs(client: HostileClient) -> list[UUID]:
    """The ids of jobs of another tenant, as if they had been leaked: running ones, if there are any."""
    token = client.access.tokens[client.chance.choice(scenario.TENANTS)]
    response = await client.send("GET", "/jobs?status=running&limit=3", token=token)
    if response is None or not response.is_success:
        return []
    return [UUID(one["id"]) for one in response.json()["items"]]


def _workflow(key: str, input_schema: dict[str, Any]) -> dict[str, Any]:
    steps = [{"name": "a", "definition": scenario.QUICK, "payload": {"n": 1}}]
    return {"key": key, "input_schema": input_schema, "steps": steps}


ATTACKS: Sequence[Attack] = (
    publish_costly_schema,
    publish_costly_pattern,
    multiply_payload,
    enqueue_large,
    enqueue_deep,
    add_costly_triggers,
    flood_events,
    flood_jobs,
    open_idle_sockets,
    guess_tokens,
    change_foreign_jobs,
    forge_worker_calls,
)


async def run_attacks(seed: int, stop: asyncio.Event) -> None:
    """Attack in turns, in a new order each, until `stop` is set."""
    chance = random.Random(seed)  # noqa: S311
    client = HostileClient(read_access(), HistoryWriter.of_process("hostile"), chance)
    stopped = asyncio.create_task(stop.wait())
    print("ready", flush=True)  # noqa: T201 - the site waits for it
    try:
        while not stop.is_set():
            for attack in chance.sample(ATTACKS, len(ATTACKS)):
                running = asyncio.create_task(attack(client))
                await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
                if stop.is_set():
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
                    return
                running.result()
                await asyncio.wait([stopped], timeout=chance.uniform(*PAUSE_SECONDS))
    finally:
        await client.close()


async def _main(seed: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run_attacks(seed, stop)


def main() -> None:
    parser = argparse.ArgumentParser(description="The hostile client of fairlead chaos.")
    parser.add_argument("--seed", type=int, required=True, help="Decides the order of its attacks.")
    asyncio.run(_main(parser.parse_args().seed))


if __name__ == "__main__":
    main()
