"""While a tenant is moved to another cell, no request changes its rows here."""

from typing import Any

import pytest

from fairlead.actions import tenant_moves as moves
from fairlead.db.tx import Tx
from fairlead.model.access import GRANTS, Role
from fairlead.model.tenant_move import TenantMove
from fairlead.store import tenant_copy
from fairlead.store import tenant_moves as stored_moves
from tests import given
from tests.acting import act
from tests.server import matrix
from tests.server.world import BASE, World

# What says only when something was last seen; the next request in the new cell says it again.
LAST_SEEN = {("tokens", "last_used_at"), ("hosts", "last_seen_at")}
ROLES = (Role.TENANT_ADMIN, Role.SUPER_ADMIN, Role.WORKER, Role.AGENT)


async def read_rows(tx: Tx, world: World) -> dict[str, list[str]]:
    """The tenant's rows, without what may change."""
    instead = dict.fromkeys(LAST_SEEN, "null")
    tables = tenant_copy.sort_out(
        await tenant_copy.list_tables(tx), world.tenants[given.TENANT], tenant_copy.INSTEAD | instead
    )
    query = "select array_agg(text) from (select row(<columns>)::text from fairlead.<table> r where <where> order by 1) r(text)"
    union = " union all ".join(f"select '{one.name}', ({one.write(query, values=True)})" for one in tables)
    return dict(await tx.values(union))


async def close_gate(tx: Tx, world: World) -> TenantMove:
    """As the first step of a move does."""
    tenant_id = world.tenants[given.TENANT]
    await tx.run(
        "insert into fairlead.cells (name, cell_id, url, schema_name, created_by) "
        "values ('home', gen_random_uuid(), null, 'fairlead', 'x'), ('b', gen_random_uuid(), 'x', 'x', 'x')"
    )
    move = await stored_moves.begin(
        tx, tenant_id=tenant_id, slug=given.TENANT, source="home", target="b", epoch=1, started_by="tester"
    )
    assert move is not None
    await moves.close_gate(tx, move)
    await moves.use_up_room(tx, move)
    await moves.park_leases(tx, move)
    return move


async def find_targets(world: World) -> list[tuple[matrix.Rule, str, dict[str, Any]]]:
    """Every route that may change something, for an object of the tenant."""
    targets = []
    for rule in matrix.rules(world.app):
        if rule.method in {"GET", "HEAD"} and "/agent/" not in rule.path:
            continue
        async with world.fl.database.transaction() as tx:
            values = {
                param: str(await matrix.builder(rule, param).make(tx, world, given.TENANT))
                for param in rule.params
            }
            name = values.get(str(rule.about), "")
            body = {} if rule.method in {"GET", "DELETE"} else {"json": await matrix.body(tx, rule, name)}
        targets.append((rule, rule.path.format(**values), body))
    return targets


@pytest.mark.thorough
async def test_no_request_changes_a_tenant_that_is_being_moved(world: World) -> None:
    targets = await find_targets(world)
    async with world.fl.database.transaction() as tx:
        await close_gate(tx, world)
        before = await read_rows(tx, world)
    answers: dict[str, int] = {}
    for rule, path, body in targets:
        for role in ROLES:
            if rule.permission is not None and rule.permission not in GRANTS[role]:
                continue
            answer = await world.call(
                rule.method,
                BASE + path,
                who=role.value,
                headers={"X-Tenant": given.TENANT, "Idempotency-Key": f"{role}-{len(answers)}"},
                params=matrix.QUERIES.get(str(rule)),
                **body,
            )
            answers[f"{rule} by {role}"] = answer.status_code
            if answer.status_code == 503:
                assert answer.json()["code"] == "tenant_moving"
                assert answer.headers["Retry-After"]
    after = await act(world.fl.database, read_rows, world)
    changed = {
        name: {*(after[name] or ())} ^ {*(rows or ())} for name, rows in before.items() if after[name] != rows
    }
    assert changed == {}, {asked: status for asked, status in answers.items() if status < 300}
    assert sum(status == 503 for status in answers.values()) > 50
