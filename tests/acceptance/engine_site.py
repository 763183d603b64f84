"""A database, a server, a bridge, a broker and a worker behind it: what the tests of delivery engines play with."""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, LiteralString, Self
from uuid import uuid4

import httpx2
import psycopg
import pytest

from fairlead import Settings
from fairlead.actions import access, definitions, tenants
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from tests import given
from tests.acceptance.engine_clients import OPEN, Address, Client, Delivery, Http
from tests.acceptance.fleet import LONG, QUICK, WorkerUnderTest, running
from tests.brokers import NATS_MAX_PAYLOAD, Broker, CloudTasksEmulator, MotoServer, NatsServer
from tests.processes import FAIRLEAD, free_port
from tests.waiting import SECONDS

BROKERS: dict[str, type[Broker]] = {"nats": NatsServer, "sqs": MotoServer, "push": CloudTasksEmulator}
ENGINES = tuple(BROKERS)
OVER = frozenset({"succeeded", "failed", "dead_letter", "canceled"})
SECRETS = {"SQS_SECRET": "any", "PUSH_TOKEN": "pushed"}
# Longer than a busy machine takes for a check: no message is delivered again by itself.
ACK_WAIT_SECONDS = 100
BACKOFF = {"base_seconds": 0.05, "jitter": 0}


def skip_without(engine: str) -> None:
    """Skip a test whose broker cannot be had here."""
    if why := BROKERS[engine].find_missing():
        pytest.skip(why)


def name_queue(engine: str, prefix: str, what: str) -> str:
    """The queue of a definition: `jobs`, which workers take from, or `idle`, which they do not."""
    if engine == "nats":
        return f"{prefix}.{what}"
    # the emulator never dispatches a paused queue; no worker takes from the queue `idle` of SQS
    return f"{'paused-' if what == 'idle' and engine == 'push' else ''}{prefix}-{what}"


def describe_engine(engine: str, *, prefix: str, broker_port: int, worker_port: int) -> str:
    """The options of the engine's table in fairlead.toml."""
    options: dict[str, Any]
    if engine == "nats":
        options = {
            "driver": "nats",
            "servers": [f"nats://127.0.0.1:{broker_port}"],
            "stream": prefix,
            "subjects": [f"{prefix}.jobs.>", f"{prefix}.idle.>"],
            "results_stream": f"{prefix}-results",
            "results_subject": f"{prefix}.results",
            "cancel_subject": f"{prefix}.cancel",
            "redeliver_after_seconds": 2,
            "lost_after_seconds": 1,
            "timeout_seconds": 2,
        }
    elif engine == "sqs":
        options = {
            "driver": "sqs",
            "endpoint_url": f"http://127.0.0.1:{broker_port}",
            "region": "eu-west-1",
            "access_key_id": "any",
            "secret_access_key": "env:SQS_SECRET",
            "results_queue": f"{prefix}-results",
            "create_queues": True,
            "max_message_bytes": NATS_MAX_PAYLOAD,
            "redeliver_after_seconds": 2,
            "wait_seconds": 1,
        }
    else:
        options = {
            "driver": "cloud_tasks",
            "project": "test",
            "location": "here",
            "url": f"http://127.0.0.1:{worker_port}/{{tenant}}/{{definition}}",
            "token": "env:PUSH_TOKEN",
            "endpoint": f"127.0.0.1:{broker_port}",
            "insecure": True,
            "max_message_bytes": NATS_MAX_PAYLOAD,
            "lost_after_seconds": 1,
            "timeout_seconds": 2,
        }
    # TOML reads what JSON writes of texts, numbers, lists and booleans
    return "\n".join(f"{name} = {json.dumps(value)}" for name, value in options.items())


class Site:
    """One engine, from the job's enqueue over HTTP to the worker behind the engine."""

    def __init__(self, engine: str, url: str, folder: Path) -> None:
        self.engine = engine
        self.url = url
        self.folder = folder
        self.broker = BROKERS[engine](folder)
        self.prefix = f"t{uuid4().hex[:10]}"
        self._port = free_port()
        self._worker_port = free_port()
        self.api = f"http://127.0.0.1:{self._port}/api/v1"
        self._config = folder / "fairlead.toml"
        self._processes = contextlib.ExitStack()
        self._tokens: dict[str, str] = {}
        self.bridges: list[WorkerUnderTest] = []
        self.address: Address
        self._http: httpx2.AsyncClient

    # Setting up

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.broker.start)
        async with Database(self.url, Settings(database_url=self.url)) as database:
            await database.transact(self._define)
        port = self._worker_port if self.engine == "push" else self.broker.port
        token = self._tokens["worker"]
        self.address = Address(self.engine, port, self.prefix, self.api, token, ACK_WAIT_SECONDS)
        options = describe_engine(
            self.engine, prefix=self.prefix, broker_port=self.broker.port, worker_port=self._worker_port
        )
        self._config.write_text(f"[engines.main]\n{options}\n")
        self._processes.enter_context(self._run("serve", "--port", str(self._port), says="serving"))
        headers = {"Authorization": f"Bearer {self._tokens['admin']}"}
        self._http = httpx2.AsyncClient(base_url=self.api, headers=headers, timeout=SECONDS)
        self.start_bridge()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._processes.close()
        self.broker.kill()
        await self._http.aclose()

    async def _define(self, tx: Tx) -> None:
        for key, queue in (("carried", "jobs"), ("idle", "idle")):
            values = {
                "kind": "delivered",
                "engine": "main",
                "queue": name_queue(self.engine, self.prefix, queue),
                "timeout_seconds": 600,
                "max_attempts": 3,
                "backoff": BACKOFF,
            }
            await definitions.patch(tx, given.TESTER, key, values)
        found = {one.slug: one.id for one in await tenants.list_all(tx, given.TESTER)}
        for name, role, tenant in (("admin", Role.TENANT_ADMIN, given.TENANT), ("worker", Role.WORKER, None)):
            made = await access.create_token(
                tx, given.TESTER, name=name, role=role, tenant_id=found[tenant] if tenant else None
            )
            self._tokens[name] = made.secret

    @contextmanager
    def _run(self, *argv: str, says: str) -> Iterator[WorkerUnderTest]:
        env = {
            **QUICK,
            **SECRETS,
            "FAIRLEAD_LEASE_SECONDS": str(LONG),
            "FAIRLEAD_DATABASE_URL": self.url,
            "FAIRLEAD_CONFIG": str(self._config),
        }
        with running([FAIRLEAD, *argv], env, says=says) as process:
            yield process

    # Bridges and workers

    def start_bridge(self) -> WorkerUnderTest:
        bridge = self._processes.enter_context(self._run("bridge", says="delivering through main"))
        self.bridges.append(bridge)
        return bridge

    def open_worker(
        self, on_delivery: Callable[[Delivery], Awaitable[None]]
    ) -> AbstractAsyncContextManager[Client]:
        """A worker behind the engine, in this process."""
        return OPEN[self.engine](self.address, on_delivery)

    def open_http(self) -> Http:
        return Http(self.address)

    # Jobs

    async def ask(self, method: str, path: str, **body: Any) -> Any:
        answer = await self._http.request(method, path, json=body or None)
        assert answer.is_success, answer.text
        return answer.json()

    async def enqueue(self, definition: str, **payload: Any) -> str:
        job = await self.ask("POST", "/jobs", definition_key=definition, payload=payload)
        return str(job["id"])

    async def wait_for(self, job_id: str, reached: Callable[[dict[str, Any]], bool], what: str) -> Any:
        """The job, once it is so."""
        until = time.monotonic() + SECONDS
        while True:
            job = await self.ask("GET", f"/jobs/{job_id}")
            if reached(job):
                return job
            if time.monotonic() > until:
                error = AssertionError(f"waited for {what}; the job is {job}")
                error.add_note(f"The bridge said: {self.bridges[-1].said[-3000:]}")
                raise error
            await asyncio.sleep(0.05)

    async def end_of(self, job_id: str) -> Any:
        return await self.wait_for(job_id, lambda job: job["status"] in OVER, "its end")

    async def attempts_of(self, job_id: str) -> list[str]:
        """How its attempts ended."""
        found = (await self.ask("GET", f"/jobs/{job_id}/attempts"))["items"]
        return [one["status"] for one in found]

    async def is_handed_over(self, job_id: str) -> None:
        """Wait until the engine has the job's message."""
        query: LiteralString = (
            "select from fairlead.handovers where job_id = %s and handed_over_at is not null"
        )
        async with asyncio.timeout(SECONDS):
            while not await asyncio.to_thread(self.rows, query, [job_id]):
                await asyncio.sleep(0.05)

    async def exceed_time_limit(self, job_id: str) -> None:
        """Let the time limit of the job's attempt, which its engine has, be over."""
        await self.is_handed_over(job_id)
        await asyncio.to_thread(
            self.rows,
            "update fairlead.handovers set handed_over_at = handed_over_at - interval '1 hour' where job_id = %s returning 1",
            [job_id],
        )

    def rows(self, query: LiteralString, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query, params).fetchall()
