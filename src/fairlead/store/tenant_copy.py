"""Copy the rows of a tenant from one cell to another, compare them, and remove them.

The catalogue says which tables have rows of tenants: those with a column `tenant_id`. The others are named here.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import NamedTuple
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.errors import CellInvalid, CopyDiffers
from fairlead.model.tenant_move import CopyProgress
from fairlead.placement import Placement

sql = queries_beside(__file__)

# Tables with rows of tenants and without `tenant_id`: how a tenant's rows are found.
FOUND_BY = {
    "idempotency_keys": "r.scope_id = <tenant>",
    "handovers": "r.job_id in (select l.job_id from fairlead.leases l where l.tenant_id = <tenant>)",
    "source_messages": "r.source in (select s.name from fairlead.sources s where s.tenant_id = <tenant>)",
}
# Tables that are not copied, and why.
NOT_COPIED = {
    "tenants": "its row is changed by each step",
    "cells": "the directory",
    "tenant_cells": "the directory",
    "tenant_moves": "the directory",
    "allotments": "what a cell may run of a definition",
    "allotment_grants": "what the cells may run of a definition",
    "cell_rounds": "of the cell's worker processes",
    "job_definitions": "the same in all cells; those that the target lacks are added",
    "definition_versions": "of a cell's definitions",
    "system": "of the cell",
    "duties": "of the cell",
    "pulse": "of the cell",
    "checks": "of the cell",
    "migrations": "of the cell",
    "function_sources": "of the cell",
    "limit_locks": "claims make them when they need them",
    "rate_buckets": "a tenant's rates begin anew in its new cell",
    "account_mails": "about jobs of the tenant global, which is in every cell",
    "oidc_sign_ins": "sign-ins under way, of people whose tenant is not known yet",
    "oidc_logouts": "of all tenants: hashes of the logout tokens that this cell received",
    "allowances": "rate limits, of minutes",
    "openings": "the servers renew them",
    "job_workers": "workers report to the cells that they serve",
    "lost_workers": "of the cell's workers",
    "worker_claims": "kept for an hour, for claims whose answers were lost",
}
# Tables from which nothing can be removed: when the tenant comes back, only new rows are added.
APPEND_ONLY = {"audit_log"}
# Besides foreign keys: these rows are found by, or counted into, the rows of others, and so are removed before them.
PARENTS = {
    "handovers": {"leases"},
    "source_messages": {"sources"},
    "error_group_jobs": {"error_group_changes"},
}
# What is copied in place of a column's value.
INSTEAD = {
    ("tenant_use", "roomy_until"): "'-infinity'::timestamptz",
    # definitions have other versions in other cells
    ("workflow_steps", "checked_version"): "null::integer",
}
# Removed together: the checks of consistency compare them.
UNFINISHED = (
    "handovers",
    "deliveries",
    "ready",
    "later",
    "leases",
    "key_locks",
    "active_keys",
    "expiries",
    "debounces",
    "counts",
    "count_levels",
    "ended_steps",
    "ended_children",
)
UNFINISHED_RECORDS = {"job_records": "r.status <= 'running'", "workflow_runs": "r.status = 'running'"}

BLOCK = 65_536
TELL_SECONDS = 0.5
REMOVE = 5000

Tell = Callable[[CopyProgress], Awaitable[None]]


class StoredTable(msgspec.Struct, frozen=True):
    """A table as the catalogue has it."""

    name: str
    columns: list[str]
    parents: list[str]


class TenantTable(NamedTuple):
    """A table with rows of tenants; `values` are the expressions that are copied into its columns."""

    name: str
    columns: Sequence[str]
    values: Sequence[str]
    where: str

    def write(self, statement: str, *, values: bool = False, also: str | None = None) -> str:
        """The statement for this table; with `values`, of the expressions instead of the columns."""
        names = ", ".join(_quote(name) for name in self.columns)
        columns = (
            ", ".join(self.values) if values else ", ".join(f"r.{_quote(name)}" for name in self.columns)
        )
        where = self.where if also is None else f"{self.where} and {also}"
        return (
            statement.replace("<table>", self.name)
            .replace("<columns>", columns)
            .replace("<names>", names)
            .replace("<where>", where)
        )


async def list_tables(tx: Tx) -> list[StoredTable]:
    """All tables of the schema."""
    return await tx.all(StoredTable, sql.tables, {"schema": tx.schema})


def sort_out(
    stored: Iterable[StoredTable], tenant_id: UUID, instead: Mapping[tuple[str, str], str]
) -> list[TenantTable]:
    """The tables that are copied, parents first. CellInvalid if a table is unknown here."""
    found = {one.name: one for one in stored}
    order = TopologicalSorter(
        {name: {*one.parents, *PARENTS.get(name, ())} & found.keys() for name, one in found.items()}
    )
    return [
        _describe(found[name], tenant_id, instead) for name in order.static_order() if name not in NOT_COPIED
    ]


def _describe(one: StoredTable, tenant_id: UUID, instead: Mapping[tuple[str, str], str]) -> TenantTable:
    where = FOUND_BY.get(one.name) or ("r.tenant_id = <tenant>" if "tenant_id" in one.columns else None)
    if where is None:
        raise CellInvalid(
            f"The table {one.name!r} of this schema is unknown to this version of Fairlead: a tenant can be moved only by "
            "the version that made the schema. Use it, or run: fairlead migrate"
        )
    values = [instead.get((one.name, name), f"r.{_quote(name)}") for name in one.columns]
    return TenantTable(one.name, one.columns, values, where.replace("<tenant>", f"'{tenant_id}'::uuid"))


async def copy_tenant(source: Tx, target: Tx, tenant_id: UUID, *, epoch: int, tell: Tell) -> int:
    """Copy a tenant's rows from the snapshot `source` into `target`, where it arrives, and compare them; how many.

    What an earlier copy left there is removed first. CopyDiffers if the rows are not the same.
    """
    stored = await require_same_schema(source, target)
    for tx in (source, target):
        await tx.values(sql.settings)
        await tx.values(sql.mark)
    if await _arrive(source, target, stored, tenant_id, epoch):
        await remove_all(target, tenant_id)
    await _add_definitions(source, target, stored, tenant_id)
    shared = await _match_workflows(source, target, tenant_id)
    tables = sort_out(stored, tenant_id, {**INSTEAD, ("workflow_runs", "workflow_id"): shared})
    counts = await _count(source, tables)
    progress = _Progress(tell, sum(counts.values()))
    for table in tables:
        if counts[table.name]:
            await _copy_table(source, target, table, progress)
    await progress.close()
    return progress.rows


async def _arrive(source: Tx, target: Tx, stored: Iterable[StoredTable], tenant_id: UUID, epoch: int) -> bool:
    """Add the tenant's row; whether the tenant has been in the target before."""
    [[row]] = await source.values(sql.tenant, {"tenant_id": tenant_id})
    names = next(one.columns for one in stored if one.name == "tenants")
    changes = ", ".join(
        f"{_quote(name)} = excluded.{_quote(name)}" for name in names if name not in {"id", "slug"}
    )
    query = sql.arrive.replace("<names>", ", ".join(map(_quote, names))).replace("<changes>", changes)
    arriving = {**row, "placement": Placement.ARRIVING, "moved_to": None, "epoch": epoch}
    arrived = await target.values(query, {"row": json_text(arriving)})
    if not arrived:
        raise CopyDiffers(
            f"The tenant {row['slug']!r} lives in the target already, although the directory says otherwise. "
            "Nothing was copied. Compare the tables tenants of both cells with tenant_cells of the home cell."
        )
    return bool(arrived[0][0])


async def require_same_schema(source: Tx, target: Tx) -> list[StoredTable]:
    """The tables of both cells. CellInvalid if they are not the same, or if this version does not know one."""
    here, there = await list_tables(source), await list_tables(target)
    sort_out(here, UUID(int=0), {})
    known = {one.name: one.columns for one in there}
    for one in here:
        if known.pop(one.name, None) != one.columns:
            raise _different(one.name)
    for name in known:
        raise _different(name)
    return here


def _different(table: str) -> CellInvalid:
    return CellInvalid(
        f"The table {table!r} is not the same in both cells, so they have schemas of different versions. Run "
        "`fairlead migrate` for each cell with the newest version, and move the tenant again."
    )


async def _add_definitions(source: Tx, target: Tx, stored: Sequence[StoredTable], tenant_id: UUID) -> None:
    """Add the definitions that the tenant uses and the target lacks, and let the tenant use those there."""
    query = " union ".join(
        table.write(sql.definition_ids)
        for table in sort_out(stored, tenant_id, {})
        if "definition_id" in table.columns
    )
    names = ", ".join(_quote(name) for one in stored if one.name == "job_definitions" for name in one.columns)
    used = await source.values(
        sql.definitions, {"ids": [one for (one,) in await source.values(query)], "tenant_id": tenant_id}
    )
    for (row,) in used:
        only = None if row["only_tenants"] is None else [str(tenant_id)]
        values = {"row": json_text({**row, "only_tenants": only})}
        await target.run(sql.add_definition.replace("<names>", names), values)
    allowed = [
        UUID(row["id"])
        for (row,) in used
        if row["only_tenants"] is None or str(tenant_id) in row["only_tenants"]
    ]
    await target.run(sql.admit, {"ids": allowed, "tenant_id": tenant_id})


async def _match_workflows(source: Tx, target: Tx, tenant_id: UUID) -> str:
    """The expression for the workflow of a run: shared workflows have other ids in other cells, or are not there."""
    shared = await source.values(sql.shared_workflows, {"tenant_id": tenant_id})
    columns = zip(*shared, strict=True) if shared else ((), (), (), ())
    values = dict(zip(("ids", "keys", "versions", "specs"), map(list, columns), strict=True))
    same = await target.values(sql.same_workflows, values)
    if not shared:
        return "r.workflow_id"
    pairs = dict.fromkeys((row[0] for row in shared), "null") | {old: f"'{new}'" for old, new in same}
    cases = " ".join(f"when '{old}' then {new}::uuid" for old, new in pairs.items())
    return f"case r.workflow_id {cases} else r.workflow_id end"


async def _count(tx: Tx, tables: Sequence[TenantTable]) -> dict[str, int]:
    query = " union all ".join(table.write(sql.count) for table in tables)
    return {name: int(rows) for name, rows in await tx.values(query)}


class _Progress:
    """Counts rows, and reports them now and then."""

    def __init__(self, tell: Tell, of: int) -> None:
        self._tell = tell
        self._of = of
        self._told = time.monotonic()
        self._table = ""
        self.rows = 0

    async def add(self, table: str, rows: int) -> None:
        self.rows += rows
        self._table = table
        if time.monotonic() - self._told > TELL_SECONDS:
            await self.close()

    async def close(self) -> None:
        await self._tell(CopyProgress(self._table, self.rows, self._of))
        self._told = time.monotonic()


async def _copy_table(source: Tx, target: Tx, table: TenantTable, progress: _Progress) -> None:
    [[bound]] = await target.values(table.write(sql.bound))
    is_staged = bound or table.name in APPEND_ONLY  # COPY does not work under row-level security
    if is_staged:
        await target.run(table.write(sql.stage))
    rows = await _stream(source, target, table, sql.take_staged if is_staged else sql.take, progress)
    if table.name in APPEND_ONLY:
        await target.run(table.write(sql.add_missing))
        [[missing]] = await target.values(table.write(sql.missing))
        expected, found = (rows, "0"), (rows - int(missing), "0")
    else:
        if is_staged:
            await target.run(table.write(sql.add_staged))
        expected = await _read_checksum(source, table, values=True)
        found = await _read_checksum(target, table)
    if is_staged:
        await target.run(sql.unstage)
    if expected != found:
        raise CopyDiffers(
            f"The copy of the table {table.name!r} differs: {expected[0]} rows with the checksum {expected[1]} in the "
            f"source, {found[0]} rows with {found[1]} in the target. The copy was taken back; the move can be tried again."
        )


async def _read_checksum(tx: Tx, table: TenantTable, *, values: bool = False) -> tuple[int, str]:
    [[rows, checksum]] = await tx.values(table.write(sql.checksum, values=values))
    return rows, checksum


async def _stream(source: Tx, target: Tx, table: TenantTable, take: str, progress: _Progress) -> int:
    """Stream a table's rows; how many."""
    rows, block, size = 0, list[bytes](), 0
    async with (
        source.copy(table.write(sql.give, values=True)) as given,
        target.copy(table.write(take)) as taken,
    ):
        async for part in given:
            block.append(bytes(part))
            size += len(part)
            if size > BLOCK:
                await taken.write(b"".join(block))
                await progress.add(table.name, len(block))
                rows, block, size = rows + len(block), [], 0
        await taken.write(b"".join(block))
    # one message for each row, the last one is the end of the data
    await progress.add(table.name, len(block) - 1)
    return rows + len(block) - 1


async def remove_all(tx: Tx, tenant_id: UUID) -> None:
    """Remove a tenant's rows in this transaction."""
    for table in await _list_removable(tx, tenant_id):
        await tx.run(table.write(sql.remove))


async def remove_unfinished(tx: Tx, tenant_id: UUID) -> None:
    """Remove a tenant's queue, its unfinished jobs and its counts in this transaction: they belong together."""
    tables = {table.name: table for table in await _list_removable(tx, tenant_id)}
    for name in UNFINISHED:
        await tx.run(tables[name].write(sql.remove))
    for name, also in UNFINISHED_RECORDS.items():
        await tx.run(tables[name].write(sql.remove, also=also))


async def remove_some(tx: Tx, tenant_id: UUID) -> bool:
    """Remove up to some thousand of a tenant's rows; False if there are no more."""
    for table in await _list_removable(tx, tenant_id):
        if await tx.run(table.write(sql.remove_some), {"limit": REMOVE}) == REMOVE:
            return True
    return False


async def _list_removable(tx: Tx, tenant_id: UUID) -> list[TenantTable]:
    """Children first."""
    tables = sort_out(await list_tables(tx), tenant_id, {})
    return [table for table in reversed(tables) if table.name not in APPEND_ONLY]


def _quote(name: str) -> str:
    return f'"{name}"'
