"""Who may use which route, worked out from what the routes declare; and how to fill a route's path.

Whoever adds a route with a new path parameter adds its builder here, and a body where the route needs one.
"""

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID, uuid4

from fastapi import FastAPI
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts

from fairlead import Fairlead, Settings
from fairlead.actions import (
    access,
    definitions,
    error_groups,
    events,
    hooks,
    hosts,
    sources,
    triggers,
    webhooks,
    workflows,
)
from fairlead.actions.workflows import RunRequest
from fairlead.db.tx import Tx
from fairlead.model.access import GRANTS, Permission, Role
from fairlead.model.event import NewEvent
from fairlead.model.event_source import SourceRules
from fairlead.model.hooks.hook import Scheme
from fairlead.server.app import create_app, find_requirement
from fairlead.server.auth import PublicAccess, Requires
from fairlead.server.problems import CONSOLE, PREFIX
from tests import given
from tests.server.world import World
from tests.thorough import THOROUGH

# The routes are tried in so many tests, which several test processes share.
PARTS = 3
STRANGERS = (None, "expired", "revoked")
FLEET = "fleet"  # a worker's token for every tenant; the other worker's is of one
PRINCIPALS = (*STRANGERS, *(str(role) for role in Role), FLEET)
EVERYWHERE = ("super_admin", FLEET)
NOWHERE = "there-is-no-such-tenant"

# What X-Tenant says: nothing, the principal's own tenant (for a super admin: one), another one, one that is not.
NAMINGS: dict[str, str | None] = {
    "none": None,
    "own": given.TENANT,
    "other": given.OTHER,
    "missing": NOWHERE,
}
OBJECTS = ("own", "other", "missing")

# Addresses that are no API routes, and why anybody may have them.
NOT_ROUTES = {
    f"{PREFIX}/openapi.json": "the description of the API, the same for everybody",
    f"{PREFIX}/live": "a socket: it has a matrix of its own",
    CONSOLE: "pages: they have a matrix of their own, tests/console/test_authorisation.py",
}

# The parameter that names the object, where the last one is a text of the caller's own choice, or a part of the object.
ABOUT = {
    f"{PREFIX}/jobs/{{job_id}}/signals/{{name}}": "job_id",
    f"{PREFIX}/users/{{user_id}}/identities/{{identity_id}}": "user_id",
}


@dataclass(frozen=True)
class Rule:
    """A method of a route, and what it declares."""

    method: str
    path: str
    params: tuple[str, ...]
    requires: Requires

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def permission(self) -> Permission | None:
        return self.requires.permission

    @property
    def open(self) -> bool:
        return isinstance(self.requires, PublicAccess)

    @property
    def about(self) -> str | None:
        """The path parameter that names the object, if there is one."""
        if "/account/" in self.path:  # the user's own; the tokens of the matrix have no account
            return None
        if self.path in ABOUT:
            return ABOUT[self.path]
        return self.params[-1] if self.params else None


@dataclass(frozen=True)
class Case:
    """One request of the matrix."""

    who: str | None
    naming: str
    about: str | None


@cache
def application() -> FastAPI:
    """The application, to look at its routes."""
    return create_app(Fairlead(settings=Settings()))


@cache
def api_rules() -> list[Rule]:
    return rules(application())


def rules(app: FastAPI) -> list[Rule]:
    """Every method of every route; a route that declares nothing is an error here as at start-up."""
    return [one for route in iter_route_contexts(app.routes) for one in _rules_of(route)]


def _rules_of(route: RouteContext) -> Iterator[Rule]:
    if not isinstance(route.original_route, APIRoute):
        return
    requires = find_requirement(route)
    assert requires is not None, f"{route.path} declares no permission"
    params = tuple(re.findall(r"{(\w+)", str(route.path)))
    for method in sorted(route.methods or ()):
        yield Rule(method, str(route.path), params, requires)


def cases(rule: Rule) -> Iterator[Case]:
    """The requests to a route: all combinations in `make thorough`, otherwise those that a fault can tell apart."""
    objects: tuple[str | None, ...] = OBJECTS if rule.about else (None,)
    for who in PRINCIPALS:
        for naming in NAMINGS:
            for about in objects:
                case = Case(who, naming, about)
                if THOROUGH or _is_telling(case, verdict(rule, case)):
                    yield case


# One request of each stranger: what X-Tenant says, and which object the path names.
OF_STRANGERS = {None: ("none", "own"), "expired": ("own", "other"), "revoked": ("missing", "missing")}


def _is_telling(case: Case, answer: str) -> bool:
    """Whether the case can find a fault that no other one finds: a refusal does not look at what comes after it.

    With the own tenant named, an object that is not there is left out: it is asked for with no tenant named.
    """
    match answer:
        case "unauthenticated":
            naming, about = OF_STRANGERS[case.who]
            return case.naming == naming and case.about in (None, about)
        case "no_such_tenant":
            # one who names a tenant that is not there: a refusal of another's has to look the same
            names = case.naming == "other" or case.who in ("operator", *EVERYWHERE)
            return names and case.about in (None, "other" if case.naming == "other" else "own")
        case "forbidden":
            # before it looks for the object, and for another tenant's, too
            return (case.naming, case.about) in (("none", None), ("none", "own"), ("own", "other"))
        case "anything":
            return case.who is None or (case.naming == "none" and case.about in (None, "own"))
    return case.naming != "own" or case.about != "missing"


# The rules


def verdict(rule: Rule, case: Case) -> str:
    """What a case has to be answered: unauthenticated, no_such_tenant, forbidden, hidden or allowed."""
    if rule.open:
        return "anything"
    if case.who in STRANGERS:
        return "unauthenticated"
    role = Role.WORKER if case.who == FLEET else Role(str(case.who))
    everywhere = case.who in EVERYWHERE
    if case.naming == "missing" or (case.naming == "other" and not everywhere):
        return "no_such_tenant"
    if rule.permission is not None and rule.permission not in GRANTS[role]:
        return "forbidden"
    return "hidden" if case.about and not _sees(rule, case, everywhere=everywhere) else "allowed"


def _sees(rule: Rule, case: Case, *, everywhere: bool) -> bool:
    made = builder(rule, str(rule.about))
    unnamed = everywhere and case.naming == "none"
    if unnamed and made.asks:  # so it says, before it looks for anything
        return True
    if case.about == "missing":
        return False
    if (
        rule.permission is Permission.RUN_HOST_JOBS
    ):  # a host's jobs are its agent's: not even a super admin is one
        return case.who == Role.AGENT and case.about == "own"
    if made.shared or (everywhere and rule.requires.everywhere) or (unnamed and not made.named):
        return True
    acting = case.naming if everywhere else "own"
    return case.about == acting


# The objects


@dataclass(frozen=True)
class Builder:
    """How to make an object of a tenant; a shared one belongs to none.

    A `named` one is known by a name that others may have too: who names no tenant means the one shared by all, or (if
    the route `asks`) is asked for one.
    """

    make: Callable[[Tx, World, str], Awaitable[object]]
    missing: Callable[[], object] = uuid4
    shared: bool = False
    named: bool = False
    asks: bool = False


async def _job(tx: Tx, world: World, tenant: str) -> UUID:
    return await given.queued_job(tx, tenant=tenant)


async def _token(tx: Tx, world: World, tenant: str) -> UUID:
    made = await access.create_token(
        tx, given.TESTER, name="made", role=Role.VIEWER, tenant_id=world.tenants[tenant]
    )
    return made.token.id


async def _user(tx: Tx, world: World, tenant: str) -> UUID:
    [(user_id,)] = await tx.values(
        "insert into fairlead.users (tenant_id, email, password_hash, role) values (%s, %s, '-', 'viewer') returning id",
        [world.tenants[tenant], f"{uuid4()}@fairlead.test"],
    )
    return UUID(str(user_id))


async def _identity(tx: Tx, world: World, tenant: str) -> UUID:
    """Of the user who was made last: a path names the user first."""
    made = await tx.values(
        "insert into fairlead.identities (user_id, tenant_id, issuer, subject, provider) "
        "select id, tenant_id, %s, 'ada', 'work' from fairlead.users where tenant_id = %s "
        "order by created_at desc, id desc limit 1 returning id",
        [str(uuid4()), world.tenants[tenant]],
    )
    return UUID(str(made[0][0])) if made else uuid4()


async def _host(tx: Tx, world: World, tenant: str) -> UUID:
    return world.hosts[tenant]


async def _new_host(tx: Tx, world: World, tenant: str) -> UUID:
    """One that may go: the other is its agent's."""
    made = await hosts.add(tx, given.TESTER, tenant_id=world.tenants[tenant], name=str(uuid4()))
    return made.id


async def _tenant(tx: Tx, world: World, tenant: str) -> UUID:
    return world.tenants[tenant]


async def _running(tx: Tx, world: World, tenant: str) -> UUID:
    return await given.running_job(tx, tenant=tenant)


async def _hosted(tx: Tx, world: World, tenant: str) -> UUID:
    """A job that the agent of the tenant's host runs."""
    await tx.run("update fairlead.hosts set max_running = 1000 where id = %s", [world.hosts[tenant]])
    return await given.running_job(tx, tenant=tenant, host_id=world.hosts[tenant])


async def _own_host(tx: Tx, world: World, tenant: str) -> UUID:
    """An agent asks under its own host, whosever the job is."""
    return world.hosts[given.TENANT]


async def _resource(tx: Tx, world: World, tenant: str) -> UUID:
    made = await hosts.add_resource(
        tx,
        given.TESTER,
        tenant_id=world.tenants[tenant],
        host_id=world.hosts[tenant],
        kind="server",
        name=str(uuid4()),
    )
    return made.id


async def _definition(tx: Tx, world: World, tenant: str) -> UUID:
    [(definition_id,)] = await tx.values("select id from fairlead.job_definitions where key = 'anything'")
    return UUID(str(definition_id))


async def _trigger(tx: Tx, world: World, tenant: str) -> UUID:
    made = await triggers.create(tx, given.TESTER, tenant, TRIGGER)
    return made.trigger.id


async def _webhook(tx: Tx, world: World, tenant: str) -> str:
    await definitions.patch(tx, given.TESTER, "http.request", {"key": "http.request"})
    [made] = await webhooks.add(
        tx, given.TESTER, tenant, url="https://hooks.example.com/", events=["job.failed"]
    )
    return str(made.id)


async def _hook(tx: Tx, world: World, tenant: str) -> UUID:
    name, owner = f"h{uuid4().hex}", world.tenants[tenant]
    return (await hooks.create(tx, given.TESTER, tenant_id=owner, name=name, scheme=Scheme.GITHUB)).hook.id


async def _error_group(tx: Tx, _: World, tenant: str) -> UUID:
    job_id = await given.ended_job(tx, "failed", tenant=tenant)
    while await error_groups.fold_failures(tx):
        pass
    [(found,)] = await tx.values("select group_id from fairlead.error_group_jobs where job_id = %s", [job_id])
    return UUID(str(found))


async def _event(tx: Tx, world: World, tenant: str) -> UUID:
    new = NewEvent(name="thing.happened", tenant=tenant)
    return await events.emit(tx, given.TESTER, given.catalog(), new)


async def _approval(tx: Tx, world: World, tenant: str) -> UUID:
    return await given.open_approval(tx, tenant=tenant)


async def _workflow(tx: Tx, world: World, tenant: str) -> str:
    made, _ = await workflows.publish(tx, given.TESTER, tenant, {**WORKFLOW, "key": f"made-{uuid4()}"})
    return made.key


async def _run(tx: Tx, world: World, tenant: str) -> UUID:
    return (await workflows.start_inline(tx, given.TESTER, WORKFLOW, RunRequest(tenant=tenant))).id


async def _source(tx: Tx, world: World, tenant: str) -> str:
    rules = SourceRules(event="order.placed", tenant=tenant)
    await sources.report(tx, name=f"orders-{tenant}", driver="nats", rules=rules)
    return f"orders-{tenant}"


async def _session(tx: Tx, world: World, tenant: str) -> UUID:
    return uuid4()  # a user's own: the tokens of the matrix have none


async def _asset(tx: Tx, world: World, tenant: str) -> str:
    return "start.js"


BACKFILL = {"from": "2026-03-01T00:00:00Z", "to": "2026-03-02T00:00:00Z"}
TRIGGER = {
    "label": "made",
    "trigger_type": "schedule",
    "cron_expr": "0 2 * * *",
    "definition_key": "anything",
}
WORKFLOW = {"key": "made", "steps": [{"name": "only", "definition": "anything"}]}
BUILDERS: dict[str, Builder] = {
    "job_id": Builder(_job),
    "token_id": Builder(_token),
    "user_id": Builder(_user),
    "session_id": Builder(_session),
    "identity_id": Builder(_identity),
    "host_id": Builder(_host),
    "resource_id": Builder(_resource),
    "trigger_id": Builder(_trigger),
    "event_id": Builder(_event),
    "approval_id": Builder(_approval),
    "webhook_id": Builder(_webhook),  # of the console
    "hook_id": Builder(_hook),
    "group_id": Builder(_error_group),
    "key": Builder(_workflow, missing=lambda: f"made-{uuid4()}", named=True),
    "run_id": Builder(_run),
    "source": Builder(_source, shared=True),
    "tenant": Builder(_tenant, shared=True),
    "definition": Builder(_definition, shared=True),
    "name": Builder(_asset, shared=True),
}
_WORKER = f"{PREFIX}/worker/jobs/{{job_id}}"
_AGENT = f"{PREFIX}/agent/hosts/{{host_id}}"
# Where a route is about another kind of the same thing: by the beginning of its path, and the parameter.
SPECIAL: dict[tuple[str, str], Builder] = {
    (f"{PREFIX}/hosts/{{host_id}}", "host_id"): Builder(_new_host),
    (f"{PREFIX}/workflows/{{key}}/runs", "key"): Builder(
        _workflow, missing=lambda: f"made-{uuid4()}", asks=True
    ),
    (_WORKER, "job_id"): Builder(_running),
    (f"{_AGENT}/jobs/{{job_id}}", "job_id"): Builder(_hosted),
    (f"{_AGENT}/jobs/{{job_id}}", "host_id"): Builder(_own_host),
}


def builder(rule: Rule, param: str) -> Builder:
    """How to make what a route's parameter names."""
    special = [one for (start, name), one in SPECIAL.items() if name == param and rule.path.startswith(start)]
    return special[0] if special else BUILDERS[param]


async def body(tx: Tx, rule: Rule, name: str) -> dict[str, Any]:
    """A body with which the route gets as far as looking for its object. {} where nothing is said.

    Those who run jobs show the very lease of the job: only whose it is can be wrong.
    """
    return {**(await _lease(tx, name) if rule.path in _LEASED else {}), **BODIES.get(str(rule), {})}


async def _lease(tx: Tx, job: str) -> dict[str, Any]:
    found = await tx.values("select attempt_no, token::text from fairlead.leases where job_id = %s", [job])
    attempt_no, token = found[0] if found else (1, str(uuid4()))
    return {"attempt_no": attempt_no, "lease_token": token}


_LEASED = {f"{_WORKER}/{what}" for what in ("heartbeat", "complete", "fail", "release", "progress", "logs")}
_LEASED |= {
    f"{_AGENT}/jobs/{{job_id}}/{what}" for what in ("accept", "result", "release", "progress", "logs")
}
BODIES: dict[str, dict[str, Any]] = {
    f"POST {_WORKER}/fail": {"error": {"type": "X", "message": "x"}},
    f"POST {_WORKER}/progress": {"percent": 1},
    f"POST {_WORKER}/logs": {"chunks": [{"seq": 0, "text": "x"}]},
    f"POST {PREFIX}/agent/enrol": {"code": "x"},
    f"POST {_AGENT}/session": {"version": "1"},
    f"POST {_AGENT}/heartbeat": {"leases": []},
    f"POST {_AGENT}/jobs/{{job_id}}/result": {"status": "succeeded"},
    f"POST {_AGENT}/jobs/{{job_id}}/progress": {"percent": 1},
    f"POST {_AGENT}/jobs/{{job_id}}/logs": {"chunks": [{"seq": 0, "text": "x"}]},
    f"POST {PREFIX}/hosts": {"name": "made"},
    f"POST {PREFIX}/resources": {"host_id": str(uuid4()), "kind": "server", "name": "made"},
    f"POST {PREFIX}/worker/jobs/claim": {"definitions": ["retired"]},
    f"PATCH {PREFIX}/users/{{user_id}}": {"disabled": True},
    f"POST {PREFIX}/jobs": {"definition_key": "anything"},
    f"PATCH {PREFIX}/jobs/{{job_id}}": {"priority": 1},
    f"POST {PREFIX}/jobs/bulk": {"jobs": [{"definition_key": "anything"}]},
    f"POST {PREFIX}/jobs/triggers": TRIGGER,
    f"POST {PREFIX}/jobs/triggers/preview": TRIGGER,
    f"POST {PREFIX}/jobs/triggers/{{trigger_id}}/backfill": BACKFILL,
    f"POST {PREFIX}/jobs/triggers/{{trigger_id}}/backfill/preview": BACKFILL,
    f"POST {PREFIX}/events": {"name": "thing.happened"},
    f"POST {PREFIX}/hooks": {"name": "made", "scheme": "github"},
    f"POST {PREFIX}/workflows": WORKFLOW,
    f"POST {PREFIX}/tokens": {"name": "made", "role": "viewer"},
    f"PUT {PREFIX}/admin/system": {"online": True},
}
# A query that a route needs so as not to wait, or to be about anything.
QUERIES: dict[str, dict[str, str]] = {f"GET {_AGENT}/jobs": {"session": str(uuid4()), "wait": "0"}}
# Routes that take the agents' tokens away: the next one to ask needs them.
_REVOKES = {f"POST {_AGENT}/token", f"POST {PREFIX}/hosts/{{host_id}}/revoke"}


async def restore(world: World, rule: Rule) -> None:
    """Give back what a route took from everybody."""
    if str(rule) not in _REVOKES:
        return
    agents = [token for (_, name), token in world.token_ids.items() if name == "agent"]
    async with world.fl.database.transaction() as tx:
        await tx.run("update fairlead.tokens set revoked_at = null where id = any(%s)", [agents])


# The table in the documentation

HEAD = """# Who may do what

Every route says which permission it needs, and a server with a route that does not say so refuses to start. A test
asks every route as everybody (each role, and tokens that are expired or revoked), for an object of their own tenant,
of another and of none; this table is made by it (`make matrix`).

- `401`: nobody, or a token that is not good any more. `403`: a role without the permission; that is audited.
- `404`: what belongs to another tenant, exactly as what does not exist.
- A super admin acts in the tenant that `X-Tenant` names, or without it in all of them.
- A job of `ENGINE_RUN` runs a workflow: to enqueue one needs `workflows.start` too, to edit, cancel or retry one `workflows.run`.
- Jobs of `ENGINE_SLEEP`, `ENGINE_EVENT` and `ENGINE_APPROVAL` are waits of workflows: to enqueue one needs `workflows.start` too.

"""


def table(app: FastAPI) -> str:
    """The matrix of routes and roles, as the documentation shows it."""
    head = ["Route", "Permission", *(f"`{role}`" for role in Role)]
    rows = [_row(rule) for rule in sorted(rules(app), key=lambda rule: (rule.path, rule.method))]
    lines = [head, ["---"] * len(head), *rows]
    return HEAD + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _row(rule: Rule) -> list[str]:
    if rule.open:
        needs, holders = "anybody", set(Role)
    elif rule.permission is None:
        needs, holders = "signed in", set(Role)
    else:
        needs, holders = f"`{rule.permission}`", {role for role in Role if rule.permission in GRANTS[role]}
    return [f"`{rule.method} {rule.path}`", needs, *("yes" if role in holders else "" for role in Role)]
