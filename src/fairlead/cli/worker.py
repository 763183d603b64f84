"""`fairlead worker`."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import click
import structlog

from fairlead.cli.byte_size import ByteSize, describe_size
from fairlead.cli.log import announce
from fairlead.cli.session import CommandSession, actor, command
from fairlead.cli.worker_processes import RECYCLE, SERVING, Reports, WorkerProcesses
from fairlead.errors import DatabaseUnreachable, InvalidInput, TenantUnknown
from fairlead.handlers.supervisor import keep_private
from fairlead.library.app import Fairlead
from fairlead.library.cell_group import serve_cells
from fairlead.load import load_app
from fairlead.model.labels import parse_labels
from fairlead.runtime.recycling import RecycleLimits, RecycleReason, Recycling, read_rss
from fairlead.runtime.service import wait_any
from fairlead.runtime.trigger_loops import run_triggers
from fairlead.settings import config_file

log = structlog.get_logger(__name__)

WORN_OUT = 75
# How often an application of `fairlead dev` looks for the tenants that its code names.
TENANT_SECONDS = 1.0


@click.command()
@click.argument("app", required=False)
@click.option(
    "--concurrency", default=100, show_default=True, help="The most jobs that run concurrently in a process."
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="A label of this worker, such as gpu=true, which definitions may require or prefer; may be repeated.",
)
@click.option("--processes", default=1, show_default=True, help="The number of worker processes.")
@click.option("--scheduler", is_flag=True, help="Also fire schedules and dispatch events, in each process.")
@click.option(
    "--workflows",
    is_flag=True,
    help="Also serve ENGINE_RUN (jobs that run workflows) if APP defines no workflows.",
)
@click.option(
    "--server",
    metavar="URL",
    help="Run jobs over HTTP, without a database: the server's URL. FAIRLEAD_TOKEN has the token of a worker.",
)
@click.option(
    "--max-jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Replace a process after N jobs, without a gap: it claims until the new one does, and then drains.",
)
@click.option(
    "--max-rss",
    type=ByteSize(),
    help="Replace a process that uses more memory, such as 512M or 1.5G; commands and isolated functions do not count.",
)
@click.option("--lifeline", type=int, hidden=True)  # a pipe that the parent process holds open
@click.option("--reports", type=int, hidden=True)  # a pipe to the parent process
@click.option("--dev", is_flag=True, hidden=True)  # for `fairlead dev APP`
@command
async def worker(
    session: CommandSession,
    *,
    app: str | None,
    concurrency: int,
    labels: tuple[str, ...],
    processes: int,
    scheduler: bool,
    workflows: bool,
    server: str | None,
    max_jobs: int | None,
    max_rss: int | None,
    lifeline: int | None,
    reports: int | None,
    dev: bool,
) -> None:
    """Run the jobs of APP, such as `jobs:fl`: the Fairlead `fl` in the module `jobs`.

    Also runs the commands of fairlead.toml and the built-in jobs that it enables; without APP, only these.

    The first SIGTERM or Ctrl-C lets running jobs end and releases the rest; the second stops at once.
    """
    if concurrency < 1 or processes < 1:
        raise InvalidInput("--concurrency and --processes must be 1 or more.")
    if server is not None and (scheduler or workflows):
        raise InvalidInput(
            "--scheduler and --workflows need a database: run them in a worker without --server."
        )
    parse_labels(labels, "--label")
    limits = RecycleLimits(max_jobs, max_rss)
    if processes > 1 or (limits and reports is None):
        await _supervise(session, processes)
        return
    fl = load_served_app(session, app, workflows=workflows)
    given_labels = parse_labels(labels, "--label") if labels else parse_labels(fl.settings.labels)
    recycling = _watch_limits(session, limits, reports) if limits else None
    keep_private_from_commands(fl)
    stop, abandon = signals()
    if lifeline is not None:
        _stop_with_parent(session, lifeline, stop)
    if server is not None:
        plan = {"concurrency": concurrency, "labels": given_labels, "recycling": recycling}
        await _work_over_http(session, fl, server, (stop, abandon), **plan)
        return
    if dev:
        await _work_for_dev(session, fl, app, stop)
        return
    tune_garbage_collector()
    async with fl, serve_cells(fl, _run_triggers) if scheduler else nullcontext():
        text, keys = f"serving {describe_served(fl)}; Ctrl-C stops", sorted([*fl.functions, *fl.commands])
        announce(session, "serving", text, stderr=True, definitions=keys)
        await fl.work(
            stop,
            abandon,
            concurrency=concurrency,
            labels=given_labels,
            stopping=partial(_announce_stopping, session),
            recycling=recycling,
        )
    announce(session, "stopped", "stopped", stderr=True)
    _leave_stuck_threads(session, fl)


def _run_triggers(fl: Fairlead, hear: Callable[[str], object]) -> AbstractAsyncContextManager[None]:
    return run_triggers(fl.database, fl.direct_url, hear)


async def _work_over_http(
    session: CommandSession,
    fl: Fairlead,
    server: str,
    events: tuple[asyncio.Event, asyncio.Event],
    **options: Any,
) -> None:
    """Run jobs over HTTP, without a database connection."""
    # the HTTP client takes longer to import than most commands take to run
    from fairlead.cli.http_worker import http_worker_plan  # noqa: PLC0415
    from fairlead.runtime.http_worker import HttpWorker  # noqa: PLC0415

    plan = http_worker_plan(fl, server, stopping=partial(_announce_stopping, session), **options)

    def note_start() -> None:
        text = f"serving {describe_served(fl)} over HTTP; Ctrl-C stops"
        announce(session, "serving", text, stderr=True, definitions=list(plan.keys))

    tune_garbage_collector()
    await HttpWorker(plan).run(*events, note_start)
    announce(session, "stopped", "stopped", stderr=True)
    _leave_stuck_threads(session, fl)


async def _work_for_dev(session: CommandSession, fl: Fairlead, app: str | None, stop: asyncio.Event) -> None:
    """Run jobs in the database of `fairlead dev`, which restarts us; releases running jobs at once when stopped."""
    here = session.settings()  # the environment of `fairlead dev` overrides the settings in APP's code
    fl.settings = replace(fl.settings, database_url=here.database_url, schema=here.schema, citus=here.citus)
    try:
        async with fl:
            await wait_for_tenants(session, fl, stop)
            announce(session, "serving", f"{app}: serving {describe_served(fl)}", stderr=True)
            await fl.work(stop, stop)
    except DatabaseUnreachable as error:
        announce(session, "database_unreachable", error.message, stderr=True)
        sys.exit(WORN_OUT)
    _leave_stuck_threads(session, fl)


async def wait_for_tenants(session: CommandSession, fl: Fairlead, stop: asyncio.Event) -> None:
    """Store the schedules and triggers of the code, as soon as the tenants that they name exist."""
    told = ""
    while not stop.is_set():
        try:
            await fl.sync_schedules()
        except TenantUnknown as error:
            if error.message != told:
                told = error.message
                announce(session, error.code, f"waiting: {told}", stderr=True)
            await wait_any(stop, seconds=TENANT_SECONDS)
        else:
            return


def _leave_stuck_threads(session: CommandSession, fl: Fairlead) -> None:
    """End the process at once if threads are stuck: an ordinary exit would wait for them."""
    if fl.threads.stuck:
        text = f"{fl.threads.stuck} threads do not end; this process exits and must be replaced"
        announce(session, "worn_out", text, stderr=True, threads=fl.threads.stuck)
        os._exit(WORN_OUT)


def _watch_limits(session: CommandSession, limits: RecycleLimits, pipe: int | None) -> Recycling:
    """Report to the parent process when this one claims, and when a limit is reached."""
    used = read_rss()
    if limits.max_rss is not None and used >= limits.max_rss:
        raise InvalidInput(
            f"--max-rss must be more than {describe_size(used)}: the application needs that before its first job."
        )
    reports = Reports(pipe)

    def ask_for_successor(reason: RecycleReason, text: str) -> None:
        announce(session, "recycling", f"recycling: {text}", stderr=True, reason=str(reason))
        reports.send(RECYCLE)

    return Recycling(limits, on_serving=lambda: reports.send(SERVING), on_due=ask_for_successor)


def _announce_stopping(session: CommandSession, running: int) -> None:
    text = f"stopping: {running} jobs are running" if running != 1 else "stopping: 1 job is running"
    announce(session, "stopping", text, stderr=True, running=running)


def load_served_app(session: CommandSession, app: str | None, *, workflows: bool = False) -> Fairlead:
    """The application, or a new Fairlead, with the commands of fairlead.toml; raises InvalidInput if nothing can run."""
    fl = (
        Fairlead(settings=session.settings(), actor=actor()) if app is None else load_with_flags(session, app)
    )
    fl.allow_builtins()
    if workflows:
        fl.allow_engine()
    if not fl.commands:  # APP may have loaded the commands of another file
        fl.allow_commands()
    if not fl.secrets.sources:
        fl.allow_secrets()
    if not fl.functions and not fl.commands:
        raise InvalidInput(
            f"There is nothing to run: {config_file()} has no [commands.…] and enables no built-in job, and "
            + ("no APP was given, such as jobs:fl." if app is None else f"{app} has no functions.")
        )
    return fl


def describe_served(fl: Fairlead) -> str:
    """The functions and commands of a Fairlead, as text."""
    functions, commands = ", ".join(sorted(fl.functions)), ", ".join(sorted(fl.commands))
    if not commands:
        return functions
    return f"{functions} and the commands {commands}" if functions else f"only the commands {commands}"


def keep_private_from_commands(fl: Fairlead) -> None:
    """Hide our environment from commands; warn about commands that run as root, which can read it anyway."""
    if not fl.commands:
        return
    keep_private()
    as_root = sorted(key for key, one in fl.commands.items() if one.uid is None)
    if as_root and hasattr(os, "getuid") and os.getuid() == 0:
        log.warning(
            "commands_run_as_root",
            commands=as_root,
            advice="They can read the worker's environment and every file. Set a user for each in fairlead.toml.",
        )


def tune_garbage_collector() -> None:
    """Exclude imported objects from garbage collection.

    It took a quarter of a worker's time, and held the event loop of a server for up to a third of a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def load_with_flags(session: CommandSession, app: str) -> Fairlead:
    """The application, with the command line's options over its own settings."""
    fl = load_app(app)
    given = {name: value for name, value in session.flags.items() if value is not None}
    fl.settings = replace(fl.settings, **given)
    return fl


def signals() -> tuple[asyncio.Event, asyncio.Event]:
    stop, abandon = asyncio.Event(), asyncio.Event()

    def hear() -> None:
        (abandon if stop.is_set() else stop).set()

    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, hear)
    return stop, abandon


def _stop_with_parent(session: CommandSession, lifeline: int, stop: asyncio.Event) -> None:
    """Drain when the parent process has died: no other process would stop or replace this one."""
    loop = asyncio.get_running_loop()

    def cut() -> None:
        loop.remove_reader(lifeline)
        os.close(lifeline)
        announce(session, "supervisor_gone", "the parent process has died; draining", stderr=True)
        stop.set()

    os.set_inheritable(lifeline, False)
    loop.add_reader(lifeline, cut)


async def _supervise(session: CommandSession, processes: int) -> None:
    """Run this many worker processes; restart each that dies, and replace each that reaches a limit."""
    keep_private()  # the worker processes may run commands
    stop, abandon = signals()
    workers = WorkerProcesses(partial(announce, session, stderr=True), stop, abandon)
    if code := await workers.run(processes):
        sys.exit(code)
