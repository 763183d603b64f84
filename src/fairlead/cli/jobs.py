"""`fairlead jobs`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO
from uuid import UUID

import click
import msgspec
from msgspec.structs import replace
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fairlead.actions import bulk_jobs, hosts, stats, tenants
from fairlead.actions import jobs as actions
from fairlead.cli import job_output, output
from fairlead.cli.bulk import BulkVerb, change_many
from fairlead.cli.job_filter import build_filter, job_filter_options, retry_filter_options
from fairlead.cli.json_input import read_json
from fairlead.cli.logs import logs
from fairlead.cli.near_names import suggest_definition
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.cli.steps import history, signal, steps
from fairlead.cli.watch import watch
from fairlead.errors import Fault, InvalidInput
from fairlead.library.app import Fairlead
from fairlead.model.field import meta_of, type_of
from fairlead.model.job import EDITABLE, OPTIONS, Job, JobStatus, NewJob
from fairlead.model.request import parse_edit, parse_request, unknown_tenant
from fairlead.model.summary import JobTimes


@click.group()
def jobs() -> None:
    """Enqueue, list, edit, cancel and retry jobs."""


jobs.add_command(logs)
jobs.add_command(watch)
jobs.add_command(steps)
jobs.add_command(history)
jobs.add_command(signal)


# Options that take more on the command line than in a request.
_OWN_OPTIONS = {
    "delay": click.option(
        "--delay", "--in", "delay", help="How long to wait before it may run, such as 90s, 5m, 2h or 1d."
    ),
    "tags": click.option(
        "--tags",
        "--tag",
        "tags",
        multiple=True,
        help="A tag by which the job is found; up to 16, each with an option of its own.",
    ),
    "timeout": click.option(
        "--timeout",
        help="How long each attempt may take, such as 90s or 5m, instead of its definition's timeout.",
    ),
    "expires_in": click.option(
        "--expires-in", help="Cancel the job if it has not started so long after its time, such as 5m or 2h."
    ),
    "unique_for": click.option(
        "--unique-for",
        help="Keep the dedupe key taken for so long, such as 10m or 1d, even if the job ends before.",
    ),
    "debounce": click.option(
        "--debounce",
        metavar="KEY:TIME[:MAX[:first]]",
        help="Move the waiting job of this key to TIME from now, but not past MAX after its first enqueue, with this "
        "payload or (first) its own, such as search-42:30s:10m.",
    ),
    "host_id": click.option("--host-id", "--host", "host", help="Run it on this host: its id or name."),
    "resource_id": click.option(
        "--resource-id", "--resource", "resource", help="Run it on the host of this resource: its id or name."
    ),
}


def _job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each option of a job."""
    for name, field in reversed(OPTIONS.items()):
        add = _OWN_OPTIONS.get(name) or click.option(
            f"--{name.replace('_', '-')}",
            type=int if type_of(field) is int else str,
            help=meta_of(field).description,
        )
        function = add(function)
    return function


@jobs.command()
@click.argument("definition", required=False)
@click.argument("payload", required=False)
@click.option("--tenant", help="The job's tenant: slug or id.")
@_job_options
@click.option(
    "--file",
    type=click.File("rb"),
    help='Many jobs, all or none: a JSON object per line, {"definition": …, "tenant": …, "payload": …}. - is stdin.',
)
@output.json_option
@command
async def enqueue(session: CommandSession, *, file: BinaryIO | None, as_json: bool, **request: Any) -> None:
    """Enqueue one job with its PAYLOAD as JSON, or many with --file."""
    if file is not None:
        if extra := sorted(
            name for name, value in request.items() if value not in (None, ()) and name != "tenant"
        ):
            raise InvalidInput(
                f"--file cannot be combined with {', '.join(extra)}: put these into the lines of the file."
            )
        await _enqueue_file(session, file, request["tenant"], as_json=as_json)
        return
    given = {name: value for name, value in request.items() if value not in (None, ())}
    _require_definition_and_tenant(given)
    if "payload" in given:
        given["payload"] = read_json(given["payload"])
    host, resource = given.pop("host", None), given.pop("resource", None)
    new = parse_request(given)
    async with session.open() as fl, suggest_definition(fl, new.definition):
        enqueued = await fl.submit(await _resolve_host(fl, new, host, resource))
        job = await fl.read(enqueued.id)
    if as_json:
        output.print_json({**msgspec.to_builtins(job), "deduplicated": enqueued.deduplicated})
    else:
        output.console().print(f"{'already active' if enqueued.deduplicated else 'enqueued'} {enqueued.id}")


def _require_definition_and_tenant(given: dict[str, Any]) -> None:
    """Refuse a job without a definition or a tenant, with the names of the command line's options."""
    for name, how in (
        ("definition", "DEFINITION, such as report"),
        ("tenant", "--tenant, such as --tenant acme; `fairlead tenants list` lists those that there are"),
    ):
        if name not in given:
            raise InvalidInput(f"A job needs a {name}. Give {how}.", [Fault(name, "is required")])


async def _resolve_host(fl: Fairlead, new: NewJob, host: str | None, resource: str | None) -> NewJob:
    """The request with the ids of the named host and resource."""
    if host is None and resource is None:
        return new
    async with fl.transaction() as tx:
        tenant = await tenants.find(tx, fl.principal, new.tenant)
        if tenant is None:
            raise unknown_tenant(new.tenant)
        principal = replace(fl.principal, tenant_id=tenant.id)
        at = None if host is None else (await hosts.find(tx, principal, host)).id
        on = None if resource is None else (await hosts.find_resource(tx, principal, resource)).id
    return msgspec.structs.replace(new, host_id=at, resource_id=on)


async def _enqueue_file(
    session: CommandSession, file: BinaryIO, tenant: str | None, *, as_json: bool
) -> None:
    requests = [_read_line(number, line, tenant) for number, line in enumerate(file, 1) if line.strip()]
    async with session.open() as fl:
        with open_progress_bar(len(requests), as_json=as_json) as progress:
            enqueued = await fl.enqueue_many(requests, progress=progress)
    deduplicated = sum(one.deduplicated for one in enqueued)
    if as_json:
        output.print_json({"items": [{"id": one.id, "deduplicated": one.deduplicated} for one in enqueued]})
    else:
        output.console().print(f"enqueued {len(enqueued) - deduplicated}, already active {deduplicated}")


@contextmanager
def open_progress_bar(total: int, *, as_json: bool) -> Iterator[Any]:
    """A progress bar on a terminal; none with --json."""
    columns = (TextColumn("enqueueing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=output.console(stderr=True), disable=as_json or not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task("enqueueing", total=total)
        yield lambda done: bar.update(task, completed=done)


def _read_line(number: int, line: bytes, tenant: str | None) -> NewJob:
    try:
        request = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"Line {number} is not JSON: {error}. Nothing was enqueued.") from error
    if tenant is not None and isinstance(request, dict):
        request.setdefault("tenant", tenant)
    try:
        return parse_request(request)
    except InvalidInput as error:
        raise InvalidInput(f"Line {number}: {error.message} Nothing was enqueued.", error.faults) from error


@jobs.command("list")
@job_filter_options
@click.option("--limit", default=20, show_default=True)
@click.option("--offset", default=0, show_default=True)
@click.option("--cursor", help="Continue after the page that printed this cursor.")
@output.json_option
@list_command
async def list_jobs(
    session: CommandSession, *, limit: int, offset: int, cursor: str | None, as_json: bool, **filters: Any
) -> None:
    """List jobs, newest first."""
    wanted = build_filter(**filters)
    async with session.open() as fl, fl.transaction() as tx:
        page = await actions.list_jobs(tx, fl.principal, wanted, limit=limit, offset=offset, cursor=cursor)
    if as_json:
        output.print_json(page)
        return
    output.print_table(
        job_output.COLUMNS,
        [job_output.job_row(job) for job in page.items],
        empty="No matching jobs on this page; older jobs follow."
        if page.next_cursor
        else "No matching jobs. Enqueue one with: fairlead jobs enqueue DEFINITION --tenant TENANT '{}'",
    )
    if page.next_cursor:
        output.console(stderr=True).print(f"more: --cursor {page.next_cursor}", style="dim")


@jobs.command()
@click.argument("job_id", type=click.UUID)
@output.json_option
@command
async def show(session: CommandSession, *, job_id: UUID, as_json: bool) -> None:
    """Show one job and its attempts."""
    async with session.open() as fl, fl.transaction() as tx:
        job, attempts = await actions.show_job(tx, fl.principal, job_id)
    if as_json:
        output.print_json({**msgspec.to_builtins(job), "attempts": attempts})
    else:
        job_output.print_job(job)
        job_output.print_attempts(attempts)
        job_output.print_traceback(job)


@jobs.command()
@click.option("--tenant", required=True, help="The jobs' tenant: slug or id.")
@output.json_option
@command
async def times(session: CommandSession, *, tenant: str, as_json: bool) -> None:
    """Show how long a tenant's newest 1,000 jobs waited and ran: percentiles in milliseconds."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await stats.get_times(tx, fl.principal, tenant=tenant)
    if as_json:
        output.print_json(found)
        return
    whole = JobTimes(definition_key=None, jobs=found.jobs, wait_ms=found.wait_ms, run_ms=found.run_ms)
    output.print_table(
        job_output.TIMES_COLUMNS,
        [job_output.times_row(one) for one in (whole, *found.definitions) if one.jobs],
        empty="No job of this tenant has ended yet.",
    )


def _edit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each value that an edit can change."""
    for name, field in reversed(EDITABLE.items()):
        add = _OWN_OPTIONS.get(name) or click.option(
            f"--{name.replace('_', '-')}",
            type=int if type_of(field) is int else str,
            help=meta_of(field).description,
        )
        function = add(function)
    return function


@jobs.command()
@click.argument("job_id", type=click.UUID)
@click.option("--payload", help="The whole new payload (JSON).")
@_edit_options
@click.option("--no-tags", is_flag=True, help="Remove all tags.")
@output.json_option
@command
async def edit(
    session: CommandSession,
    *,
    job_id: UUID,
    payload: str | None,
    tags: tuple[str, ...],
    no_tags: bool,
    as_json: bool,
    **changes: Any,
) -> None:
    """Change the queued job JOB_ID: its payload, priority, time or tags. Options that are not given stay as they are."""
    if tags and no_tags:
        raise InvalidInput("Give --tags or --no-tags, not both.", [Fault("tags", "given twice")])
    given = {**changes, "payload": None if payload is None else read_json(payload)}
    given["tags"] = tags or (() if no_tags else None)
    change = parse_edit({name: value for name, value in given.items() if value is not None})
    async with session.open() as fl:
        job = await fl.edit(job_id, **msgspec.structs.asdict(change))
    _print_answer(job, "edited", as_json=as_json)


CANCEL = BulkVerb(bulk_jobs.cancel, "cancel", "canceled", "are queued or running")
RETRY = BulkVerb(bulk_jobs.retry, "retry", "queued again", "failed, were dead-lettered or canceled")


def _bulk_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a bulk action."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Only count the jobs."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask."),
        click.option(
            "--limit",
            type=click.IntRange(1, bulk_jobs.MOST),
            default=bulk_jobs.MOST,
            show_default=True,
            help="The most jobs to change.",
        ),
    ):
        function = option(function)
    return function


@jobs.command()
@click.argument("job_id", type=click.UUID, required=False)
@job_filter_options
@_bulk_options
@output.json_option
@command
async def cancel(
    session: CommandSession,
    *,
    job_id: UUID | None,
    limit: int,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Cancel the job JOB_ID, or all matching jobs: queued ones at once; running ones are asked to stop."""
    wanted = build_filter(**filters)
    if job_id is None:
        await change_many(session, CANCEL, wanted, limit=limit, yes=yes, dry_run=dry_run, as_json=as_json)
        return
    _refuse_filter(wanted, dry_run=dry_run)
    async with session.open() as fl:
        job = await fl.cancel(job_id)
    _print_answer(
        job, "canceled" if job.status is JobStatus.CANCELED else "cancel requested", as_json=as_json
    )


@jobs.command()
@click.argument("job_id", type=click.UUID, required=False)
@click.option("--payload", help="Run JOB_ID with this payload instead (JSON).")
@click.option(
    "--from-step",
    help="Run the durable function JOB_ID again from this step on: its name, or its place in `fairlead jobs steps`.",
)
@retry_filter_options
@_bulk_options
@output.json_option
@command
async def retry(
    session: CommandSession,
    *,
    job_id: UUID | None,
    payload: str | None,
    from_step: str | None,
    limit: int,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Queue the job JOB_ID again, or all matching failed, dead-lettered or canceled jobs, with new attempts."""
    wanted = build_filter(**filters)
    edited = None if payload is None else read_json(payload)
    if job_id is None:
        if edited is not None:
            raise InvalidInput("--payload works only with one job: give its id.")
        if from_step is not None:
            raise InvalidInput("--from-step works only with one job: give its id.")
        await change_many(session, RETRY, wanted, limit=limit, yes=yes, dry_run=dry_run, as_json=as_json)
        return
    _refuse_filter(wanted, dry_run=dry_run)
    async with session.open() as fl:
        job = await fl.retry(job_id, payload=edited, from_step=from_step)
    _print_answer(job, "queued again", as_json=as_json)


@jobs.command()
@click.argument("job_id", type=click.UUID)
@click.option(
    "--from-step",
    help="Run a durable function from this step on: its name, or its place in `fairlead jobs steps`. Without it, from the start.",
)
@output.json_option
@command
async def replay(session: CommandSession, *, job_id: UUID, from_step: str | None, as_json: bool) -> None:
    """Enqueue the ended job JOB_ID again as a new job with the same payload; the job itself stays as it is."""
    async with session.open() as fl:
        job = await fl.replay(job_id, from_step=from_step)
    _print_answer(job, "enqueued", as_json=as_json)


def _refuse_filter(wanted: actions.JobFilter, *, dry_run: bool) -> None:
    """Refuse a job's id together with a filter."""
    if wanted != actions.JobFilter() or dry_run:
        raise InvalidInput("Select one job by its id, or many by options such as --status, not both.")


@jobs.command()
@click.argument("job_id", type=click.UUID)
@output.json_option
@command
async def why(session: CommandSession, *, job_id: UUID, as_json: bool) -> None:
    """Explain why a job is not running: every reason, most decisive first."""
    async with session.open() as fl:
        answer = await fl.why(job_id)
    if as_json:
        output.print_json(answer)
    else:
        output.print_facts((reason.code, reason.message) for reason in answer.reasons)


def _print_answer(job: Job, what: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(job)
    else:
        output.console().print(f"{what} {job.id}")
