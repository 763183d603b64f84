"""`fairlead dev`: runs all of Fairlead with one command."""

import asyncio
import os
import shlex
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import click
import msgspec

from fairlead.actions import commands
from fairlead.cli import demo, output
from fairlead.cli.database import open_database_url
from fairlead.cli.dev_access import ADMIN, MEMBER, open_dev_access
from fairlead.cli.dev_app import DevApp
from fairlead.cli.serve import format_host, stop_signal
from fairlead.cli.session import CommandSession, actor, command
from fairlead.db import migrate
from fairlead.db.addresses import describe_address
from fairlead.db.dev_record import DevRecord, find_records, keep_record
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.errors import DatabaseUnreachable, PortTaken
from fairlead.library.app import Fairlead
from fairlead.runtime.service import wait_any
from fairlead.runtime.trigger_loops import run_triggers
from fairlead.settings import Settings

WATCH_SECONDS = 1.0
DEV_FILE = "dev.json"


@click.command()
@click.argument("app", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, help="0 uses any free port.")
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="The folder of the database (default .fairlead)."
)
@click.option("--no-demo", is_flag=True, help="Without the demo tenant and its jobs.")
@click.option("--no-reload", is_flag=True, help="Do not restart APP when its source changes.")
@command
async def dev(
    session: CommandSession,
    *,
    app: str | None,
    host: str,
    port: int,
    data_dir: Path | None,
    no_demo: bool,
    no_reload: bool,
) -> None:
    """Run Fairlead here: embedded PostgreSQL, migrations, a demo tenant, worker, scheduler, API, until Ctrl-C.

    With APP, such as `hello:fl` (the Fairlead `fl` in hello.py), its jobs run too, and it is reloaded when a Python file
    in this folder or below changes. In another terminal, `fairlead jobs enqueue KEY '{}' --tenant demo` enqueues one.
    """
    # imported here, since the web framework takes longer to import than most commands take to run
    from fairlead.server.app import bind  # noqa: PLC0415

    out = output.console()
    settings = session.settings(data_dir=data_dir)
    stopped = stop_signal()
    try:
        listening = bind(host, port)
    except PortTaken as error:
        raise _explain_taken_port(error, settings) from error
    at = f"http://{format_host(host)}:{listening.getsockname()[1]}"
    out.print(
        f"starting PostgreSQL in {settings.data_dir}" if settings.database_url is None else "connecting"
    )
    async with open_database_url(settings) as url, _keep_database_alive(settings):
        applied = await migrate.up(settings.direct_url or url, settings.schema)
        out.print(f"applied {len(applied)} migration(s)" if applied else "schema is current")
        fl = Fairlead(settings=replace(settings, database_url=url), actor=actor(), name=demo.OWNER)
        if not no_demo:
            demo.add_demo(fl)
        fl.allow_builtins()
        fl.allow_commands()
        fl.allow_secrets()
        async with fl:
            await _publish_commands(fl)
            if not no_demo:
                await demo.make_demo(fl)
            tenant = None if no_demo else demo.TENANT
            # before the first HTTP answer, so that a script that finds the server ready also finds the file
            async with (
                open_dev_access(fl, settings.data_dir / DEV_FILE, tenant) as secrets,
                run_triggers(fl.database, fl.direct_url),
                _run_services(fl, listening, stopped),
            ):
                where = {"url": at, "database_url": url, "tenant": tenant}
                with (
                    _write_dev_file(settings.data_dir, where | secrets),
                    keep_record(_build_record(at, settings)),
                ):
                    _print_running(at, url, settings, secrets, app=app, no_demo=no_demo)
                    if app is not None:
                        await DevApp(app, url, settings, reload=not no_reload).run(stopped)
                    await stopped.wait()
    out.print("stopped")


def _explain_taken_port(error: PortTaken, settings: Settings) -> PortTaken:
    """The refusal; says so if the port is taken by a `fairlead dev` of this folder."""
    here = str(settings.data_dir.resolve())
    running = next((one.url for one in find_records() if one.data_dir == here), None)
    if running is None:
        return PortTaken(f"{error.message} For example: fairlead dev --port 8001")
    return PortTaken(f"`fairlead dev` already runs in this folder, at {running}. Stop it first, with Ctrl-C.")


def _build_record(at: str, settings: Settings) -> DevRecord:
    database = None if settings.database_url is None else describe_address(settings.database_url)
    return DevRecord(at, str(settings.data_dir.resolve()), database)


@asynccontextmanager
async def _run_services(
    fl: Fairlead, listening: socket.socket, stopped: asyncio.Event
) -> AsyncIterator[None]:
    """Serve HTTP and run the demo's jobs during the block; sets `stopped` if either ends by itself."""
    from fairlead.server.app import create_app, create_server  # noqa: PLC0415

    server = create_server(create_app(fl))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    # when stopped, the worker releases running jobs without waiting for them
    working = asyncio.create_task(_run_worker(fl, stopped))
    for task in (serving, working):
        task.add_done_callback(lambda _: stopped.set())
    try:
        await wait_any(server.up, stopped)
        yield
    finally:
        output.console().print("\nstopping")
        stopped.set()
        server.should_exit = True
        await asyncio.gather(serving, working)


async def _run_worker(fl: Fairlead, stopped: asyncio.Event) -> None:
    """Run jobs until `stopped` is set; restart the worker if the database was unreachable at its start."""
    while not stopped.is_set():
        try:
            await fl.work(stopped, stopped)
        except DatabaseUnreachable as error:
            output.console(stderr=True).print(f"restarting the worker: {error.message}")
            await wait_any(stopped, seconds=WATCH_SECONDS)


async def _publish_commands(fl: Fairlead) -> None:
    """Publish the commands of fairlead.toml, so that they can be enqueued without a sync."""
    if fl.commands:
        specs = [one.spec for one in fl.commands.values()]
        await fl.database.transact(lambda tx: commands.sync_commands(tx, fl.principal, specs))
        output.console().print(f"the worker also runs the commands {', '.join(sorted(fl.commands))}")


@asynccontextmanager
async def _keep_database_alive(settings: Settings) -> AsyncIterator[None]:
    """Restart the embedded PostgreSQL during the block if it dies."""
    if settings.database_url is not None:
        yield
        return
    embedded = EmbeddedPostgres(settings.data_dir)

    async def watch() -> None:
        while True:
            await asyncio.to_thread(embedded.start)
            await asyncio.sleep(WATCH_SECONDS)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await asyncio.to_thread(embedded.stop)


@contextmanager
def _write_dev_file(data_dir: Path, said: Mapping[str, str | None]) -> Iterator[None]:
    """Write `dev.json` beside the database during the block, so that scripts find the server. Only this user can read it."""
    path = data_dir / DEV_FILE
    text = msgspec.json.encode(said)
    _write_private(path, text)
    try:
        yield
    finally:
        if path.exists() and path.read_bytes() == text:  # another `fairlead dev` may have replaced it
            path.unlink()


def _write_private(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    fresh.replace(path)


def _print_running(
    at: str, url: str, settings: Settings, secrets: Mapping[str, str], *, app: str | None, no_demo: bool
) -> None:
    out = output.console()
    out.print("\nFairlead is running. Ctrl-C stops it.\n", style="bold green")
    facts = {
        "console": f"{at}/console/",
        "sign in as": f"{ADMIN if no_demo else MEMBER}, password {secrets['password']}",
        "or, for all tenants, as": ADMIN,
        "API": f"{at}/api/v1/docs",
        "health": f"{at}/readyz",
        "database": url if settings.database_url is None else describe_address(url),
        "tenant": demo.TENANT,
        "your code": app or "none; `fairlead dev hello:fl` runs the Fairlead `fl` in hello.py",
        "worker": "runs demo.greet, demo.report, demo.export, which fails, and demo.onboard, a durable function that waits",
        "scheduler": "fires schedules and dispatches events" + ("" if no_demo else f": {demo.TRIGGERS}"),
    }
    of_demo = ("or, for all tenants, as", "tenant", "worker") if no_demo else ()
    output.print_facts([(name, text) for name, text in facts.items() if name not in of_demo])
    out.print("\nIn another terminal:\n", style="bold")
    token = secrets.get("tenant_admin_token", secrets["super_admin_token"])
    out.print(f"""  curl -H "Authorization: Bearer {token}" {at}/api/v1/jobs""")
    if no_demo:
        return
    fairlead = " ".join([_find_command(), *_database_options(settings)])
    signed_up = f"""events emit {demo.EVENT} '{{"user": {{"name": "Alan"}}}}' --tenant demo"""
    out.print(f"  {fairlead} jobs list")
    out.print(f"""  {fairlead} jobs enqueue demo.greet '{{"name": "Ada"}}' --tenant demo""")
    out.print(f"  {fairlead} triggers list")
    out.print(f"  {fairlead} {signed_up}\n")


def _find_command() -> str:
    """The `fairlead` command as a user can type it in this folder."""
    ours = Path(sys.executable).with_name("fairlead")
    found = shutil.which("fairlead")
    if found is not None and Path(found).resolve() == ours.resolve():
        return "fairlead"
    here = Path.cwd()
    return str(ours.relative_to(here) if ours.is_relative_to(here) else ours)


def _database_options(settings: Settings) -> list[str]:
    """The options with which other commands use the same database."""
    if settings.database_url is not None:
        return ["--database-url", "…"]
    if settings.data_dir == Settings().data_dir:
        return []
    return ["--data-dir", shlex.quote(str(settings.data_dir))]
