"""`fairlead errors`."""

import sys
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

import click
from msgspec.structs import asdict

from fairlead.actions import bulk_jobs
from fairlead.actions import error_groups as actions
from fairlead.actions.error_groups import GroupChange, GroupFilter, JobChoice
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.cli.tokens import open_tenant_transaction
from fairlead.errors import InvalidInput
from fairlead.library.app import Fairlead
from fairlead.model.error_groups import ErrorGroup, ErrorHour, GroupOrder, GroupState
from fairlead.model.job import JobStatus

STATUSES = click.Choice([one.value for one in actions.STATUSES])
DURATIONS = {"h": "hours", "d": "days"}


@click.group()
def errors() -> None:
    """Errors: failed jobs in groups, with a retry for a whole group."""


@errors.command("list")
@click.option("--tenant", help="Only this tenant's errors: slug or id.")
@click.option("--definition", help="Only errors of this definition.")
@click.option("--status", type=STATUSES, help="Only errors with jobs of this status.")
@click.option("--since", type=output.PastMoment(), help="Seen since a time, or in the last 2h, 1d and so on.")
@click.option(
    "--state", type=output.enum_choice(GroupState), default=GroupState.OPEN.value, show_default=True
)
@click.option("--sort", type=output.enum_choice(GroupOrder), default=GroupOrder.JOBS.value, show_default=True)
@click.option("--search", help="A part of the error.")
@click.option("--limit", type=click.IntRange(1, actions.MAX_PAGE), default=20, show_default=True)
@output.json_option
@list_command
async def list_errors(
    session: CommandSession,
    *,
    tenant: str | None,
    definition: str | None,
    status: str | None,
    since: datetime | None,
    state: str,
    sort: str,
    search: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List errors: which definitions fail most, and why."""
    wanted = GroupFilter(
        definition_key=definition,
        status=None if status is None else JobStatus(status),
        since=since,
        state=GroupState(state),
        q=search or None,
    )
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.list_groups(tx, principal, wanted, order=GroupOrder(sort), limit=limit)
    if as_json:
        output.print_json({"items": found})
        return
    output.print_table(
        ("id", "tenant", "definition", "jobs", "first seen", "last seen", "error"),
        [
            (one.id, one.tenant, one.definition_key, one.jobs, one.first_seen, one.last_seen, one.pattern)
            for one in found
        ],
        empty="No matching errors. Muted ones: --state muted",
    )


@errors.command()
@click.argument("group_id", type=click.UUID)
@output.json_option
@command
async def show(session: CommandSession, *, group_id: UUID, as_json: bool) -> None:
    """Show an error: its jobs, its trend and its newest text in full."""
    async with session.open() as fl, fl.transaction() as tx:
        group = await actions.get(tx, fl.principal, group_id)
        sample = await actions.get_sample(tx, fl.principal, group)
        hours = (await actions.list_hours(tx, fl.principal, [group]))[group.id]
        jobs = await actions.list_jobs(tx, fl.principal, group, JobChoice(), limit=10)
    if as_json:
        output.print_json({**asdict(group), "sample": sample, "hours": hours, "jobs": jobs})
        return
    _print_group(group, hours)
    output.console().print()
    output.console().print(sample, markup=False)
    output.console().print()
    output.print_table(
        ("job", "status", "failed", "attempts"),
        [(one.job_id, one.status, one.failed_at, one.attempt_count) for one in jobs],
        empty="No job has this error now.",
    )


@errors.command()
@click.argument("group_id", type=click.UUID)
@click.option(
    "--since", type=output.PastMoment(), help="Jobs that failed since a time, or in the last 2h, 1d."
)
@click.option("--status", type=STATUSES, help="Only jobs with this status.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output.json_option
@command
async def retry(
    session: CommandSession,
    *,
    group_id: UUID,
    since: datetime | None,
    status: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Retry all jobs of an error, or those that failed since a time."""
    chosen = JobChoice(since=since, status=None if status is None else JobStatus(status))
    async with session.open() as fl:
        async with fl.transaction() as tx:
            group = await actions.get(tx, fl.principal, group_id)
            number = await actions.count_jobs(tx, fl.principal, group, chosen)
        if number and not yes:
            _confirm(group, number, as_json=as_json)
        done = await _retry_in_batches(fl, group_id, chosen, number, as_json=as_json)
    if as_json:
        output.print_json(done)
        return
    left = f" Left as they are: {bulk_jobs.describe_skips(done.reasons)}." if done.skipped else ""
    output.console().print(f"queued again {done.count:,} {_jobs(done.count)}.{left}", markup=False)


@errors.command()
@click.argument("group_id", type=click.UUID)
@click.option("--for", "duration", help="How long: 12h, 7d. Without it, until it is unmuted.")
@click.option("--until-change", is_flag=True, help="Until the definition changes.")
@click.option("--note", help="Why, or where it is tracked.")
@click.option("--off", is_flag=True, help="Unmute it.")
@output.json_option
@command
async def mute(
    session: CommandSession,
    *,
    group_id: UUID,
    duration: str | None,
    until_change: bool,
    note: str | None,
    off: bool,
    as_json: bool,
) -> None:
    """Mute an error: it is not listed among the open ones."""
    until = None if duration is None else datetime.now(UTC) + _parse_duration(duration)
    async with session.open() as fl, fl.transaction() as tx:
        if off:
            group = await actions.unmute(tx, fl.principal, group_id)
        else:
            group = await actions.mute(
                tx, fl.principal, group_id, until=until, until_change=until_change, note=note
            )
    if as_json:
        output.print_json(group)
    else:
        output.console().print("muted" if group.is_muted else "no longer muted")


def _confirm(group: ErrorGroup, number: int, *, as_json: bool) -> None:
    what = f"{number:,} {_jobs(number)} of {group.definition_key} (tenant {group.tenant}) failed with: {group.pattern}"
    if as_json or not sys.stdin.isatty():
        raise InvalidInput(f"{what}. Nothing was changed: add --yes to retry them.")
    output.console().print(what, markup=False)
    click.confirm("Retry them?", abort=True)


async def _retry_in_batches(
    fl: Fairlead, group_id: UUID, chosen: JobChoice, number: int, *, as_json: bool
) -> GroupChange:
    """Retry batch by batch, with the progress on a terminal."""
    act = partial(
        actions.retry, principal=fl.principal, group_id=group_id, chosen=chosen, limit=bulk_jobs.BATCH
    )
    did = await fl.database.transact(act)
    count = did.count
    with nullcontext() if as_json else output.console(stderr=True).status("") as status:
        while did.more and did.count:
            if status is not None:
                status.update(f"{count:,} of {number:,} jobs")
            did = await fl.database.transact(act)
            count += did.count
    return GroupChange(count, did.more, did.skipped, did.reasons)


def _parse_duration(text: str) -> timedelta:
    number, unit = text[:-1], text[-1:]
    if not (number.isdecimal() and len(number) <= 4 and unit in DURATIONS):
        raise InvalidInput(f"{text!r} is not a duration such as 12h or 7d.")
    return timedelta(**{DURATIONS[unit]: int(number)})


def _jobs(number: int) -> str:
    return "job" if number == 1 else "jobs"


def _print_group(group: ErrorGroup, hours: list[ErrorHour]) -> None:
    versions = sorted({group.first_version, group.last_version})
    pairs = [
        ("id", group.id),
        ("tenant", group.tenant),
        ("definition", f"{group.definition_key}, version {' to '.join(map(str, versions))}"),
        ("error", group.pattern),
        ("jobs", f"{group.dead_letter:,} dead_letter, {group.failed:,} failed"),
        ("failures", f"{group.seen:,}; {sum(one.failures for one in hours):,} in the last 7 days"),
        ("first seen", output.format_moment(group.first_seen)),
        ("last seen", output.format_moment(group.last_seen)),
        ("muted", _describe_mute(group) if group.is_muted else None),
        ("discarded", output.format_moment(group.discarded_at)),
    ]
    output.print_facts((name, value) for name, value in pairs if value is not None)


def _describe_mute(group: ErrorGroup) -> str:
    until = "until the definition changes" if group.mute_until_change else "until it is unmuted"
    if group.muted_until is not None:
        until = f"until {output.format_moment(group.muted_until)}"
    note = f": {group.mute_note}" if group.mute_note else ""
    return f"by {group.muted_by}, {until}{note}"
