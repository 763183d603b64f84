"""Requests take turns between tenants: a flood of one leaves connections to the others."""

import asyncio
import json
import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from psycopg import AsyncConnection
from structlog.testing import capture_logs

import fairlead
from fairlead.model.access import GRANTS, Role
from fairlead.model.hooks.hook import Scheme
from fairlead.server.problems import CONSOLE, PREFIX
from fairlead.server.request_turns import RequestTurns
from fairlead.turns import loop
from fairlead.turns.connections import ConnectionTurns
from fairlead.turns.loop import LoopTurns
from fairlead.turns.owner import Owner, owner_of_task
from tests import given
from tests.console import page_matrix
from tests.given import OTHER
from tests.server import matrix
from tests.server.mcp_clients import call, client_of
from tests.server.test_hooks_api import hook
from tests.server.world import BASE, World, world_on
from tests.signing import signed
from tests.waiting import eventually

# What listens, and why its requests take turns, or need none.
LISTENING = {
    "server/app.py": "the API and the console: RequestTurns is the outermost part of every application",
    "cli/mcp.py": "a process of its own: each call of a tool is a request to the API, which takes its turn",
    "runtime/meter.py": "a worker's own metrics: a thread that reads counters, and asks no database",
}
LOCK = "select from fairlead.ready where job_id = %s for update"


async def test_requests_that_are_stuck_leave_connections_to_other_tenants(database_url: str) -> None:
    async with (
        world_on(database_url, lock_timeout_seconds=600, statement_timeout_seconds=600) as world,
        await AsyncConnection.connect(database_url) as locking,
    ):
        job_id = await given.queued_job(world.fl.database)
        await locking.execute(LOCK, [job_id])
        stuck = [asyncio.create_task(world.call("POST", f"/jobs/{job_id}/cancel")) for _ in range(20)]
        turns = world.fl.database.connection_turns
        await eventually(lambda: turns.waiting == 16 or None, "all but four to wait")

        answer = await world.call("GET", "/jobs", who="viewer", tenant=OTHER)
        page = await world.call("GET", f"{BASE}/readyz", who=None)

        assert (answer.status_code, page.status_code) == (200, 200)
        assert not any(request.done() for request in stuck)
        await locking.rollback()
        assert {answer.status_code for answer in await asyncio.gather(*stuck)} <= {200, 202, 409}
        metrics = (await world.call("GET", f"{BASE}/metrics", who="super_admin")).text
        assert f"fairlead_connection_waits_total {float(turns.waits)}" in metrics


# Every route


def test_nothing_else_listens() -> None:
    src = Path(fairlead.__file__).parent
    starts = re.compile(
        r"\b(create_server|OwnedServer|HttpServer|start_http_server|start_server|create_unix_server)\("
    )
    # chaos and bench stand beside the product
    files = [one for one in src.rglob("*.py") if one.relative_to(src).parts[0] not in ("chaos", "bench")]
    found = {
        str(one.relative_to(src))
        for one in files
        if starts.search(re.sub(r"(class|def) \w+\(", "", one.read_text("utf-8")))
    }
    serving = {"cli/serve.py", "cli/dev.py"}  # they start the server of app.py
    assert found - serving == set(LISTENING)


def test_the_outermost_part_of_the_application_gives_turns() -> None:
    outermost: Any = matrix.application().user_middleware[0]
    assert outermost.cls is RequestTurns


class Charged:
    """Who was charged for the steps of requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names = list[str]()
        charge = LoopTurns._charge

        def noting(turns: LoopTurns, owner: Owner, seconds: float, now: float, *, has_credit: bool) -> None:
            self.names.append(owner.name)
            charge(turns, owner, seconds, now, has_credit=has_credit)

        monkeypatch.setattr(LoopTurns, "_charge", noting)

    def last(self) -> str:
        """Of the last request, the last."""
        name, self.names = self.names[-1], []
        return name


@pytest.fixture
def charged(monkeypatch: pytest.MonkeyPatch) -> Charged:
    return Charged(monkeypatch)


def asking(rule: matrix.Rule, *, is_page: bool) -> str:
    """A role that may use the route."""
    roles = ("tenant_admin", "super_admin") if is_page else ("tenant_admin", "worker", "agent", "super_admin")
    return next(who for who in roles if rule.permission is None or rule.permission in GRANTS[Role(who)])


async def test_every_route_takes_the_turns_of_who_asks(world: World, charged: Charged) -> None:
    own = f"tenant {world.tenants[given.TENANT]}"
    wrong = []
    for rule in [*matrix.rules(world.app), *page_matrix.page_rules()]:
        is_page = rule in page_matrix.page_rules()
        who = None if rule.open else asking(rule, is_page=is_page)
        path = re.sub(r"{[^}]*}", lambda _: str(uuid4()), rule.path)
        more: dict[str, Any] = {} if is_page or rule.method == "GET" else {"json": {}}
        await world.call(rule.method, f"{BASE}{CONSOLE if is_page else ''}{path}", who=who, **more)
        expected = "address 127.0.0.1" if rule.open else "all tenants" if who == "super_admin" else own
        if (name := charged.last()) != expected:
            wrong.append(f"{rule} of {who}: {name}, not {expected}")
    assert wrong == []


async def test_what_is_no_route_of_the_api_takes_turns(world: World, charged: Charged) -> None:
    """Of matrix.NOT_ROUTES: the console's pages are above."""
    others = {
        str(route.path)
        for app in (world.app, page_matrix.console())
        for route in iter_route_contexts(app.routes)
        if not isinstance(route.original_route, APIRoute)
    }
    assert others == {f"{PREFIX}/openapi.json", f"{PREFIX}/live", CONSOLE}

    await world.call("GET", "/openapi.json", who=None)
    assert charged.last() == "address 127.0.0.1"
    await world.call("GET", "/there-is-nothing", who="viewer")
    assert charged.last() == "address 127.0.0.1"
    await watch(world)
    assert charged.last() == f"tenant {world.tenants[given.TENANT]}"


async def watch(world: World) -> None:
    """Open the live socket, and leave."""
    coming: list[MutableMapping[str, Any]] = [
        {"type": "websocket.connect"},
        {"type": "websocket.disconnect", "code": 1000},
    ]

    async def receive() -> MutableMapping[str, Any]:
        return coming.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        assert message["type"] in ("websocket.accept", "websocket.send", "websocket.close")

    await world.app(world.live_scope(world.headers("viewer")), receive, send)


async def test_a_delivery_takes_the_turns_of_the_tenant_once_it_is_verified(
    world: World, charged: Charged
) -> None:
    secret = "a secret of sixteen"  # noqa: S105
    await hook(world, name="h", scheme=Scheme.GITHUB, secret=secret)
    body = json.dumps({"ref": "refs/heads/main"}).encode()
    url = f"{BASE}/hooks/{given.TENANT}/h"
    answer = await world.client.post(url, content=body, headers=signed(Scheme.GITHUB, secret, body))
    assert (answer.status_code, charged.last()) == (202, f"tenant {world.tenants[given.TENANT]}")
    answer = await world.client.post(url, content=body, headers=signed(Scheme.GITHUB, "another secret", body))
    assert (answer.status_code, charged.last()) == (401, "address 127.0.0.1")


@pytest.mark.thorough
async def test_a_tool_of_mcp_takes_the_turns_of_its_tenant(world: World, charged: Charged) -> None:
    async with client_of(world) as client:
        charged.names.clear()
        await call(client, "list_jobs")
        assert charged.last() == f"tenant {world.tenants[given.TENANT]}"


async def test_the_weight_of_a_tenant_is_that_of_its_requests(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those with a token and of those of a browser; a long step of one is in the log."""
    monkeypatch.setattr(loop, "LONG_STEP_SECONDS", -1.0)
    owners, enter = set[Owner | None](), ConnectionTurns.enter

    async def noting(self: ConnectionTurns) -> Owner | None:
        owners.add(owner_of_task.get())
        return await enter(self)

    tenant_id = world.tenants[given.TENANT]
    await given.set_tenant(world.fl.database, given.TENANT, weight=7)
    cookie = {"Cookie": await world.signed_in(Role.VIEWER)}
    monkeypatch.setattr(ConnectionTurns, "enter", noting)
    for headers, who in (({}, "viewer"), (cookie, None)):
        owners.clear()
        with capture_logs() as logged:
            await world.call("GET", f"{BASE}{PREFIX}/jobs", who=who, headers=headers)
        assert Owner(f"tenant {tenant_id}", 7) in owners
        assert {"loop_held"} == {entry["event"] for entry in logged if "milliseconds" in entry}
