"""`fairlead scheduler`: runs the scheduler, the dispatcher and maintenance."""

import click

from fairlead.cli.log import announce
from fairlead.cli.serve import stop_signal
from fairlead.cli.session import Session, command
from fairlead.runtime.maintenance import maintaining
from fairlead.runtime.triggering import triggering


@click.command()
@command
async def scheduler(session: Session) -> None:
    """Fire schedules and dispatch events, until SIGTERM or Ctrl-C. Any number of schedulers may run."""
    stopped = stop_signal()
    async with session.open() as fl, triggering(fl.database, fl.direct_url), maintaining(fl.database):
        announce(session, "scheduling", "firing schedules and dispatching events; Ctrl-C stops")
        await stopped.wait()
    announce(session, "stopped", "stopped")
