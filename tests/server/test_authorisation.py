"""Every route × everybody × every tenant × every object: what is answered is what the routes declare."""

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import httpx2
import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from fairlead.model.access import GRANTS, Permission, Role
from fairlead.server.app import require_declared_permissions
from fairlead.server.auth import Caller, GuardedRoute, PublicAccess, Requires
from tests import given
from tests.server import matrix
from tests.server.world import BASE, World
from tests.tables import Faults
from tests.waiting import SECONDS

DOCUMENT = Path(__file__).parents[2] / "docs/reference/authorisation.md"


class Target(NamedTuple):
    """What a case asks for: an address, the name of the object in it, and a body that fits it."""

    path: str
    name: str
    body: dict[str, Any]


async def _target(world: World, rule: matrix.Rule, about: str | None) -> Target:
    values: dict[str, str] = {}
    async with world.fl.database.transaction() as tx:
        for param in rule.params:
            builder = matrix.builder(rule, param)
            if about == "missing" and param == rule.about:
                values[param] = str(builder.missing())
            else:
                tenant = given.OTHER if about == "other" else given.TENANT
                values[param] = str(await builder.make(tx, world, tenant))
        name = values.get(str(rule.about), "")
        body = {} if rule.method in ("GET", "DELETE") else {"json": await matrix.body(tx, rule, name)}
    return Target(rule.path.format(**values), name, body)


async def _ask(world: World, rule: matrix.Rule, case: matrix.Case, target: Target) -> httpx2.Response:
    named = matrix.NAMINGS[case.naming]
    fleet = case.who == matrix.FLEET
    return await world.call(
        rule.method,
        BASE + target.path,
        who="worker" if fleet else case.who,
        tenant=None if fleet else given.TENANT,
        headers={} if named is None else {"X-Tenant": named},
        params=matrix.QUERIES.get(str(rule), {}),
        timeout=SECONDS,
        **target.body,
    )


def _wrong(verdict: str, rule: matrix.Rule, answer: httpx2.Response) -> str | None:
    """What is wrong with an answer, if anything is."""
    status = answer.status_code
    if status >= 500:
        return "broken"
    expected = {"unauthenticated": (401,), "forbidden": (403,), "no_such_tenant": (404,)}
    match verdict:
        case "unauthenticated" | "forbidden" | "no_such_tenant":
            return None if status in expected[verdict] else f"not {verdict}"
        case "hidden":
            # to who runs jobs, one that is not there is one whose lease is lost
            fine = (
                (404, 409) if rule.permission in (Permission.RUN_JOBS, Permission.RUN_HOST_JOBS) else (404,)
            )
            return None if status in fine else "not hidden (does it need a body in matrix.BODIES?)"
        case "allowed":
            denied = (401, 403, 404) if rule.about else (401, 403)
            return "denied" if status in denied else None
    return None


def _shape(answer: httpx2.Response, *names: str) -> tuple[int, str]:
    text = answer.text
    for name in filter(None, names):
        text = text.replace(name, "<name>")
    return answer.status_code, text


@pytest.mark.deeper
@pytest.mark.parametrize("part", range(matrix.PARTS))
async def test_every_route_answers_everybody_as_declared(shared_world: World, part: int) -> None:
    faults = Faults()
    for rule in matrix.api_rules()[part :: matrix.PARTS]:
        with faults.of(str(rule)):
            await _check(shared_world, rule)
    faults.conclude()


async def _check(world: World, rule: matrix.Rule) -> None:
    unknown = [param for param in rule.params if param not in matrix.BUILDERS]
    assert not unknown, f"tests/server/matrix.py cannot make a {unknown}: add a builder"
    before = await _denials(world)
    faults, forbidden = [], 0
    hidden: dict[tuple[str | None, str], set[tuple[int, str]]] = {}
    targets: dict[str | None, Target] = {}
    for case in matrix.cases(rule):
        verdict = matrix.verdict(rule, case)
        if case.about not in targets:
            targets[case.about] = await _target(world, rule, case.about)
        name = targets[case.about].name
        answer = await _ask(world, rule, case, targets[case.about])
        if rule.method != "GET" and answer.status_code < 400:
            del targets[case.about]  # it was changed, or is gone
            await matrix.restore(world, rule)
        if wrong := _wrong(verdict, rule, answer):
            faults.append(f"{case}: {wrong}: {answer.status_code} {answer.text[:300]}")
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json", answer.text
        forbidden += verdict == "forbidden"
        if verdict == "hidden":
            hidden.setdefault((case.who, case.naming), set()).add(_shape(answer, name))
        if verdict == "no_such_tenant":
            hidden.setdefault((case.who, "tenant"), set()).add(
                _shape(answer, str(matrix.NAMINGS[case.naming]))
            )
    assert not faults, "\n".join(faults)
    told_apart = {who: answers for who, answers in hidden.items() if len(answers) > 1}
    assert not told_apart, f"another tenant's and a missing one look different: {told_apart}"
    assert await _denials(world) - before == forbidden, "a denial is not in the audit log"


# The socket


async def _knock(world: World, who: str | None, tenant: str | None = None) -> int | None:
    """Open the socket and leave again: the status of the refusal, or None if it was accepted."""
    fleet = who == matrix.FLEET
    token = world.headers("worker" if fleet else who, None if fleet else given.TENANT)
    sent: list[MutableMapping[str, Any]] = []
    coming: list[MutableMapping[str, Any]] = [
        {"type": "websocket.connect"},
        {"type": "websocket.disconnect", "code": 1000},
    ]

    async def receive() -> MutableMapping[str, Any]:
        return coming.pop(0) if coming else {"type": "websocket.disconnect", "code": 1000}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = world.live_scope(token, "" if tenant is None else f"tenant={tenant}")
    await world.app(scope, receive, send)
    if sent[0]["type"] == "websocket.accept":
        return None
    assert sent[0]["type"] == "websocket.http.response.start"
    return int(sent[0]["status"])


async def test_the_socket_admits_whom_the_routes_would(shared_world: World) -> None:
    for who in matrix.PRINCIPALS:
        role = Role.WORKER if who == matrix.FLEET else None if who in matrix.STRANGERS else Role(str(who))
        for naming, named in matrix.NAMINGS.items():
            expected: int | None = None
            if role is None:
                expected = 401
            elif Permission.READ_JOBS not in GRANTS[role]:
                expected = 403
            elif naming == "missing" or (naming == "other" and role is not Role.SUPER_ADMIN):
                expected = 404
            assert await _knock(shared_world, who, named) == expected, (who, naming)


async def _denials(world: World) -> int:
    async with world.fl.database.transaction() as tx:
        [(number,)] = await tx.values(
            "select count(*) from fairlead.audit_entries where action = 'access_denied'"
        )
    return int(number)


def test_there_is_nothing_to_reach_beside_the_routes() -> None:
    others = {
        str(route.path)
        for route in iter_route_contexts(matrix.application().routes)
        if not isinstance(route.original_route, APIRoute)
    }
    assert others == set(matrix.NOT_ROUTES)


def test_every_route_knows_who_asks_before_it_reads_what_they_send() -> None:
    unguarded = [
        str(route.path)
        for route in iter_route_contexts(matrix.application().routes)
        if isinstance(route.original_route, APIRoute) and not isinstance(route.original_route, GuardedRoute)
    ]
    assert unguarded == [], "make their router with route_class=Guarded"


def test_a_route_that_declares_nothing_stops_the_start() -> None:
    router = APIRouter()

    @router.get("/forgotten")
    async def forgotten() -> None:
        """Nobody said who may."""

    app = FastAPI()
    app.include_router(router, prefix="/api/v1")
    with pytest.raises(RuntimeError, match="/api/v1/forgotten declares no permission"):
        require_declared_permissions(app)


def test_a_route_that_declares_itself_open_or_restricted_may_start() -> None:
    router = APIRouter()

    @router.get("/open")
    async def for_all(_: Annotated[None, Depends(PublicAccess())]) -> None:
        """For anybody."""

    @router.get("/closed")
    async def for_some(_: Annotated[Caller, Depends(Requires(Permission.READ_JOBS))]) -> None:
        """For some."""

    app = FastAPI()
    app.include_router(router)
    require_declared_permissions(app)


def test_the_documentation_has_the_table_of_today() -> None:
    table = matrix.table(matrix.application())
    if os.environ.get("WRITE_MATRIX"):
        DOCUMENT.write_text(table)
    assert DOCUMENT.read_text() == table, "Run `make matrix`: the table of permissions is not current."
