"""`fairlead jobs`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, BinaryIO
from uuid import UUID

import click
import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from fairlead.actions import hosts, tenants
from fairlead.actions import jobs as actions
from fairlead.app import Fairlead
from fairlead.cli import output
from fairlead.cli.logs import logs
from fairlead.cli.session import Session, command
from fairlead.cli.watch import watch
from fairlead.errors import Fault, InvalidInput
from fairlead.model.ansi import Plain
from fairlead.model.job import Attempt, Job, JobStatus, NewJob, Source
from fairlead.model.request import parsed, unknown_tenant


@click.group()
def jobs() -> None:
    """Enqueue jobs and see what became of them."""


jobs.add_command(logs)
jobs.add_command(watch)


@jobs.command()
@click.argument("definition", required=False)
@click.argument("payload", required=False)
@click.option("--tenant", help="Whose job it is: slug or id.")
@click.option("--priority", type=int, help="Lower runs first.")
@click.option("--scheduled-for", help="Not before this time, such as 2026-02-16T10:30:00Z.")
@click.option("--in", "delay", help="Not before so much time has passed, such as 90s, 5m, 2h or 1d.")
@click.option("--max-attempts", type=int)
@click.option("--dedupe-key", help="While a job with this key is active, no second one is made.")
@click.option("--correlation-id")
@click.option("--host", help="Run it on this host: its id or name.")
@click.option("--resource", help="Run it on the host that this resource is on: its id or name.")
@click.option(
    "--file",
    type=click.File("rb"),
    help='Many at once, all or none: a JSON object a line, {"definition": …, "tenant": …, "payload": …}. - is stdin.',
)
@output.json_option
@command
async def enqueue(session: Session, *, file: BinaryIO | None, as_json: bool, **request: Any) -> None:
    """Enqueue one job with its PAYLOAD as JSON, or with --file many."""
    if file is not None:
        if extra := sorted(name for name, value in request.items() if value is not None and name != "tenant"):
            raise InvalidInput(
                f"--file says everything itself: leave out {', '.join(extra)}, or put it into the lines."
            )
        await _enqueue_file(session, file, request["tenant"], as_json=as_json)
        return
    given = {name: value for name, value in request.items() if value is not None}
    _check_named(given)
    if "payload" in given:
        given["payload"] = read_json(given["payload"])
    host, resource = given.pop("host", None), given.pop("resource", None)
    new = parsed(given)
    async with session.open() as fl:
        enqueued = await fl.submit(await _aimed(fl, new, host, resource))
        job = await fl.read(enqueued.id)
    if as_json:
        output.say_json({**msgspec.to_builtins(job), "deduplicated": enqueued.deduplicated})
    else:
        output.console().print(f"{'already active' if enqueued.deduplicated else 'enqueued'} {enqueued.id}")


def _check_named(given: dict[str, Any]) -> None:
    """What every job needs, in the words of the command line."""
    for name, how in (
        ("definition", "DEFINITION, such as report"),
        ("tenant", "--tenant, such as --tenant acme"),
    ):
        if name not in given:
            raise InvalidInput(f"Whose job, and of what? Give {how}.", [Fault(name, "is required")])


async def _aimed(fl: Fairlead, new: NewJob, host: str | None, resource: str | None) -> NewJob:
    """The request with the ids of the host and the resource that somebody named."""
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


async def _enqueue_file(session: Session, file: BinaryIO, tenant: str | None, *, as_json: bool) -> None:
    requests = [_read_line(number, line, tenant) for number, line in enumerate(file, 1) if line.strip()]
    async with session.open() as fl:
        with _progress(len(requests), as_json=as_json) as progress:
            enqueued = await fl.enqueue_many(requests, progress=progress)
    deduplicated = sum(one.deduplicated for one in enqueued)
    if as_json:
        output.say_json({"items": [{"id": one.id, "deduplicated": one.deduplicated} for one in enqueued]})
    else:
        output.console().print(f"enqueued {len(enqueued) - deduplicated}, already active {deduplicated}")


@contextmanager
def _progress(total: int, *, as_json: bool) -> Iterator[Any]:
    """A bar on a terminal; silence for machines."""
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
        return parsed(request)
    except InvalidInput as error:
        raise InvalidInput(f"Line {number}: {error.message} Nothing was enqueued.", error.faults) from error


def read_json(text: str | bytes, what: str = "payload") -> Any:
    """What somebody wrote as JSON."""
    try:
        return msgspec.json.decode(text)
    # a terminal's bytes that are no text come as what cannot be encoded
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidInput(
            f'The {what} is not JSON: {error}. Write it as \'{{"name": "value"}}\'.'
        ) from error


@jobs.command("list")
@click.option("--tenant", help="Only this tenant's: slug or id.")
@click.option("--status", multiple=True, type=output.choice(JobStatus), help="May be given more than once.")
@click.option("--source", type=output.choice(Source))
@click.option("--definition", "definition_key")
@click.option("--dedupe-key")
@click.option("--correlation-id")
@click.option("--run", "workflow_run_id", type=click.UUID, help="Only the steps of this run of a workflow.")
@click.option("--created-after", type=output.Moment(), help="Such as 2026-02-16 or 2026-02-16T10:30:00Z.")
@click.option("--created-before", type=output.Moment())
@click.option(
    "--q", help="An id, a part of a definition's key, or the beginning of a correlation id or dedupe key."
)
@click.option("--limit", default=20, show_default=True)
@click.option("--offset", default=0, show_default=True)
@click.option("--cursor", help="Go on after the page that named this cursor.")
@output.json_option
@command
async def listed(
    session: Session,
    *,
    status: tuple[str, ...],
    source: str | None,
    limit: int,
    offset: int,
    cursor: str | None,
    as_json: bool,
    **filters: Any,
) -> None:
    """List jobs, newest first."""
    wanted = actions.Filter(
        status=[JobStatus(one) for one in status] or None,
        source=Source(source) if source else None,
        **filters,
    )
    async with session.open() as fl, fl.transaction() as tx:
        page = await actions.listed(tx, fl.principal, wanted, limit=limit, offset=offset, cursor=cursor)
    if as_json:
        output.say_json(page)
        return
    output.table(
        ("id", "tenant", "definition", "status", "attempts", "priority", "queued", "due", "error"),
        [_row(job) for job in page.items],
        empty="None among these; there are older ones."
        if page.next_cursor
        else "No such jobs. Enqueue one with: fairlead jobs enqueue DEFINITION --tenant TENANT '{}'",
    )
    if page.next_cursor:
        output.console(stderr=True).print(f"more: --cursor {page.next_cursor}", style="dim")


def _row(job: Job) -> tuple[Any, ...]:
    due = job.scheduled_for if job.status is JobStatus.QUEUED else None
    return (
        job.id,
        job.tenant,
        job.definition_key,
        job.status,
        job.attempts_in_words,
        job.priority,
        job.queued_at,
        due,
        job.last_error,
    )


@jobs.command()
@click.argument("job_id", type=click.UUID)
@output.json_option
@command
async def show(session: Session, *, job_id: UUID, as_json: bool) -> None:
    """Show one job and its attempts."""
    async with session.open() as fl, fl.transaction() as tx:
        job, attempts = await actions.show(tx, fl.principal, job_id)
    if as_json:
        output.say_json({**msgspec.to_builtins(job), "attempts": attempts})
    else:
        _print_job(job)
        _print_attempts(attempts)
        _print_traceback(job)


@jobs.command()
@click.argument("job_id", type=click.UUID)
@output.json_option
@command
async def cancel(session: Session, *, job_id: UUID, as_json: bool) -> None:
    """Cancel a job: at once if it waits; if it runs, its worker is asked to stop."""
    async with session.open() as fl:
        job = await fl.cancel(job_id)
    _answer(job, "canceled" if job.status is JobStatus.CANCELED else "cancel requested", as_json=as_json)


@jobs.command()
@click.argument("job_id", type=click.UUID)
@click.option("--payload", help="Run it with this payload instead (JSON).")
@output.json_option
@command
async def retry(session: Session, *, job_id: UUID, payload: str | None, as_json: bool) -> None:
    """Queue a failed, dead-lettered or canceled job again, with a fresh budget."""
    edited = None if payload is None else read_json(payload)
    async with session.open() as fl:
        job = await fl.retry(job_id, payload=edited)
    _answer(job, "queued again", as_json=as_json)


@jobs.command()
@click.argument("job_id", type=click.UUID)
@output.json_option
@command
async def why(session: Session, *, job_id: UUID, as_json: bool) -> None:
    """Say why a job is not running: every reason, most decisive first."""
    async with session.open() as fl:
        answer = await fl.why(job_id)
    if as_json:
        output.say_json(answer)
    else:
        output.facts((reason.code, reason.message) for reason in answer.reasons)


def _answer(job: Job, what: str, *, as_json: bool) -> None:
    if as_json:
        output.say_json(job)
    else:
        output.console().print(f"{what} {job.id}")


def _print_job(job: Job) -> None:
    pairs = [
        ("id", job.id),
        ("tenant", job.tenant),
        ("definition", job.definition_key),
        ("status", output.cell(job.status)),
        ("attempts", f"{job.attempt_count} (failures: {job.failure_count} of at most {job.max_attempts})"),
        ("priority", job.priority),
        ("source", job.source),
        ("created by", job.created_by),
        ("queued", output.exact(job.queued_at)),
        ("scheduled for", output.exact(job.scheduled_for)),
        ("started", output.exact(job.started_at)),
        ("finished", output.exact(job.finished_at)),
        ("progress", _how_far(job.progress)),
        ("cancel requested", output.exact(job.cancel_requested_at)),
        ("host", job.host_id),
        ("resource", job.resource_id),
        ("dedupe key", job.dedupe_key),
        ("correlation id", job.correlation_id),
        ("payload", msgspec.json.encode(job.payload).decode()),
        ("output", None if job.output is None else msgspec.json.encode(job.output).decode()),
        ("error", job.last_error),
    ]
    output.facts((name, value) for name, value in pairs if value is not None)


def _print_traceback(job: Job) -> None:
    """Where the last attempt that failed did, as far as that was kept."""
    if isinstance(job.error, dict) and (trace := job.error.get("traceback")):
        output.console().print(Text("\n" + Plain().text(trace).rstrip()))


def _how_far(reported: Any) -> str | None:
    return f"{reported['percent']:g} %  {reported['message']}".rstrip() if reported else None


def _ended_with(attempt: Attempt) -> str | None:
    """How the process of an attempt ended, if it had one."""
    if attempt.signal is not None:
        return f"signal {attempt.signal}"
    return None if attempt.exit_code is None else f"exit {attempt.exit_code}"


def _print_attempts(attempts: list[Attempt]) -> None:
    if attempts:
        output.table(
            ("attempt", "status", "started", "ms", "worker", "pid", "ended with", "error"),
            [
                (
                    a.attempt_no,
                    a.status,
                    a.started_at,
                    a.duration_ms,
                    a.worker_id,
                    a.pid,
                    _ended_with(a),
                    a.error_text,
                )
                for a in attempts
            ],
            empty="",
        )
