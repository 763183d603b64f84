"""`fairlead migrate`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import click
from rich.text import Text

from fairlead.cli import output
from fairlead.cli.session import CommandSession, command
from fairlead.db import migrate as migrations
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.library.cell_setup import list_other_cells
from fairlead.settings import Settings


@asynccontextmanager
async def open_database_url(settings: Settings) -> AsyncIterator[str]:
    """The database's URL; starts the embedded database if no other is configured."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    embedded = EmbeddedPostgres(settings.data_dir)
    url = await asyncio.to_thread(embedded.start)
    try:
        yield url
    finally:
        await asyncio.to_thread(embedded.stop)


@click.group()
def migrate() -> None:
    """Bring the database's schema up to date."""


@migrate.command()
@output.json_option
@command
async def up(session: CommandSession, *, as_json: bool) -> None:
    """Apply the missing migrations, in all cells. Safe to run concurrently."""
    settings = session.settings()
    async with open_database_url(settings) as url:
        tell = partial(click.echo, err=True)
        applied = await migrations.up(
            settings.direct_url or url, settings.schema, citus=settings.citus, tell=tell
        )
        if not as_json:
            _print_applied(applied, f"schema {settings.schema}")
        cells = {}
        for cell in await list_other_cells(url, settings):
            cells[cell.name] = await migrations.up(cell.url, cell.schema, citus=cell.is_citus, tell=tell)
            if not as_json:
                _print_applied(cells[cell.name], f"cell {cell.name}: schema {cell.schema}")
    if as_json:
        said = {"applied": _list_names(applied)}
        output.print_json(
            said | {"cells": {name: _list_names(done) for name, done in cells.items()}} if cells else said
        )


def _print_applied(applied: Sequence[migrations.Migration], what: str) -> None:
    for one in applied:
        output.console().print(f"applied {one.number:04} {one.name}")
    output.console().print(Text(f"{what} is current", style="green"))


def _list_names(applied: Sequence[migrations.Migration]) -> list[dict[str, Any]]:
    return [{"number": one.number, "name": one.name} for one in applied]


@migrate.command()
@output.json_option
@command
async def status(session: CommandSession, *, as_json: bool) -> None:
    """Show each migration and when it was applied."""
    settings = session.settings()
    async with open_database_url(settings) as url:
        steps = await migrations.status(settings.direct_url or url, settings.schema)
    if as_json:
        output.print_json({"items": steps})
    else:
        output.print_table(
            ("number", "name", "applied"),
            [(f"{one.number:04}", one.name, one.applied_at) for one in steps],
            empty="There are no migrations.",
        )


@migrate.command()
@output.json_option
@command
async def check(session: CommandSession, *, as_json: bool) -> None:
    """Exit with 0 if the schema is current, in all cells, with 1 and the reason if not."""
    settings = session.settings()
    async with open_database_url(settings) as url:
        await migrations.check(settings.direct_url or url, settings.schema)
        for cell in await list_other_cells(url, settings):
            await migrations.check(cell.url, cell.schema)
    if as_json:
        output.print_json({"current": True})
    else:
        output.console().print(Text(f"schema {settings.schema} is current", style="green"))
