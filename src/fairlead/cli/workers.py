"""`fairlead workers`."""

import click
from rich.text import Text

from fairlead.actions import system
from fairlead.actions.system import RegisteredWorker
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command

MOST = 1000


@click.command()
@click.option("--limit", type=click.IntRange(1, MOST), default=100, show_default=True)
@click.option("--after", default="", metavar="ID", help="Continue after the worker with this id.")
@output.json_option
@command
async def workers(session: CommandSession, *, limit: int, after: str, as_json: bool) -> None:
    """List workers: where they run, what they serve, how many jobs they run, and which are stale."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await system.list_workers(
            tx, fl.principal, lease_seconds=fl.settings.lease_seconds, after=after, limit=limit
        )
    if as_json:
        output.print_json({"items": found})
        return
    output.print_table(
        ("id", "state", "running", "last seen", "started", "version", "host", "tenant", "serving"),
        [_row(one) for one in found],
        empty="There are no workers. Start one with: fairlead worker APP",
    )


def _row(one: RegisteredWorker) -> tuple[object, ...]:
    state = Text("stale", "bold red") if one.stale else Text("alive", "green")
    running = f"{one.running_count}/{one.concurrency}"
    serving = ", ".join(one.queues) or "everything"
    return (
        one.worker_id,
        state,
        running,
        one.last_seen_at,
        one.started_at,
        one.version,
        one.hostname,
        one.tenant or "all",
        serving,
    )
