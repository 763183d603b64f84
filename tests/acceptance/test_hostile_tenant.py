"""One tenant attacks by everything that its own people may send; another one works beside it and notices nothing.

Real processes: a server, a worker and a scheduler. Before there were bounds, most of these attacks stopped every tenant's
requests for seconds up to for ever, and took gigabytes.

A request that takes long proves nothing on a busy machine, where all processes stand still at times. So its delay counts only
as far as a process of Fairlead or PostgreSQL used the processor meanwhile: it did something else than to answer.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from fairlead.handlers.supervisor import find_descendants
from tests import given
from tests.acceptance.fleet import LONG, QUICK, Fleet, WorkerUnderTest, running
from tests.meter import Speed
from tests.processes import FAIRLEAD, free_port, run, until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

# On the machine of the budget. The attacks take several times as much of the processor, and took all of it before they let
# others through.
MOST_DELAY_SECONDS = 1.5
QUIET_REQUESTS = 4
MOST_MEMORY = 400 << 20
REST_SECONDS = 0.05
ITEMS, PAGE, TRIGGERS = 20, 45, 30
BIG: list[dict[str, Any]] = [{} for _ in range(60_000)]


@dataclass
class Api:
    """The HTTP API, as one token's program calls it."""

    port: int
    token: str

    def __call__(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"http://127.0.0.1:{self.port}/api/v1{path}"
        return httpx2.request(method, url, json=body, headers=headers, timeout=5 * SECONDS)


@dataclass
class Neighbour:
    """Another tenant's program: it enqueues and reads all the time, and remembers how long that took."""

    api: Api
    measure: Callable[[], "Sample"]
    # before and after each request
    samples: list["Sample"] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _work(self) -> None:
        while not self._over.wait(REST_SECONDS):
            for method, path, body in (
                ("POST", "/jobs", {"definition_key": "echo", "payload": {"n": 1}}),
                ("GET", "/jobs?limit=20", None),
            ):
                begun = self.measure()
                answer = self.api(method, path, body)
                ended = self.measure()
                self.samples += [begun, ended]
                self.delays.append(begun.delay_until(ended))
                if answer.status_code >= 300:
                    self.failures.append(answer.text)
                elif method == "POST":
                    self.jobs.append(answer.json()["id"])

    def delay_between(self, begun_at: float, ended_at: float) -> float:
        """The delay from the last sample before the one moment to the first after the other."""
        begun = max((one for one in self.samples if one.at <= begun_at), key=lambda one: one.at)
        ended = min((one for one in self.samples if one.at >= ended_at), key=lambda one: one.at)
        return min(ended_at - begun_at, begun.delay_until(ended))


class Sample(NamedTuple):
    """A moment, and how many seconds each process of Fairlead and PostgreSQL had used the processor by then."""

    at: float
    used: Mapping[int, float]

    def delay_until(self, later: "Sample") -> float:
        busy = max(seconds - self.used.get(pid, 0.0) for pid, seconds in later.used.items())
        return min(later.at - self.at, busy)


class Town(Fleet):
    """A server, a worker and a scheduler, with a tenant that attacks and one that works."""

    port = 0
    _pids: Sequence[int] = ()
    _postmaster = 0

    @contextlib.contextmanager
    def open_processes(self) -> Iterator[list[WorkerUnderTest]]:
        self.port = free_port()
        # No lease is to be lost here, and a server that stands still for two seconds must not lose its transactions.
        long = {"FAIRLEAD_LEASE_SECONDS": str(LONG)}
        env = {"FAIRLEAD_DATABASE_URL": self.url} | QUICK | long
        with (
            self.worker("--workflows", **long) as worker,
            running([FAIRLEAD, "scheduler"], env, says="firing schedules") as scheduler,
            running([FAIRLEAD, "serve", "--port", str(self.port)], env, says="serving") as server,
        ):
            until(self._answers, "the server")
            self._pids = [one.pid for one in (worker, scheduler, server)]
            self._postmaster = self._read_postmaster()
            yield [worker, scheduler, server]

    def _read_postmaster(self) -> int:
        [(folder,)] = self.rows("show data_directory")
        return int(Path(folder, "postmaster.pid").read_text().splitlines()[0])

    def measure(self) -> Sample:
        pids = [*self._pids, *find_descendants(self._postmaster)]
        return Sample(time.time(), {pid: read_used_seconds(pid) for pid in pids})

    def _answers(self) -> bool:
        with contextlib.suppress(httpx2.TransportError):
            return bool(
                httpx2.get(f"http://127.0.0.1:{self.port}/healthz", timeout=SECONDS).status_code == 200
            )
        return False

    def api(self, tenant: str, role: str) -> Api:
        env = {"FAIRLEAD_DATABASE_URL": self.url}
        made = run("tokens", "create", "t", "--role", role, "--tenant", tenant, "--json", env=env)
        return Api(self.port, json.loads(made.stdout)["secret"])


def read_used_seconds(pid: int) -> float:
    """How long a process used the processor."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it has ended
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# Attacks: each answers with what the server said.

Attack = Callable[[Api], list[httpx2.Response]]


def schema_bomb(api: Api) -> list[httpx2.Response]:
    """Forty definitions that name the next one twice: 2^40 checks."""
    defs: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {
        "d40": {"type": "integer"}
    }
    schema = {"$defs": defs, "$ref": "#/$defs/d0"}
    steps = [{"name": "a", "definition": "echo", "payload": {"n": 1}}]
    published = api("POST", "/workflows", {"key": "bomb", "input_schema": schema, "steps": steps})
    assert (published.status_code, published.json()["code"]) == (422, "workflow_invalid")
    return [published, api("POST", "/workflows/bomb/runs", {"input": "no"})]


def for_each_bomb(api: Api) -> list[httpx2.Response]:
    """A job with a large payload for each of many items."""
    step = {
        "name": "a",
        "definition": "anything",
        "for_each": "{{input.items}}",
        "payload": {"big": "{{input.big}}"},
    }
    published = api("POST", "/workflows", {"key": "many", "steps": [step]})
    assert published.status_code == 201, published.text
    given_input = {"items": list(range(ITEMS)), "big": BIG}
    return [published, api("POST", "/workflows/many/runs", {"input": given_input})]


def page_bomb(api: Api) -> list[httpx2.Response]:
    """Large payloads in one body, and in one page."""
    body = {"jobs": [{"definition_key": "anything", "payload": {"big": BIG}}] * PAGE}
    return [api("POST", "/jobs/bulk", body), api("GET", "/jobs?limit=1000")]


def trigger_bomb(api: Api) -> list[httpx2.Response]:
    """One large event for many triggers."""
    answers = [
        api(
            "POST",
            "/jobs/triggers",
            {
                "label": f"t{n}",
                "trigger_type": "event",
                "event_name": "boom",
                "definition_key": "anything",
                "payload_template": {"big": "{{event.big}}"},
            },
        )
        for n in range(TRIGGERS)
    ]
    assert {one.status_code for one in answers} == {201}, answers[-1].text
    return [*answers, api("POST", "/events", {"name": "boom", "data": {"big": BIG}})]


def slow_clients(api: Api) -> list[httpx2.Response]:
    """Connections that send the beginning of a request."""
    with contextlib.ExitStack() as opened:
        for _ in range(200):
            one = opened.enter_context(socket.create_connection(("127.0.0.1", api.port), timeout=SECONDS))
            one.sendall(b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        return [api("GET", "/jobs?limit=1")]


def guesses(api: Api) -> list[httpx2.Response]:
    """Tokens that do not exist, from the address that the neighbour has too."""
    return [Api(api.port, f"flt_{n:040d}")("GET", "/jobs?limit=1") for n in range(40)]


ACCEPTABLE = {*range(200, 500), 503}
ATTACKS: tuple[Attack, ...] = (
    schema_bomb,
    for_each_bomb,
    page_bomb,
    trigger_bomb,
    slow_clients,
    guesses,
)


@pytest.fixture
def town(database_url: str, tmp_path: Path) -> Iterator[Town]:
    with Town(database_url, tmp_path) as opened:
        yield opened
        opened.is_consistent()


@pytest.mark.timeout(10 * SECONDS)
def test_a_tenant_that_attacks_is_not_noticed_by_another(town: Town) -> None:
    with town.open_processes() as processes:
        attacker = town.api(given.TENANT, "tenant_admin")
        neighbour = Neighbour(town.api(given.OTHER, "operator"), town.measure)
        with neighbour.working():
            until(lambda: len(neighbour.jobs) >= QUIET_REQUESTS, "the neighbour's first requests")
            speed = Speed()
            for attack in ATTACKS:
                speed.measure()
                # what is too much may be refused, as on a machine too busy to keep a transaction's time
                wrong = [one.text[:500] for one in attack(attacker) if one.status_code not in ACCEPTABLE]
                assert wrong == [], attack.__name__
            last = len(neighbour.jobs)
            until(lambda: len(neighbour.jobs) > last, "the neighbour to go on")
        until(lambda: not _waiting(town), "the neighbour's jobs to run")
        neighbour.samples.append(town.measure())

        assert neighbour.failures == []
        waits = [neighbour.delay_between(*one) for one in _waits(town)]
        assert max(*neighbour.delays, *waits) * speed.measure() < MOST_DELAY_SECONDS
        assert [one.most_memory for one in processes if one.most_memory > MOST_MEMORY] == []


def _waiting(town: Town) -> list[tuple[Any, ...]]:
    return town.rows(
        "select 1 from fairlead.jobs j join fairlead.tenants t on t.id = j.tenant_id "
        "where t.slug = %s and j.status in ('queued', 'running')",
        given.OTHER,
    )


def _waits(town: Town) -> list[tuple[float, float]]:
    """When each of the neighbour's jobs was queued, and when a worker began it."""
    found = town.rows(
        "select extract(epoch from j.queued_at)::float8, extract(epoch from j.started_at)::float8 from fairlead.jobs j "
        "join fairlead.tenants t on t.id = j.tenant_id where t.slug = %s",
        given.OTHER,
    )
    return [(float(queued_at), float(started_at)) for queued_at, started_at in found]
