"""`fairlead migrate`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import click
from rich.text import Text

from fairlead.cli import output
from fairlead.cli.session import CommandSession, command
from fairlead.db import migrate as migrations
from fairlead.db.embedded import EmbeddedPostgres
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
    """Apply the missing migrations. Safe to run concurrently."""
    settings = session.settings()
    async with open_database_url(settings) as url:
        applied = await migrations.up(
            settings.direct_url or url, settings.schema, tell=partial(click.echo, err=True)
        )
    if as_json:
        output.print_json({"applied": [{"number": one.number, "name": one.name} for one in applied]})
    else:
        for one in applied:
            output.console().print(f"applied {one.number:04} {one.name}")
        output.console().print(Text(f"schema {settings.schema} is current", style="green"))


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
    """Exit with 0 if the schema is current, with 1 and the reason if not."""
    settings = session.settings()
    async with open_database_url(settings) as url:
        await migrations.check(settings.direct_url or url, settings.schema)
    if as_json:
        output.print_json({"current": True})
    else:
        output.console().print(Text(f"schema {settings.schema} is current", style="green"))
