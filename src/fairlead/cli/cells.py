"""`fairlead cells`."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from fairlead.actions import cells as actions
from fairlead.cli import output
from fairlead.cli.move_progress import MoveProgress
from fairlead.cli.session import CommandSession, command
from fairlead.db.addresses import describe_address
from fairlead.errors import FairleadError, Fault, MoveRefused
from fairlead.library.app import Fairlead
from fairlead.library.cell_rounds import CellRounds
from fairlead.library.cell_setup import prepare_cell
from fairlead.library.rebalance import plan_rebalance
from fairlead.library.tenant_moves import DRAIN_SECONDS, WAIT_SECONDS, list_moves, move_tenant
from fairlead.model.cells import Cell


@click.group()
def cells() -> None:
    """Cells: databases that together hold all tenants. The first one has the directory."""


@cells.command()
@click.argument("name")
@click.argument("url")
@click.option("--schema", default="fairlead", show_default=True, help="Its schema in that database.")
@click.option("--citus", is_flag=True, help="Make it a distributed schema of the Citus cluster at URL.")
@output.json_option
@command
async def add(
    session: CommandSession, *, name: str, url: str, schema: str, citus: bool, as_json: bool
) -> None:
    """Add a cell: migrate the database at URL, and let it hold tenants.

    URL may be env:NAME or file:/path, read by each process; otherwise it is stored in the home cell as it is.
    """
    async with session.open() as fl:
        async with fl.transaction() as tx:
            await actions.check_name(tx, fl.principal, name)
        cell_id = await prepare_cell(actions.resolve_url(url), schema, is_citus=citus)
        async with fl.transaction() as tx:
            added = await actions.add(
                tx, fl.principal, name=name, cell_id=cell_id, url=url, schema=schema, is_citus=citus
            )
        await fl.cells.refresh()
        await CellRounds(fl.cells).run_now()  # it has the definitions from now on
    if as_json:
        output.print_json(_describe(added))
    else:
        output.console().print(f"added the cell {added.name}")


@cells.command("list")
@output.json_option
@command
async def list_cells(session: CommandSession, *, as_json: bool) -> None:
    """List the cells: where they are, how many tenants they have, what they carry."""
    async with session.open() as fl:
        rows = await asyncio.gather(*(_read(fl, cell) for cell in fl.cells.by_name.values()))
    if as_json:
        output.print_json(rows)
        return
    output.print_table(
        ("cell", "database", "schema", "tenants", "waiting", "running", "size", "state"),
        [
            (
                row["name"],
                row["database"],
                row["schema"],
                row.get("tenants", "-"),
                row.get("waiting", "-"),
                row.get("running", "-"),
                f"{row['bytes'] / 1_000_000:.1f} MB" if "bytes" in row else "-",
                row["state"],
            )
            for row in rows
        ],
        empty="There is only this database. Add a cell with: fairlead cells add NAME URL",
    )


@cells.command()
@click.argument("name")
@click.option("--undo", is_flag=True, help="Give it new tenants again.")
@command
async def drain(session: CommandSession, *, name: str, undo: bool) -> None:
    """Give a cell no new tenants. `fairlead cells rebalance` then moves its tenants away."""
    async with session.open() as fl, fl.transaction() as tx:
        await actions.drain(tx, fl.principal, name, is_draining=not undo)
    output.console().print(f"the cell {name} gets {'new' if undo else 'no new'} tenants")


@cells.command()
@click.argument("name")
@command
async def remove(session: CommandSession, *, name: str) -> None:
    """Remove a cell that has no tenants from the directory; its database stays as it is."""
    async with session.open() as fl, fl.transaction() as tx:
        await actions.remove(tx, fl.principal, name)
    output.console().print(f"removed the cell {name}")


@cells.command("moves")
@output.json_option
@command
async def list_open_moves(session: CommandSession, *, as_json: bool) -> None:
    """List the moves of tenants that have begun and not ended."""
    async with session.open() as fl:
        moves = await list_moves(fl)
    if as_json:
        output.print_json(moves)
        return
    output.print_table(
        ("tenant", "from", "to", "step", "rows", "since", "by", "last error"),
        [
            (
                one.slug,
                one.source,
                one.target,
                one.step.value,
                f"{one.detail['rows']} of {one.detail['of']}" if "of" in one.detail else "",
                one.started_at,
                one.started_by,
                one.last_error or "",
            )
            for one in moves
        ],
        empty="No tenant is being moved.",
    )


@cells.command()
@click.option("--dry-run", is_flag=True, help="Only print what would move, and why.")
@click.option("--empty", metavar="CELL", help="Move all tenants of this cell away.")
@click.option(
    "--drain-seconds", default=DRAIN_SECONDS, show_default=True, help="As in: fairlead tenants move"
)
@click.option("--wait-seconds", default=WAIT_SECONDS, show_default=True, help="As in: fairlead tenants move")
@output.json_option
@command
async def rebalance(
    session: CommandSession,
    *,
    dry_run: bool,
    empty: str | None,
    drain_seconds: float,
    wait_seconds: float,
    as_json: bool,
) -> None:
    """Move tenants, one after the other, so that the cells carry the same load, and draining cells none.

    Tenants that cannot be moved now are named at the end.
    """
    async with session.open() as fl:
        moves = await plan_rebalance(fl, empty=empty)
        if as_json:
            output.print_json([one._asdict() for one in moves])
        else:
            output.print_table(
                ("tenant", "from", "to", "seconds a day", "why"),
                [(one.tenant, one.source, one.target, f"{one.load:.0f}", one.why) for one in moves],
                empty="No tenant has to move.",
            )
        left: dict[str, FairleadError] = {}
        for planned in () if dry_run else moves:
            try:
                with MoveProgress(shown=not as_json) as progress:
                    await move_tenant(
                        fl,
                        planned.tenant,
                        target=planned.target,
                        drain_seconds=drain_seconds,
                        wait_seconds=wait_seconds,
                        tell=progress,
                    )
            except FairleadError as error:
                left[planned.tenant] = error
                continue
            if not as_json:
                output.console().print(f"{planned.tenant} lives in the cell {planned.target}")
    if left:
        raise _build_left_error(left, len(moves))


def _build_left_error(left: Mapping[str, FairleadError], number: int) -> MoveRefused:
    tenant, why = next(iter(left.items()))
    return MoveRefused(
        f"{len(left)} of {number} tenants were not moved: {tenant}: {why.message} When that is done, run the command again.",
        [Fault(tenant, error.message) for tenant, error in left.items()],
    )


async def _read(fl: Fairlead, cell: Cell) -> dict[str, Any]:
    row = _describe(cell)
    try:
        member = await fl.cells.member(cell.name)
        async with member.transaction() as tx:
            load = await actions.read_load(tx, member.principal)
    except FairleadError as error:
        return {**row, "state": f"away: {error.message}"}
    return {
        **row,
        "database": member.database.address,
        "tenants": load.tenants,
        "waiting": load.waiting,
        "running": load.running,
        "run_ms_last_day": load.run_ms,
        "bytes": load.bytes,
    }


def _describe(cell: Cell) -> dict[str, Any]:
    """A cell without its URL, which may have a password."""
    return {
        "name": cell.name,
        "home": cell.is_home,
        "citus": cell.is_citus,
        "schema": cell.schema_name,
        "database": "" if cell.url is None else _address(cell.url),
        "state": "draining" if cell.is_draining else "open",
    }


def _address(url: str) -> str:
    return url if url.startswith(actions.SECRET_PREFIXES) else describe_address(url)
