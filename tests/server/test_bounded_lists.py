"""No list answers with more than some megabytes at once, whatever a tenant put into its rows, and none leaves a row out."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts

from fairlead.server.problems import PREFIX
from tests import given
from tests.server.world import World

ROWS = 20
# As text; it is stored compressed, in a few kilobytes.
ROW_BYTES = 250_000
LARGE = f"repeat('x', {ROW_BYTES})"
# Eight rows have less than 2 MiB, and one more may begin below it.
MOST_ROWS_OF_A_PAGE = 9


@dataclass(frozen=True)
class Case:
    """A list, and the statements that fill it; `n` is a row's number, `tenant` the tenant's id."""

    path: str
    fill: tuple[str, ...]
    who: str = "tenant_admin"
    items: str = "items"
    cursor: str = "next_cursor"
    asks: str = "cursor"
    row: str = "id"
    status: str | None = None


TRIGGER = f"""
    insert into fairlead.job_triggers (id, tenant_id, label, trigger_type, event_name, definition_id, payload_template)
    select gen_random_uuid(), %(tenant)s, 'large', 'event', 'order.paid', d.id, jsonb_build_object('a', {LARGE})
    from fairlead.job_definitions d, generate_series(1, {{}}) n where d.key = 'anything'"""
EVENT = """
    insert into fairlead.events (id, tenant_id, name, data, dispatched_at)
    select %(one)s, %(tenant)s, 'order.paid', '{}', clock_timestamp()"""
FIRINGS = f"""
    insert into fairlead.trigger_firings (trigger_id, tenant_id, slot, event_id, outcome, reason, detail)
    select g.id, %(tenant)s, n::text, %(one)s, 'skipped', 'large', {LARGE}
    from fairlead.job_triggers g, generate_series(1, {ROWS}) n where g.tenant_id = %(tenant)s"""
RUNS = f"""
    insert into fairlead.workflow_runs (id, tenant_id, key, status, steps, finished_at, input)
    select gen_random_uuid(), %(tenant)s, 'large', 'succeeded', 0, clock_timestamp(), jsonb_build_object('a', {LARGE})
    from generate_series(1, {ROWS}) n"""
A_RUN = """
    insert into fairlead.workflow_runs (id, tenant_id, key, status, steps, finished_at, input)
    select %(one)s, %(tenant)s, 'large', 'succeeded', 20, clock_timestamp(), '{}'"""
STEPS = f"""
    insert into fairlead.workflow_steps
        (run_id, place, tenant_id, name, definition_key, spec, before, next, on_failure, state, pending, error)
    select %(one)s, n - 1, %(tenant)s, 's' || n, 'anything', '{{"definition": "anything"}}', '{{}}', '{{}}', 'stop',
        'skipped', 0, jsonb_build_object('message', {LARGE})
    from generate_series(1, {ROWS}) n"""
WORKFLOWS = f"""
    insert into fairlead.workflows (tenant_id, key, version, spec)
    select %(tenant)s, 'large-' || lpad(n::text, 3, '0'), 1, jsonb_build_object('key', 'large', 'steps', '[]'::jsonb, 'x', {LARGE})
    from generate_series(1, {ROWS}) n"""
EVENTS = f"""
    insert into fairlead.events (tenant_id, name, data, dispatched_at)
    select %(tenant)s, 'order.paid', jsonb_build_object('a', {LARGE}), clock_timestamp() from generate_series(1, {ROWS}) n"""
AUDIT = f"""
    insert into fairlead.audit_log (tenant_id, actor, action, resource_type, resource_id, details)
    select %(tenant)s, 'someone', 'large', 'thing', n::text, jsonb_build_object('a', {LARGE})
    from generate_series(1, {ROWS}) n"""
DEFINITIONS = f"""
    insert into fairlead.job_definitions (id, key, arg_schema)
    select fairlead.definition_id('large-' || lpad(n::text, 3, '0')), 'large-' || lpad(n::text, 3, '0'), jsonb_build_object('description', {LARGE}) from generate_series(1, {ROWS}) n"""
# between them, those that are another tenant's: they are no part of this one's pages
OTHERS_DEFINITIONS = """
    insert into fairlead.job_definitions (id, key, only_tenants)
    select fairlead.definition_id('large-' || lpad(n::text, 3, '0') || '.other'), 'large-' || lpad(n::text, 3, '0') || '.other', array[gen_random_uuid()] from generate_series(1, 20) n"""
HOSTS = f"""
    insert into fairlead.hosts (tenant_id, name, labels)
    select %(tenant)s, 'large-' || n, jsonb_build_object('a', {LARGE}) from generate_series(1, {ROWS}) n"""
TOKENS = f"""
    insert into fairlead.tokens (tenant_id, name, role, prefix, secret_hash, definitions)
    select %(tenant)s, 'large', 'viewer', 'x', sha256(n::text::bytea), array[{LARGE}] from generate_series(1, {ROWS}) n"""
WORKERS = f"""
    insert into fairlead.job_workers (worker_id, hostname, tenant_id, metadata)
    select 'large-' || lpad(n::text, 3, '0'), 'here', %(tenant)s, jsonb_build_object('a', {LARGE})
    from generate_series(1, {ROWS}) n"""
ATTEMPTS = f"""
    insert into fairlead.job_attempts (
        job_id, attempt_no, tenant_id, token, worker_id, status, started_at, finished_at, error_text)
    select %(job)s, n, %(tenant)s, gen_random_uuid(), 'large', 'failed', now(), now(), {LARGE}
    from generate_series(1, {ROWS}) n"""
JOB_STEPS = f"""
    insert into fairlead.job_steps (job_id, position, attempt_no, status, kind, name, tenant_id, started_at, result)
    select %(job)s, n - 1, 1, 'succeeded', 'step', 'large', %(tenant)s, now(), to_jsonb({LARGE}) from generate_series(1, {ROWS}) n"""
APPROVALS = f"""
    insert into fairlead.approvals (id, tenant_id, job_id, branch, position, name, title, roles, form, status)
    select fairlead.uuid7(), %(tenant)s, %(one)s, '', n, 'x', 'x', '{{operator}}', jsonb_build_object('description', {LARGE}), 'expired'
    from generate_series(1, {ROWS}) n"""
USE = f"""
    insert into fairlead.counts (tenant_id, definition_id, minute, runs, retried, run_ms, queue_ms, cost_cents)
    select tenant_id, definition_id, date_trunc('minute', now()), {ROWS}, 0, 0, 0, 0 from fairlead.jobs where id = %(job)s"""
CASES = (
    Case("/jobs", ()),
    Case("/jobs/{job_id}/attempts", (ATTEMPTS, USE)),
    Case("/jobs/{job_id}/steps", (JOB_STEPS,), row="place"),
    Case("/approvals", (APPROVALS,), status="any"),
    Case("/workflows", (WORKFLOWS,)),
    Case("/workflows/runs", (RUNS,)),
    Case(
        "/workflows/runs/{run_id}",
        (A_RUN, STEPS),
        items="steps",
        cursor="next_first",
        asks="first",
        row="place",
    ),
    Case("/events", (EVENTS,)),
    Case("/events/{event_id}", (EVENT, TRIGGER.format(1), FIRINGS), items="firings"),
    Case("/jobs/triggers", (TRIGGER.format(ROWS),)),
    Case("/jobs/triggers/{trigger_id}/firings", (EVENT, TRIGGER.format(1), FIRINGS)),
    Case("/definitions", (DEFINITIONS, OTHERS_DEFINITIONS)),
    Case("/admin/jobs/definitions", (DEFINITIONS,), who="super_admin"),
    Case("/audit", (AUDIT,), row="at"),
    Case("/hosts", (HOSTS,)),
    Case("/tokens", (TOKENS,)),
    Case("/admin/workers", (WORKERS,), who="super_admin", row="worker_id"),
)
# Their rows are short: names that an index or a rule keeps short, and numbers. Logs have their own bound.
SHORT_ROWS = {
    "/account/identities",
    "/account/sessions",
    "/account/tokens",
    "/admin/checks",
    "/admin/queue",
    "/admin/tenants",
    "/admin/tenants/{tenant}/quotas",
    "/admin/users",
    "/errors",
    "/hooks",
    "/jobs/{job_id}/logs",
    "/limits",
    "/quotas",
    "/resources",
    "/sources",
    "/usage",
    "/users",
    "/users/{user_id}/identities",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.path)
async def test_a_list_of_large_rows_comes_in_pages_of_few_megabytes(world: World, case: Case) -> None:
    path = await _fill(world, case)

    pages: list[Any] = []
    seen: list[Any] = []
    ask: dict[str, Any] = {}
    while not pages or ask:
        answer = await world.call("GET", path, who=case.who, params=ask | _limit(case))
        assert answer.status_code == 200, answer.text
        assert len(answer.content) < 4_000_000
        shown = answer.json()
        pages.append(shown[case.items])
        seen += [row[case.row] for row in shown[case.items]]
        ask = {} if shown[case.cursor] is None else {case.asks: shown[case.cursor]}

    assert len(seen) == len(set(seen)) >= ROWS
    assert sum(1 for page in pages if page) >= ROWS / MOST_ROWS_OF_A_PAGE
    assert max(_large(case, page) for page in pages) <= MOST_ROWS_OF_A_PAGE


def _limit(case: Case) -> dict[str, Any]:
    status = {} if case.status is None else {"status": case.status}
    return status if case.asks == "first" else {**status, "limit": 1000}


def _large(case: Case, page: list[dict[str, Any]]) -> int:
    """Rows of a page that were filled by the test, though the answer may leave out what is large of them."""
    if case.path == "/workflows":
        return len(page)
    return sum(len(str(row)) >= ROW_BYTES for row in page)


async def _fill(world: World, case: Case) -> str:
    one = UUID("01900000-0000-7000-8000-000000000001")
    values: dict[str, Any] = {"tenant": world.tenants[given.TENANT], "one": one}
    if "{job_id}" in case.path:
        made = await world.call("POST", "/jobs", json={"definition_key": "anything", "payload": {}})
        values["job"] = made.json()["id"]
    if case.path == "/jobs":
        sent = {"definition_key": "anything", "payload": {"a": "x" * ROW_BYTES}}
        for _ in range(ROWS):
            assert await world.status("POST", "/jobs", json=sent) == 201
    async with world.fl.database.transaction() as tx:
        for statement in case.fill:
            await tx.run(statement, values)
        triggers = await tx.values("select id from fairlead.job_triggers order by id limit 1")
    trigger_id = triggers[0][0] if triggers else None
    return case.path.format(job_id=values.get("job"), run_id=one, event_id=one, trigger_id=trigger_id)


async def test_every_list_is_bounded_or_known_to_be_short(world: World) -> None:
    """A new list is added to one of them, or this fails."""
    lists = {
        str(route.path).removeprefix(PREFIX)
        for route in iter_route_contexts(world.app.routes)
        if isinstance(route.original_route, APIRoute) and "GET" in (route.methods or ()) and _is_a_list(route)
    }

    assert lists - SHORT_ROWS == {case.path for case in CASES}


def _is_a_list(route: RouteContext) -> bool:
    fields = getattr(route.response_model, "model_fields", {})
    return "next_cursor" in fields or "next_first" in fields
