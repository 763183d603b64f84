"""Agents: the cost of 500 waiting agents for the server and the database, and the delay until one gets its job."""

import asyncio
import resource
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from fairlead.actions import access, agents, hosts
from fairlead.bench.drain_tools import open_drain_bench, run_server, run_workers
from fairlead.bench.idle import count_transactions
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.db.database import Database
from fairlead.db.scratch import settle_server
from fairlead.db.tx import Tx
from fairlead.library.app import Fairlead
from fairlead.model.access import Principal, Role
from fairlead.settings import Settings
from fairlead.store import tenants

AGENTS = 500
JOBS = 100
IDLE_SECONDS = 0.01
# Longer than a long poll, so that each agent polls again in this time.
SECONDS = 30.0
# An idle connection reports its transactions to the statistics after ten seconds.
TOLD_SECONDS = 10.5
LONGEST_SECONDS = 60
AT_ONCE = 50
MOST_BYTES = 300 * 1024 * 1024
MOST_QUERIES = 5


class BenchEnrolment(msgspec.Struct, frozen=True):
    """An agent's host, token and session."""

    host_id: UUID
    secret: str
    session_id: UUID


class BenchAgent(asyncio.Protocol):
    """A minimal agent: one connection, on which it polls again after each answer."""

    def __init__(self, enrolled: BenchEnrolment) -> None:
        self._enrolled = enrolled
        self._data = b""
        self._answer: asyncio.Future[Any] | None = None
        self.given: asyncio.Queue[Any] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.poll()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the workload: a closed connection would distort the figures."""
        self.given.put_nowait(exc or ConnectionError("the server closed the connection"))

    def poll(self) -> None:
        """Wait for a job."""
        self._send("GET", f"/jobs?session={self._enrolled.session_id}&wait=25")

    async def report(self, given: Any, what: str, **body: Any) -> Any:
        """Send a request about a job, between two polls."""
        self._answer = asyncio.get_running_loop().create_future()
        body |= {"attempt_no": given["attempt_no"], "lease_token": given["lease_token"]}
        self._send("POST", f"/jobs/{given['job_id']}/{what}", msgspec.json.encode(body))
        return await self._answer

    def data_received(self, data: bytes) -> None:
        """Parse an answer."""
        self._data += data
        head, ended, body = self._data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if not ended or len(body) < length:
            return
        self._data = b""
        status, answer = int(head[9:12]), msgspec.json.decode(body)
        waiting, self._answer = self._answer, None
        if waiting is not None:
            waiting.set_result(answer)
        elif status != 200:
            self.given.put_nowait(RuntimeError(f"a poll was answered with {status}: {body[:200]!r}"))
        elif answer["items"]:
            self.given.put_nowait(answer["items"][0])
        else:
            self.poll()

    async def job(self) -> Any:
        """The next offered job."""
        job = await self.given.get()
        if isinstance(job, Exception):
            raise job
        return job

    def _send(self, method: str, path: str, body: bytes = b"") -> None:
        request = (
            f"{method} /api/v1/agent/hosts/{self._enrolled.host_id}{path} HTTP/1.1\r\nHost: fairlead\r\n"
            f"Authorization: Bearer {self._enrolled.secret}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self.transport.write(request.encode() + body)  # type: ignore[attr-defined]


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """The median time from an enqueue to the start by its host's agent, compared with a local worker."""
    _raise_file_limit()
    async with open_drain_bench(settings) as fl, run_server(settings) as (server, port):
        progress(f"enrolling {AGENTS} agents")
        enrolled = await fl.database.transact(_enrol)
        async with _start_agents(enrolled, port) as waiting:
            rate = await _measure_idle(url, settings, progress)
            held = _read_memory(server.pid)
            remote, answered, local = await _measure_delays(fl, settings, enrolled[0], waiting[0], progress)
            if any(not one.given.empty() for one in waiting):
                raise RuntimeError("not every agent waited to the end")
    value, limit = 1000 * statistics.median(remote), 1000 * statistics.median(local)
    note = (
        f"p50, its poll answered after {1000 * statistics.median(answered):.1f}; limit: a local worker, alternating; {AGENTS} agents waiting: the server has {held / 2**20:.0f} MB (allowed: "
        f"{MOST_BYTES // 2**20}) and makes {rate:.2f} transactions/s (allowed: {MOST_QUERIES}), by pg_stat_database over "
        f"{SECONDS:.0f} s"
    )
    return Measure("agents", round(value, 3), "ms", round(limit, 3), round(value / limit, 3), note)


async def _enrol(tx: Tx) -> list[BenchEnrolment]:
    """Create hosts of the tenant, each with an agent."""
    principal = Principal("bench", Role.SUPER_ADMIN)
    tenant_id = (await tenants.get_ids(tx, [TENANT]))[TENANT]
    enrolled = []
    for number in range(AGENTS):
        host = await hosts.add(tx, principal, tenant_id=tenant_id, name=f"host {number}")
        made = await access.create_token(
            tx, principal, name=host.name, role=Role.AGENT, tenant_id=tenant_id, host_id=host.id
        )
        agent = Principal(host.name, Role.AGENT, tenant_id, host.id)
        session = await agents.begin_session(tx, agent, host.id, version="bench")
        enrolled.append(BenchEnrolment(host.id, made.secret, session.id))
    return enrolled


@asynccontextmanager
async def _start_agents(enrolled: list[BenchEnrolment], port: int) -> AsyncIterator[list[BenchAgent]]:
    """Start all agents polling, in groups."""
    loop = asyncio.get_running_loop()
    waiting: list[BenchAgent] = []
    try:
        for number, one in enumerate(enrolled, 1):
            _, agent = await loop.create_connection(lambda one=one: BenchAgent(one), "127.0.0.1", port)  # type: ignore[misc]
            waiting.append(agent)
            if number % AT_ONCE == 0:
                await asyncio.sleep(1)
        yield waiting
    finally:
        for agent in waiting:
            agent.transport.close()


async def _measure_idle(url: str, settings: Settings, progress: Progress) -> float:
    """Transactions per second of all processes while no job runs."""
    async with Database(url, replace(settings, pool_size=1)) as database:
        await settle_server(url)  # or autovacuum's transactions would be counted too
        progress("waiting until the server is idle")
        await asyncio.sleep(TOLD_SECONDS)
        await count_transactions(database)
        before, begun = await count_transactions(database), time.perf_counter()
        progress(f"watching {AGENTS} agents wait for {SECONDS:g} s")
        await asyncio.sleep(SECONDS)
        after = await count_transactions(database)
        return (after - before - 1) / (time.perf_counter() - begun)


async def _measure_delays(
    fl: Fairlead, settings: Settings, enrolled: BenchEnrolment, agent: BenchAgent, progress: Progress
) -> tuple[list[float], list[float], list[float]]:
    """Seconds from before an enqueue until the agent may start the job, until its poll was answered, and until a local handler starts."""
    remote, answered, local = [], [], []
    async with run_workers(settings):
        await (await fl.enqueue("stamp", tenant=TENANT)).result(timeout=60)  # the worker is up
        for number in range(JOBS):
            progress(f"{number} of {JOBS} jobs")
            await asyncio.sleep(IDLE_SECONDS)
            begun = time.time()
            job = await fl.enqueue("stamp", tenant=TENANT)
            local.append(await job.result(timeout=60) - begun)
            await asyncio.sleep(IDLE_SECONDS)
            begun = time.time()
            await fl.enqueue("unserved", tenant=TENANT, host_id=enrolled.host_id)
            async with asyncio.timeout(LONGEST_SECONDS):
                given = await agent.job()
            answered.append(time.time() - begun)
            accepted = await agent.report(given, "accept")
            remote.append(time.time() - begun)
            answer = await agent.report(given, "result", status="succeeded")
            if "lease_seconds" not in accepted or answer.get("status") != "succeeded":
                raise RuntimeError(f"a job was accepted with {accepted} and ended with {answer}")
            agent.poll()
    return remote, answered, local


def _raise_file_limit() -> None:
    """Raise the limit of open files, which the server inherits: each agent needs a connection at both ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * AGENTS + 500
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def _read_memory(pid: int) -> float:
    """The bytes of memory that a process holds; NaN without /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    except OSError:
        return float("nan")
    return float(pages * resource.getpagesize())
