"""`fairlead chaos`."""

import asyncio
import contextlib
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec.structs import asdict, replace
from rich.text import Text

from fairlead.chaos.checks.check_run import MEANINGS, RunResult
from fairlead.chaos.checks.report import BEGIN, END, render_markdown, write_report
from fairlead.chaos.faults.kinds import FAULT_KINDS, choose_kinds
from fairlead.chaos.run import DRAIN_SECONDS, RATE, ChaosOptions, run_chaos
from fairlead.chaos.scenario import LEASE_SECONDS, FleetPlan
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command
from fairlead.errors import InvalidInput
from fairlead.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
FLEET = FleetPlan()
MAX_SEED = 2**32
MOST_SECONDS = 7 * 24 * 3600
MOST_RATE = 100_000
LONGEST_LEASE = 600
# The most findings of each name that the summary shows; the report and JSON have more.
SHOWN = 5


def _count_option(name: str, default: int, what: str) -> Callable[[F], F]:
    return click.option(name, metavar="N", type=int, default=default, show_default=True, help=what)


@click.command()
@click.option("--minutes", type=float, default=5.0, show_default=True, help="How long faults are injected.")
@click.option(
    "--seed", type=int, help="The seed of an earlier run, for the same faults and calls (default: random)."
)
@click.option(
    "--rate", type=float, default=RATE, show_default=True, help="The jobs that clients enqueue each second."
)
@_count_option("--workers", FLEET.workers, "The number of `fairlead worker`.")
@_count_option("--http-workers", FLEET.http_workers, "The number of `fairlead worker --server`.")
@_count_option(
    "--typescript-workers", FLEET.typescript_workers, "The number of workers in TypeScript; they need Node."
)
@_count_option("--servers", FLEET.servers, "The number of `fairlead serve`.")
@_count_option("--schedulers", FLEET.schedulers, "The number of `fairlead scheduler`.")
@_count_option("--agents", FLEET.agents, "The number of `fairlead agent`, all of one host.")
@_count_option("--clients", FLEET.clients, "The number of processes that enqueue.")
@_count_option("--hostile-clients", FLEET.hostile_clients, "The number of clients of a tenant that attacks.")
@click.option(
    "--only", "kinds", metavar="KIND", multiple=True, help="Only faults of this kind; can be repeated."
)
@click.option("--list", "list_kinds", is_flag=True, help="List the kinds of faults, and end.")
@click.option(
    "--lease-seconds",
    type=float,
    default=LEASE_SECONDS,
    show_default=True,
    help="The lease of all workers: longer for a slow or busy machine.",
)
@click.option(
    "--drain-seconds",
    type=float,
    default=DRAIN_SECONDS,
    show_default=True,
    help="After the faults: how long the queue may stand still before that is a finding.",
)
@click.option(
    "--strict-times", is_flag=True, help="A recovery that takes longer than promised is a finding, too."
)
@click.option(
    "--keep",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the history and the logs of all processes here, and keep them. Kept after findings in any case.",
)
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a report in Markdown.",
)
@output.json_option
@command
async def chaos(
    session: CommandSession,
    *,
    minutes: float,
    seed: int | None,
    rate: float,
    kinds: tuple[str, ...],
    list_kinds: bool,
    lease_seconds: float,
    drain_seconds: float,
    strict_times: bool,
    keep: Path | None,
    report: Path | None,
    as_json: bool,
    **numbers: int,
) -> None:
    """Prove Fairlead on this machine: run everything under load, inject faults, then check every job.

    Starts a PostgreSQL of its own; with a database URL it uses a scratch database on that server, which it drops at the end,
    and leaves out faults that need the server. Starts servers, workers, schedulers, agents and clients; kills and stops them,
    and breaks their connections. Ends with 1 if anything was lost, done twice, or otherwise wrong.

    Ctrl-C ends the faults early and checks what was done; a second Ctrl-C stops at once.
    """
    if list_kinds:
        _print_kinds(as_json=as_json)
        return
    options = ChaosOptions(
        folder=Path(),
        seed=secrets.randbelow(MAX_SEED) if seed is None else seed,
        seconds=minutes * 60,
        rate=rate,
        fleet=FleetPlan(**numbers),
        kinds=list(kinds) or None,
        lease_seconds=lease_seconds,
        drain_seconds=drain_seconds,
        strict_times=strict_times,
        database_url=_find_database(session.settings()),
    )
    _check(options)
    _check_report(report)
    options = replace(options, folder=_make_folder(keep))
    out = output.console(stderr=True)
    out.print(Text(f"seed {options.seed}; history and logs in {options.folder}"))
    with _heed_signals() as stop:
        result = await run_chaos(options, lambda text: out.print(Text(text)), stop)
    if report is not None:
        _write_report(report, result)
    _print_result(result, options, as_json=as_json)
    if not result.is_clean:
        sys.exit(1)
    if keep is None:
        shutil.rmtree(options.folder)


def _write_report(file: Path, result: RunResult) -> None:
    """Replace the report in a page that has a place for it, or write a new page."""
    if file.exists():
        write_report(file, result)
    else:
        file.write_text(f"# Chaos\n\n{BEGIN}\n\n{render_markdown(result)}\n{END}\n", encoding="utf-8")


def _print_result(result: RunResult, options: ChaosOptions, *, as_json: bool) -> None:
    if as_json:
        output.print_json({**asdict(result), "folder": str(options.folder)})
        return
    output.print_facts(
        [
            ("seed", result.seed),
            ("jobs", f"{result.counts.get('jobs', 0):,}"),
            ("attempts", f"{result.counts.get('attempts', 0):,}"),
            ("faults", f"{sum(result.faults.values())} of {len(result.faults)} kinds"),
            ("rules checked", len(result.work) - len(result.not_checked)),
            ("findings", sum(result.finding_counts.values())),
            *([("not checked", ", ".join(result.not_checked))] if result.not_checked else []),
            *((f"left out: {what}", why) for what, why in result.left_out.items()),
        ]
    )
    out = output.console()
    if result.is_clean:
        out.print(Text("nothing is wrong", style="green"))
        return
    for name, number in result.finding_counts.items():
        if number:
            out.print(Text.assemble((f"\n{name}", "bold red"), f" ({number}): {MEANINGS[name]}"))
            shown = [one for one in result.findings if one.name == name][:SHOWN]
            for one in shown:
                out.print(Text(f"  {one.subject}: {one.text}"))
    out.print(
        Text(
            f"\nThe history and the logs are in {options.folder}. To inject the same faults again: "
            f"fairlead chaos --seed {result.seed} --minutes {options.seconds / 60:g}"
        )
    )


def _print_kinds(*, as_json: bool) -> None:
    if as_json:
        output.print_json({"items": [{"kind": one.name, "text": one.text} for one in FAULT_KINDS]})
    else:
        output.print_table(("kind", "what it does"), [(one.name, one.text) for one in FAULT_KINDS], empty="")


def _check(options: ChaosOptions) -> None:
    """Refuse what cannot be run, before anything is started."""
    fleet = options.fleet
    if not 0 < options.seconds <= MOST_SECONDS:
        raise InvalidInput("--minutes must be more than 0, and at most a week.")
    if not 0 < options.rate <= MOST_RATE:
        raise InvalidInput(f"--rate must be more than 0, and at most {MOST_RATE} jobs per second.")
    if not 1 <= options.lease_seconds <= LONGEST_LEASE:
        raise InvalidInput(f"--lease-seconds must be 1 to {LONGEST_LEASE}.")
    if not options.drain_seconds > 0:
        raise InvalidInput("--drain-seconds must be more than 0.")
    for name in ("workers", "servers", "schedulers", "clients"):
        if getattr(fleet, name) < 1:
            raise InvalidInput(f"--{name} must be 1 or more: without it, jobs of the run would never end.")
    if min(fleet.http_workers, fleet.typescript_workers, fleet.agents, fleet.hostile_clients) < 0:
        raise InvalidInput(
            "--http-workers, --typescript-workers, --agents and --hostile-clients must be 0 or more."
        )
    choose_kinds(options.kinds)  # refuses unknown ones


def _check_report(report: Path | None) -> None:
    if report is not None and not report.resolve().parent.is_dir():
        raise InvalidInput(f"The folder of --report {report} does not exist. Create it first.")


def _make_folder(keep: Path | None) -> Path:
    """The folder of the run; the history of an earlier run must not be checked with this one's."""
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="fairlead-chaos-run-"))
    if keep.exists() and any(keep.iterdir()):
        raise InvalidInput(f"The folder {keep} is not empty. Give --keep a new one.")
    keep.mkdir(parents=True, exist_ok=True)
    return keep.resolve()


def _find_database(settings: Settings) -> str | None:
    """The user's server, if one is configured."""
    if settings.citus:
        raise InvalidInput(
            "fairlead chaos does not run on Citus. Give it a plain PostgreSQL: --database-url URL"
        )
    return settings.direct_url or settings.database_url


@contextlib.contextmanager
def _heed_signals() -> Iterator[asyncio.Event]:
    """An event that the first SIGINT or SIGTERM sets; the second one stops the command, and all that it has started."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def hear() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, hear)
    try:
        yield stop
    except asyncio.CancelledError:
        output.console(stderr=True).print("stopped, without a check")
        sys.exit(128 + signal.SIGINT)
    finally:
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(one)
