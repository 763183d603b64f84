"""`fairlead scheduler`: runs the scheduler, the dispatcher and maintenance."""

import click

from fairlead.cli.log import announce
from fairlead.cli.serve import stop_signal
from fairlead.cli.session import CommandSession, command
from fairlead.runtime.maintenance import run_maintenance
from fairlead.runtime.trigger_loops import run_triggers


@click.command()
@command
async def scheduler(session: CommandSession) -> None:
    """Fire schedules and dispatch events, until SIGTERM or Ctrl-C. Any number of schedulers may run."""
    stopped = stop_signal()
    async with session.open() as fl, run_triggers(fl.database, fl.direct_url), run_maintenance(fl.database):
        announce(session, "scheduling", "firing schedules and dispatching events; Ctrl-C stops")
        await stopped.wait()
    announce(session, "stopped", "stopped")
