"""A look-up by name or id reads the rows that it finds, however many tenants, hosts, resources, users and definitions there are."""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from fairlead.db.tx import Tx
from fairlead.store import access, cells, definitions, gates, hosts, sealing, tenant_moves, tenants
from tests.plans import count_rows, read_plan
from tests.tables import each_case

pytestmark = pytest.mark.postgres_only("the ids of definitions follow their keys")

MANY = 10_000
SOME = 2_000
ASKED = 500
ID = UUID(int=0x4AB)  # of number 1195
FILL = f"""
insert into fairlead.cells (name, cell_id, url, schema_name, created_by)
values ('east', gen_random_uuid(), 'postgresql://east/db', 's', 'tester');
insert into fairlead.tenants (id, slug, name)
select lpad(to_hex(n), 32, '0')::uuid, 'tenant-' || n, 'Tenant' from generate_series(1, {MANY}) n;
insert into fairlead.tenant_cells (tenant_id, slug, cell) select id, slug, 'east' from fairlead.tenants;
insert into fairlead.job_definitions (id, key)
select lpad(to_hex(n), 32, '0')::uuid, 'definition-' || n from generate_series(1, {SOME}) n;
insert into fairlead.hosts (id, tenant_id, name)
select lpad(to_hex(n), 32, '0')::uuid, lpad(to_hex(n), 32, '0')::uuid, 'host-' || n from generate_series(1, {SOME}) n;
insert into fairlead.resources (id, tenant_id, host_id, kind, name)
select id, tenant_id, id, 'disk', replace(name, 'host', 'disk') from fairlead.hosts;
insert into fairlead.users (id, tenant_id, email, role)
select id, tenant_id, replace(name, 'host', 'user') || '@example.com', 'viewer' from fairlead.hosts;
analyze fairlead.tenants, fairlead.tenant_cells, fairlead.job_definitions, fairlead.hosts, fairlead.resources, fairlead.users
"""
BY_NAME = {
    "tenant": (tenants.sql.get, "tenant-1195"),
    "gate of a tenant": (gates.sql.hold_tenant, "tenant-1195"),
    "key of a tenant": (sealing.sql.current, "tenant-1195"),
    "tenant of any cell": (tenant_moves.sql.identify, "tenant-1195"),
    "definition": (definitions.sql.get, "definition-1195"),
    "gate of a host": (gates.sql.hold_host, "host-1195"),
    "host": (f"{hosts.sql.hosts} {hosts.sql.hosts_named}", "host-1195"),
    "resource": (f"{hosts.sql.resources} {hosts.sql.resources_named}", "disk-1195"),
    "user": (access.sql.find_users, "User-1195@example.com"),
}
MANY_NAMES = {"tenants": tenants.sql.ids, "cells of tenants": cells.sql.locate}


@pytest.fixture
async def full_tx(tx: Tx) -> Tx:
    for statement in FILL.split(";"):
        await tx.run(statement)
    return tx


async def count_read(tx: Tx, query: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """How many rows a look-up finds, and how many rows it reads in the largest of its scans."""
    plan = await read_plan(tx, query, values)
    return int(plan[0]["Actual Rows"]), int(max(count_rows(node) for node in plan if "Relation Name" in node))


def list_lookups() -> Iterator[tuple[str, str, dict[str, Any], int]]:
    """The look-ups: a name for it, the query, its values, and how many rows it finds."""
    for what, (query, own_name) in BY_NAME.items():
        for name in (own_name, str(ID), str(ID).upper()):
            for tenant_id in (None, ID):
                values = {"tenant": name, "name": name, "tenant_id": tenant_id}
                yield f"{what} by {name} of {tenant_id}", query, values, 1
    names = [f"tenant-{n}" for n in range(1, ASKED)] + [str(UUID(int=ASKED)).upper(), "nobody"]
    for what, query in MANY_NAMES.items():
        yield what, query, {"names": names}, ASKED


@each_case(
    ("query", "values", "number"),
    [case for _, *case in list_lookups()],
    ids=[name for name, *_ in list_lookups()],
)
async def test_a_look_up_by_name_or_id_reads_only_what_it_finds(
    full_tx: Tx, query: str, values: dict[str, Any], number: int
) -> None:
    found, read = await count_read(full_tx, query, values)
    assert found == number
    assert read <= number + 2


async def test_functions_find_tenants_by_an_index(full_tx: Tx) -> None:
    """A function's plans are hidden: the statement is read from its source."""
    [(source,)] = await full_tx.values("select prosrc from pg_proc where proname = 'hold_tenant'")
    statement = source.partition("perform")[2].partition(";")[0].replace("hold_tenant.tenant", "%(tenant)s")
    for name in ("tenant-1195", str(ID)):
        assert await count_read(full_tx, f"select {statement}", {"tenant": name}) == (1, 1)
        resolve = "select * from fairlead.resolve(%(tenant)s, 'definition-1195', null)"
        assert (await count_read(full_tx, resolve, {"tenant": name}))[1] <= 1
