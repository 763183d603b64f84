"""`fairlead serve`: runs the API, and with an option the scheduler."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import click

from fairlead.cli.log import announce
from fairlead.cli.session import CommandSession, command
from fairlead.cli.worker import load_with_flags, tune_garbage_collector
from fairlead.library.app import Fairlead
from fairlead.runtime.schema_watch import watch_schema
from fairlead.runtime.trigger_loops import run_triggers


@click.command()
@click.argument("app", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, help="0 uses any free port.")
@click.option("--scheduler", is_flag=True, help="Also fire schedules and dispatch events.")
@command
async def serve(session: CommandSession, *, app: str | None, host: str, port: int, scheduler: bool) -> None:
    """Serve the HTTP API, until SIGTERM or Ctrl-C. Jobs run elsewhere: fairlead worker.

    With APP, such as `jobs:fl`, its definitions and schedules are registered, and POST /jobs/tick, if FAIRLEAD_ENABLE_TICK
    is on, runs its functions.
    """
    # imported here, since the web framework takes longer to import than most commands take to run
    from fairlead.server.app import bind, create_app, create_server  # noqa: PLC0415

    listening = bind(host, port)
    stopped = stop_signal()
    async with (
        _open_app(session, app) as fl,
        run_triggers(fl.database, fl.direct_url) if scheduler else nullcontext(),
        watch_schema(fl.database, stopped),
    ):
        server = create_server(create_app(fl))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        stopping = asyncio.create_task(stopped.wait())
        await server.up.wait()
        tune_garbage_collector()
        at = f"http://{format_host(host)}:{listening.getsockname()[1]}"
        announce(
            session, "serving", f"serving {at}/api/v1, described at {at}/api/v1/docs", url=f"{at}/api/v1"
        )
        if fl.settings.enable_tick and not fl.functions:
            announce(session, "tick_has_nothing_to_run", _NOTHING_TO_RUN, stderr=True)
        try:
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            server.should_exit = True
            await serving
    announce(session, "stopped", "stopped")


_NOTHING_TO_RUN = (
    "FAIRLEAD_ENABLE_TICK is on, but POST /jobs/tick has nothing to run here: "
    "give the application whose functions it runs, such as `fairlead serve jobs:fl`"
)


@asynccontextmanager
async def _open_app(session: CommandSession, app: str | None) -> AsyncIterator[Fairlead]:
    """Open the application and register its schedules; without an application, a Fairlead that only serves."""
    if app is None:
        async with session.open() as fl:
            yield fl
        return
    async with load_with_flags(session, app) as fl:
        await fl.sync_schedules()
        yield fl


def stop_signal() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set."""
    stopped = asyncio.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, stopped.set)
    return stopped


def format_host(host: str) -> str:
    """A host as it is written in a URL."""
    return f"[{host}]" if ":" in host else host
