"""`fairlead scheduler`: runs the scheduler, the dispatcher and maintenance."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import click

from fairlead.cli.log import announce
from fairlead.cli.serve import stop_signal
from fairlead.cli.session import CommandSession, command
from fairlead.library.app import Fairlead
from fairlead.library.cell_group import serve_cells
from fairlead.library.tenant_moves import run_move_finisher
from fairlead.runtime.maintenance import run_maintenance
from fairlead.runtime.schema_watch import watch_schema
from fairlead.runtime.trigger_loops import run_triggers


@click.command()
@command
async def scheduler(session: CommandSession) -> None:
    """Fire schedules and dispatch events, until SIGTERM or Ctrl-C. Any number of schedulers may run."""
    stopped = stop_signal()

    @asynccontextmanager
    async def serve(fl: Fairlead, hear: Callable[[str], object]) -> AsyncIterator[None]:
        async with run_triggers(fl.database, fl.direct_url, hear), run_maintenance(fl.database):
            yield

    async with session.open() as fl, serve_cells(fl, serve), run_move_finisher(fl):
        announce(session, "scheduling", "firing schedules and dispatching events; Ctrl-C stops")
        async with watch_schema(fl.database, stopped):
            await stopped.wait()
    announce(session, "stopped", "stopped")
