"""Attacks that an earlier version could not bear, and their like: each as many requests at once, from a seed."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

ANYTHING = "hostile.anything"
SLOW = "hostile.slow"
STEPS = "hostile.steps"
ASKS = "hostile.asks"
BIG_EVENT = "hostile.big"
VALUES = 80_000
SLOW_SECONDS = 8.0
SOCKETS = 150


class Attacker(Protocol):
    """What an attack may use."""

    chance: random.Random
    host: str
    port: int

    def header(self, role: str) -> str:
        """The value of the header Authorization."""

    async def send(self, role: str, method: str, path: str, body: Any = None) -> bytes:
        """Send a request and read the response; empty if there was none."""


Attack = Callable[[Attacker], Coroutine[Any, Any, None]]


def make_values(chance: random.Random) -> list[Any]:
    """Many small values: little text, and much work."""
    number = chance.choice((2000, VALUES // 4, VALUES))
    return [chance.choice(({}, 0, "", [], None, {"a": 1}))] * number


async def _at_once(attacker: Attacker, number: int, *request: Any) -> None:
    await asyncio.gather(*(attacker.send(*request) for _ in range(number)))


async def multiply_inputs(attacker: Attacker) -> None:
    """Workflow runs with a large payload for each of many items, twelve at once."""
    step = {
        "name": "a",
        "definition": ANYTHING,
        "for_each": "{{input.items}}",
        "payload": {"value": "{{input.big}}"},
    }
    await attacker.send("tenant_admin", "POST", "/workflows", {"key": "many", "steps": [step]})
    given = {"items": list(range(attacker.chance.choice((10, 400)))), "big": make_values(attacker.chance)}
    await _at_once(attacker, 12, "operator", "POST", "/workflows/many/runs", {"input": given})


async def multiply_outputs(attacker: Attacker) -> None:
    """A workflow whose second step makes many jobs of the first one's output: a worker renders them."""
    steps = [
        {"name": "a", "definition": ANYTHING, "payload": {"value": "{{input.big}}"}},
        {
            "name": "b",
            "definition": ANYTHING,
            "after": ["a"],
            "for_each": "{{input.items}}",
            "payload": {"value": "{{steps.a.output.value}}"},
        },
    ]
    await attacker.send("tenant_admin", "POST", "/workflows", {"key": "twice", "steps": steps})
    given = {"items": list(range(attacker.chance.choice((10, 400)))), "big": make_values(attacker.chance)}
    await _at_once(attacker, 4, "operator", "POST", "/workflows/twice/runs", {"input": given})


async def fire_many_triggers(attacker: Attacker) -> None:
    """One large event for eighty triggers."""
    for number in range(80):
        body = {
            "label": f"big {number}",
            "trigger_type": "event",
            "event_name": BIG_EVENT,
            "definition_key": ANYTHING,
            "dedupe_window_seconds": 0,
            "payload_template": {"value": "{{event.big}}"},
            "filter": {f"field_{n}": {"ne": n} for n in range(80)},
        }
        await attacker.send("tenant_admin", "POST", "/jobs/triggers", body)
    body = {"name": BIG_EVENT, "data": {"big": make_values(attacker.chance)}}
    await _at_once(attacker, 3, "application", "POST", "/events", body)


async def load_many_values(attacker: Attacker) -> None:
    """Bulk loads of up to 16 MB of small values."""
    payload = {"value": make_values(attacker.chance)}
    number = min(63, 15_000_000 // len(msgspec.json.encode(payload)))
    body = {"jobs": [{"definition_key": ANYTHING, "payload": payload}] * number}
    await _at_once(attacker, attacker.chance.choice((1, 6)), "operator", "POST", "/jobs/bulk", body)


async def load_many_jobs(attacker: Attacker) -> None:
    """Bulk loads of ten thousand jobs with keys and tags."""
    jobs = [
        {"definition_key": ANYTHING, "payload": {}, "tags": [f"t{n % 500}", f"u{n}"], "dedupe_key": f"k{n}"}
        for n in range(10_000)
    ]
    await _at_once(attacker, 3, "operator", "POST", "/jobs/bulk", {"jobs": jobs})


async def search_payloads(attacker: Attacker) -> None:
    """Searches that look into every payload, sixteen at once."""
    contained = quote('{"value":[' + ",".join(["{}"] * attacker.chance.choice((1, 1000))) + "]}")
    queries = [
        f"/jobs?payload_contains={contained}",
        "/jobs?q=" + "zz" * 20,
        "/jobs?error=" + "zz" * 20,
        "/jobs?payload=" + quote('{"value":"zz"}'),
        "/jobs?status=failed&q=%25%25%25",
    ]
    await _at_once(attacker, 16, "viewer", "GET", attacker.chance.choice(queries))


async def read_large_pages(attacker: Attacker) -> None:
    """The largest pages, thirty-two at once."""
    pages = ["/jobs?limit=1000", "/events?limit=1000", "/audit?limit=1000", "/usage?by=definition&per=hour"]
    await _at_once(attacker, 32, "viewer", "GET", attacker.chance.choice(pages))


async def publish_costly_schema(attacker: Attacker) -> None:
    """Definitions that name the next one twice, and a pattern that backtracks."""
    levels = attacker.chance.choice((6, 12, 40))
    names: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    nested = {"$defs": {**names, f"d{levels}": {"type": "integer"}}, "$ref": "#/$defs/d0"}
    pattern = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^(a+)+$"}}}
    items = {
        "type": "object",
        "properties": {"big": {"type": "array", "items": {"anyOf": [{"minLength": 3}] * 20}}},
    }
    unique = {"type": "object", "properties": {"big": {"type": "array", "uniqueItems": True}}}
    schema = attacker.chance.choice((nested, pattern, items, unique))
    steps = [{"name": "a", "definition": ANYTHING, "payload": {}}]
    await attacker.send(
        "tenant_admin", "POST", "/workflows", {"key": "s", "input_schema": schema, "steps": steps}
    )
    given = attacker.chance.choice(
        ("no", {"text": "a" * 50_000 + "!"}, {"big": make_values(attacker.chance)})
    )
    await _at_once(attacker, 8, "operator", "POST", "/workflows/s/runs", {"input": given})


async def publish_large_workflow(attacker: Attacker) -> None:
    """A workflow of a thousand steps, each after all before it, and runs of it."""
    number = attacker.chance.choice((50, 1000))
    steps = [
        {
            "name": f"s{n}",
            "definition": ANYTHING,
            "payload": {},
            "after": [f"s{m}" for m in range(max(0, n - 40), n)],
        }
        for n in range(number)
    ]
    await attacker.send("tenant_admin", "POST", "/workflows", {"key": "large", "steps": steps})
    await _at_once(attacker, 4, "operator", "POST", "/workflows/large/runs", {})
    await _at_once(attacker, 4, "viewer", "GET", "/workflows/large")


async def run_many_steps(attacker: Attacker) -> None:
    """Durable functions with many and with large steps."""
    payload = attacker.chance.choice(({"steps": 500, "size": 10}, {"steps": 20, "size": 250_000}))
    body = {"jobs": [{"definition_key": STEPS, "payload": payload}] * 20}
    await attacker.send("operator", "POST", "/jobs/bulk", body)
    await _at_once(attacker, 8, "viewer", "GET", "/jobs?limit=100")


async def ask_many_approvals(attacker: Attacker) -> None:
    """A flood of approvals, and answers to them."""
    await attacker.send(
        "operator", "POST", "/jobs/bulk", {"jobs": [{"definition_key": ASKS, "payload": {}}] * 300}
    )
    found = msgspec.json.decode(await attacker.send("viewer", "GET", "/approvals?limit=100") or b"{}")
    for approval in found.get("items", [])[:30]:
        path = f"/approvals/{approval['id']}/approve"
        await attacker.send("operator", "POST", path, {"values": {"text": "x" * 50_000}})


async def enqueue_at_full_speed(attacker: Attacker) -> None:
    """As many requests as fit through forty connections."""
    body = {"definition_key": ANYTHING, "payload": {"value": 1}, "priority": -1000}
    await _at_once(attacker, 400, "operator", "POST", "/jobs", body)


async def take_all_slots(attacker: Attacker) -> None:
    """Jobs that take long."""
    body = {"jobs": [{"definition_key": SLOW, "payload": {"seconds": 1.0}, "priority": -1000}] * 500}
    await attacker.send("operator", "POST", "/jobs/bulk", body)


async def guess_tokens(attacker: Attacker) -> None:
    """Tokens that do not exist."""
    await asyncio.gather(*(attacker.send(f"guess {n}", "GET", "/jobs?limit=1") for n in range(60)))


async def poll_as_ghosts(attacker: Attacker) -> None:
    """Claims in the names of workers that do not exist."""
    body = {"worker_id": "", "definitions": [ANYTHING], "limit": 100, "wait": 20}
    names = [f"ghost{attacker.chance.randrange(10**9)}:1:x" for _ in range(30)]
    await asyncio.gather(
        *(
            attacker.send("worker", "POST", "/worker/jobs/claim", {**body, "worker_id": name})
            for name in names
        )
    )


# Slow clients


async def _hold(attacker: Attacker, text: bytes, *, reads: bool) -> None:
    """Open many connections, send the same, and then do nothing for a while."""
    async with AsyncExitStack() as stack:
        for _ in range(SOCKETS):
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(attacker.host, attacker.port, limit=1024)
                stack.callback(writer.transport.abort)
                writer.write(text)
                if reads:
                    writer.transport.pause_reading()  # type: ignore[attr-defined]
                del reader
        await asyncio.sleep(SLOW_SECONDS)


async def send_slowly(attacker: Attacker) -> None:
    """Beginnings of headers, and of bodies."""
    header = f"Authorization: {attacker.header('operator')}\r\n"
    body = f"POST /api/v1/jobs/bulk HTTP/1.1\r\nHost: x\r\n{header}Content-Type: application/json\r\nContent-Length: 16000000\r\n\r\n"
    texts = [
        b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        body.encode() + b'{"jobs": [' + b" " * 60_000,
    ]
    await _hold(attacker, attacker.chance.choice(texts), reads=False)


async def read_slowly(attacker: Attacker) -> None:
    """Requests for the largest pages, whose responses are not read."""
    text = f"GET /api/v1/jobs?limit=1000 HTTP/1.1\r\nHost: x\r\nAuthorization: {attacker.header('viewer')}\r\n\r\n"
    await _hold(attacker, text.encode(), reads=True)


async def follow_logs(attacker: Attacker) -> None:
    """Long-lived responses."""
    found = msgspec.json.decode(await attacker.send("viewer", "GET", "/jobs?limit=20") or b"{}")
    ids = [job["id"] for job in found.get("items", [])]
    if ids:
        lines = f"Host: x\r\nAuthorization: {attacker.header('viewer')}\r\n\r\n"
        path = f"/api/v1/jobs/{attacker.chance.choice(ids)}/logs?follow=true"
        await _hold(attacker, f"GET {path} HTTP/1.1\r\n{lines}".encode(), reads=False)


ATTACKS: Mapping[str, Attack] = {
    attack.__name__: attack
    for attack in (
        multiply_inputs,
        multiply_outputs,
        fire_many_triggers,
        load_many_values,
        load_many_jobs,
        search_payloads,
        read_large_pages,
        publish_costly_schema,
        publish_large_workflow,
        run_many_steps,
        ask_many_approvals,
        enqueue_at_full_speed,
        take_all_slots,
        guess_tokens,
        poll_as_ghosts,
        send_slowly,
        read_slowly,
        follow_logs,
    )
}
