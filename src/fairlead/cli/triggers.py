"""`fairlead triggers`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import click

from fairlead.actions import backfill as backfills
from fairlead.actions import triggers as actions
from fairlead.actions.triggers import SavedTrigger
from fairlead.cli import firings, output, trigger_output
from fairlead.cli.field_options import field_options, read_field_options
from fairlead.cli.jobs import open_progress_bar
from fairlead.cli.preview import preview
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.model.trigger import FiringOutcome, TriggerRequest, TriggerType
from fairlead.model.trigger_kinds import describe_trigger, find_type, list_replaced_fields
from fairlead.model.workflow.spec import ENGINE_RUN

SHOWN = 5


@click.group()
def triggers() -> None:
    """Rules that create jobs: on an event or on a schedule."""


triggers.add_command(preview)


# The fields that options set; the type of a trigger follows from them.
_OPTION_FIELDS = [
    name
    for name in TriggerRequest.__struct_fields__
    if name not in ("trigger_type", "definition_key", "is_enabled")
]
_definition_option = field_options(TriggerRequest, "definition_key")
_trigger_options = field_options(
    TriggerRequest, *_OPTION_FIELDS, label="Its display name (default: the definition's key)."
)


@triggers.command("list")
@click.option("--tenant", help="Only this tenant's triggers: slug or id.")
@click.option("--type", "trigger_type", type=output.enum_choice(TriggerType))
@click.option("--event", "event_name", help="Only triggers for this event.")
@click.option("--definition", "definition_key", help="Only triggers of this definition.")
@click.option(
    "--enabled/--disabled", "is_enabled", default=None, help="Only enabled or only disabled triggers."
)
@click.option("--limit", type=click.IntRange(1, actions.MAX_PAGE), default=100, show_default=True)
@click.option("--after", type=click.UUID, help="Continue after the trigger with this id.")
@output.json_option
@list_command
async def list_triggers(
    session: CommandSession,
    *,
    tenant: str | None,
    limit: int,
    after: UUID | None,
    as_json: bool,
    **filters: Any,
) -> None:
    """List triggers, newest first."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.list_triggers(
            tx, fl.principal, tenant=tenant, before=after, limit=limit, **filters
        )
        latest = await actions.list_latest_firings(tx, fl.principal, found)
    if as_json:
        output.print_json(
            {"items": [trigger_output.trigger_document(one, latest.get(one.id)) for one in found]}
        )
    else:
        trigger_output.print_triggers(found, latest)


@triggers.command()
@click.argument("trigger_id", type=click.UUID)
@output.json_option
@command
async def show(session: CommandSession, *, trigger_id: UUID, as_json: bool) -> None:
    """Show a trigger, its next run, and its last firings."""
    async with session.open() as fl, fl.transaction() as tx:
        trigger = await actions.get(tx, fl.principal, trigger_id)
        fired = await actions.list_firings(tx, fl.principal, trigger_id, limit=SHOWN)
    if as_json:
        output.print_json(trigger_output.trigger_document(trigger, fired[0] if fired else None))
        return
    trigger_output.print_trigger(trigger)
    output.console().print()
    firings.print_firings(fired, empty="It has not fired yet.")


@triggers.command()
@click.option("--tenant", required=True, help="The trigger's tenant: slug or id.")
@_definition_option
@click.option("--workflow", help="Run this workflow, with --payload as its input, instead of --definition.")
@_trigger_options
@click.option("--disabled", is_flag=True, help="Do not fire yet.")
@output.json_option
@command
async def add(
    session: CommandSession, *, tenant: str, workflow: str | None, disabled: bool, as_json: bool, **says: Any
) -> None:
    """Add a trigger: on an --event, at the times of a --cron expression, or at an interval with --every."""
    if (workflow is None) == (says["definition_key"] is None):
        raise click.UsageError("Give either --definition or --workflow.")
    document = read_field_options(TriggerRequest, says)
    if workflow is not None:
        given = document.get("payload_template", {})
        document |= {"definition_key": ENGINE_RUN, "payload_template": {"workflow": workflow, "input": given}}
    document.setdefault("label", workflow or document["definition_key"])
    document["trigger_type"] = find_type(document)
    document["is_enabled"] = not disabled
    async with session.open() as fl, fl.transaction() as tx:
        made = await actions.create(tx, fl.principal, tenant, document)
    _print_answer(made, "added", as_json=as_json)


@triggers.command()
@click.argument("trigger_id", type=click.UUID)
@_definition_option
@_trigger_options
@click.option("--no-end", is_flag=True, help="Remove the end of a schedule.")
@output.json_option
@command
async def change(
    session: CommandSession, *, trigger_id: UUID, no_end: bool, as_json: bool, **says: Any
) -> None:
    """Change the given fields of a trigger. --timezone "" resets it to the tenant's time zone."""
    given = read_field_options(TriggerRequest, says)
    if no_end and "end_at" in given:
        raise click.UsageError("Give either --end-at or --no-end.")
    void = dict.fromkeys([*list_replaced_fields(given), *(["end_at"] if no_end else [])])
    await _change(session, trigger_id, void | given, "changed", as_json=as_json)


@triggers.command()
@click.argument("trigger_id", type=click.UUID)
@output.json_option
@command
async def enable(session: CommandSession, *, trigger_id: UUID, as_json: bool) -> None:
    """Enable a trigger; a schedule continues with its next run and does not make up for missed ones."""
    await _change(session, trigger_id, {"is_enabled": True}, "enabled", as_json=as_json)


@triggers.command()
@click.argument("trigger_id", type=click.UUID)
@output.json_option
@command
async def disable(session: CommandSession, *, trigger_id: UUID, as_json: bool) -> None:
    """Disable a trigger; the jobs that it created continue."""
    await _change(session, trigger_id, {"is_enabled": False}, "disabled", as_json=as_json)


@triggers.command()
@click.argument("trigger_id", type=click.UUID)
@output.json_option
@command
async def remove(session: CommandSession, *, trigger_id: UUID, as_json: bool) -> None:
    """Remove a trigger; its jobs and its firings stay."""
    async with session.open() as fl, fl.transaction() as tx:
        trigger = await actions.remove(tx, fl.principal, trigger_id)
    if as_json:
        output.print_json(trigger_output.trigger_document(trigger, None))
    else:
        output.console().print(f"removed {trigger.id}")


@triggers.command()
@click.argument("trigger_id", type=click.UUID)
@output.json_option
@command
async def fire(session: CommandSession, *, trigger_id: UUID, as_json: bool) -> None:
    """Fire a schedule now, enabled or not. (For events, use: fairlead events replay.)"""
    async with session.open() as fl, fl.transaction() as tx:
        fired = await actions.fire_now(tx, fl.principal, fl.catalog, trigger_id)
    if as_json:
        output.print_json(fired)
        return
    parts = [fired.outcome, fired.job_id, fired.reason, fired.detail]
    output.console().print(": ".join(str(one) for one in parts if one), markup=False)


@triggers.command()
@click.argument("trigger_id", type=click.UUID)
@click.option(
    "--from",
    "since",
    type=output.PastMoment(),
    required=True,
    help="The first instant's time, or 2h, 1d and so on before now.",
)
@click.option(
    "--to", "until", type=output.PastMoment(), help="Only instants before this time (default: now)."
)
@click.option("--priority", type=int, help="The priority of the jobs (default: the definition's).")
@click.option("--preview", "only_preview", is_flag=True, help="Only count and list the instants.")
@click.option("--count", type=click.IntRange(1, backfills.MOST_SHOWN), default=20, show_default=True)
@output.json_option
@command
async def backfill(
    session: CommandSession,
    *,
    trigger_id: UUID,
    since: datetime,
    until: datetime | None,
    priority: int | None,
    only_preview: bool,
    count: int,
    as_json: bool,
) -> None:
    """Fire the instants of a schedule in a past range that have no job yet: all of them, each once.

    The same range again enqueues nothing. With --preview, see what it would do, or how far its jobs are.
    """
    async with session.open() as fl:
        async with fl.transaction() as tx:
            found = await backfills.preview_backfill(
                tx, fl.principal, trigger_id, since=since, until=until, count=count
            )
        if only_preview:
            trigger_output.print_backfill_preview(found, as_json=as_json)
            return
        with open_progress_bar(found.count - found.fired, as_json=as_json) as progress:
            async with fl.transaction() as tx:
                done = await backfills.backfill(
                    tx,
                    fl.principal,
                    fl.catalog,
                    trigger_id,
                    since=found.since,
                    until=found.until,
                    priority=priority,
                    progress=progress,
                )
    trigger_output.print_backfill(done, as_json=as_json)


@triggers.command("firings")
@click.argument("trigger_id", type=click.UUID)
@click.option("--outcome", type=output.enum_choice(FiringOutcome), help="Only firings with this outcome.")
@click.option("--limit", type=click.IntRange(1, actions.MAX_PAGE), default=20, show_default=True)
@click.option("--after", type=click.UUID, help="Continue after the firing with this id.")
@output.json_option
@command
async def list_firings(
    session: CommandSession,
    *,
    trigger_id: UUID,
    outcome: str | None,
    limit: int,
    after: UUID | None,
    as_json: bool,
) -> None:
    """List a trigger's firings, newest first."""
    wanted = None if outcome is None else FiringOutcome(outcome)
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.list_firings(
            tx, fl.principal, trigger_id, outcome=wanted, before=after, limit=limit
        )
    if as_json:
        output.print_json({"items": found})
    else:
        firings.print_firings(found, empty="No matching firings.")


async def _change(
    session: CommandSession, trigger_id: UUID, document: Mapping[str, Any], what: str, *, as_json: bool
) -> None:
    async with session.open() as fl, fl.transaction() as tx:
        made = await actions.change(tx, fl.principal, trigger_id, document)
    _print_answer(made, what, as_json=as_json)


def _print_answer(made: SavedTrigger, what: str, *, as_json: bool) -> None:
    if as_json:
        warnings = [warning._asdict() for warning in made.warnings]
        output.print_json({**trigger_output.trigger_document(made.trigger, None), "warnings": warnings})
        return
    output.console().print(f"{what} {made.trigger.id}: {describe_trigger(made.trigger)}", markup=False)
    if made.trigger.is_over:
        output.console().print("It is over: no further runs.")
    if made.trigger.next_fire_at is not None:
        output.console().print(f"next run {output.format_moment(made.trigger.next_fire_at)}")
    for warning in made.warnings:
        output.console(stderr=True).print(
            f"warning: {warning.path or '/'} {warning.message}", style="yellow", markup=False
        )
