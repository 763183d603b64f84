"""`fairlead triggers`."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import click

from fairlead.actions import triggers as actions
from fairlead.actions.triggers import Made
from fairlead.cli import firings, output, trigger_output
from fairlead.cli.jobs import read_json
from fairlead.cli.option_names import FIELDS
from fairlead.cli.preview import preview
from fairlead.cli.session import Session, command
from fairlead.model.trigger import CatchUp, FiringOutcome, Overlap, TriggerType, when
from fairlead.model.workflow import ENGINE_RUN

SHOWN = 5
# One way of saying when makes the others void.
VOID = {"cron": ("every_seconds", "start_at"), "every": ("cron_expr", "timezone")}


@click.group()
def triggers() -> None:
    """Rules that make jobs: when something happens, or when it is time."""


triggers.add_command(preview)


def _says(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options with which a trigger is described."""
    for option in (
        click.option("--overlap", type=output.choice(Overlap), help="A run while the last is not over."),
        click.option("--catch-up", type=output.choice(CatchUp), help="Runs that were missed."),
        click.option("--window", type=int, help="Seconds in which the same payload makes one job."),
        click.option("--payload", help="The payload's template (JSON), with places such as {{event.id}}."),
        click.option("--start-at", type=output.Moment(), help="When the interval begins (default: now)."),
        click.option("--every", type=int, metavar="SECONDS", help="Run at this interval; 0 is once."),
        click.option("--timezone", help="The zone of --cron (default: the tenant's)."),
        click.option("--cron", help='When to run, such as "0 2 * * *" or @daily.'),
        click.option("--filter", help="Only events whose data match this (JSON)."),
        click.option("--event", help="The name of the event, such as provider.folder.updated."),
        click.option("--label", help="What people call it (default: the definition's key)."),
    ):
        function = option(function)
    return function


@triggers.command("list")
@click.option("--tenant", help="Only this tenant's: slug or id.")
@click.option("--type", "trigger_type", type=output.choice(TriggerType))
@click.option("--event", "event_name", help="Only for this event.")
@click.option("--definition", "definition_key", help="Only of this definition.")
@click.option("--enabled/--disabled", "is_enabled", default=None, help="Only those that are.")
@click.option("--limit", type=click.IntRange(1, actions.MAX_PAGE), default=100, show_default=True)
@click.option("--after", type=click.UUID, help="Go on after the trigger with this id.")
@output.json_option
@command
async def listed(
    session: Session, *, tenant: str | None, limit: int, after: UUID | None, as_json: bool, **filters: Any
) -> None:
    """List triggers, newest first."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.listed(tx, fl.principal, tenant=tenant, before=after, limit=limit, **filters)
        latest = await actions.latest(tx, fl.principal, found)
    if as_json:
        output.say_json({"items": [trigger_output.document(one, latest.get(one.id)) for one in found]})
    else:
        trigger_output.table(found, latest)


@triggers.command()
@click.argument("trigger_id", type=click.UUID)
@output.json_option
@command
async def show(session: Session, *, trigger_id: UUID, as_json: bool) -> None:
    """Show a trigger, when it runs next, and what became of its last firings."""
    async with session.open() as fl, fl.transaction() as tx:
        trigger = await actions.get(tx, fl.principal, trigger_id)
        fired = await actions.history(tx, fl.principal, trigger_id, limit=SHOWN)
    if as_json:
        output.say_json(trigger_output.document(trigger, fired[0] if fired else None))
        return
    trigger_output.facts(trigger)
    output.console().print()
    firings.table(fired, empty="It has not fired yet.")


@triggers.command()
@click.option("--tenant", required=True, help="Whose it is: slug or id.")
@click.option("--definition", help="What its jobs are: a definition's key.")
@click.option("--workflow", help="Run this workflow, with --payload as its input, instead of --definition.")
@_says
@click.option("--disabled", is_flag=True, help="Do not fire yet.")
@output.json_option
@command
async def add(
    session: Session, *, tenant: str, workflow: str | None, disabled: bool, as_json: bool, **says: Any
) -> None:
    """Add a trigger: on an --event, at the times of a --cron expression, or --every so many seconds."""
    if (workflow is None) == (says["definition"] is None):
        raise click.UsageError("Name what it runs: either --definition or --workflow.")
    document = _document(says)
    if workflow is not None:
        given = document.get("payload_template", {})
        document |= {"definition_key": ENGINE_RUN, "payload_template": {"workflow": workflow, "input": given}}
    document.setdefault("label", workflow or document["definition_key"])
    document["trigger_type"] = TriggerType.EVENT if "event_name" in document else TriggerType.SCHEDULE
    document["is_enabled"] = not disabled
    async with session.open() as fl, fl.transaction() as tx:
        made = await actions.create(tx, fl.principal, tenant, document)
    _answer(made, "added", as_json=as_json)


@triggers.command()
@click.argument("trigger_id", type=click.UUID)
@click.option("--definition", help="What its jobs are: a definition's key.")
@_says
@output.json_option
@command
async def change(session: Session, *, trigger_id: UUID, as_json: bool, **says: Any) -> None:
    """Change what is given of a trigger. --timezone "" makes it the tenant's again."""
    void = {name: None for given, names in VOID.items() if says[given] is not None for name in names}
    await _change(session, trigger_id, void | _document(says), "changed", as_json=as_json)


@triggers.command()
@click.argument("trigger_id", type=click.UUID)
@output.json_option
@command
async def enable(session: Session, *, trigger_id: UUID, as_json: bool) -> None:
    """Let a trigger fire; a schedule goes on with its next run, and makes up for none."""
    await _change(session, trigger_id, {"is_enabled": True}, "enabled", as_json=as_json)


@triggers.command()
@click.argument("trigger_id", type=click.UUID)
@output.json_option
@command
async def disable(session: Session, *, trigger_id: UUID, as_json: bool) -> None:
    """Keep a trigger from firing; jobs that it made go on."""
    await _change(session, trigger_id, {"is_enabled": False}, "disabled", as_json=as_json)


@triggers.command()
@click.argument("trigger_id", type=click.UUID)
@output.json_option
@command
async def remove(session: Session, *, trigger_id: UUID, as_json: bool) -> None:
    """Remove a trigger; its jobs stay, and so does the record of its firings."""
    async with session.open() as fl, fl.transaction() as tx:
        trigger = await actions.remove(tx, fl.principal, trigger_id)
    if as_json:
        output.say_json(trigger_output.document(trigger, None))
    else:
        output.console().print(f"removed {trigger.id}")


@triggers.command()
@click.argument("trigger_id", type=click.UUID)
@output.json_option
@command
async def fire(session: Session, *, trigger_id: UUID, as_json: bool) -> None:
    """Run a schedule now, enabled or not, as if it were time. (An event is replayed: fairlead events replay.)"""
    async with session.open() as fl, fl.transaction() as tx:
        fired = await actions.fire_now(tx, fl.principal, fl.catalog, trigger_id)
    if as_json:
        output.say_json(fired)
        return
    said = [fired.outcome, fired.job_id, fired.reason, fired.detail]
    output.console().print(": ".join(str(one) for one in said if one), markup=False)


@triggers.command("firings")
@click.argument("trigger_id", type=click.UUID)
@click.option("--outcome", type=output.choice(FiringOutcome), help="Only with this outcome.")
@click.option("--limit", type=click.IntRange(1, actions.MAX_PAGE), default=20, show_default=True)
@click.option("--after", type=click.UUID, help="Go on after the firing with this id.")
@output.json_option
@command
async def history(
    session: Session, *, trigger_id: UUID, outcome: str | None, limit: int, after: UUID | None, as_json: bool
) -> None:
    """List what became of a trigger's runs or events, newest first."""
    wanted = None if outcome is None else FiringOutcome(outcome)
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.history(tx, fl.principal, trigger_id, outcome=wanted, before=after, limit=limit)
    if as_json:
        output.say_json({"items": found})
    else:
        firings.table(found, empty="None so far.")


def _document(says: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, in the words of a trigger."""
    given = {FIELDS.get(name, name): value for name, value in says.items() if value is not None}
    for name in ("payload_template", "filter"):
        if name in given:
            given[name] = read_json(given[name], name.partition("_")[0])
    if given.get("timezone") == "":
        given["timezone"] = None
    return given


async def _change(
    session: Session, trigger_id: UUID, document: Mapping[str, Any], what: str, *, as_json: bool
) -> None:
    async with session.open() as fl, fl.transaction() as tx:
        made = await actions.change(tx, fl.principal, trigger_id, document)
    _answer(made, what, as_json=as_json)


def _answer(made: Made, what: str, *, as_json: bool) -> None:
    if as_json:
        warnings = [warning._asdict() for warning in made.warnings]
        output.say_json({**trigger_output.document(made.trigger, None), "warnings": warnings})
        return
    output.console().print(f"{what} {made.trigger.id}: {when(made.trigger)}", markup=False)
    if made.trigger.next_fire_at is not None:
        output.console().print(f"next run {output.exact(made.trigger.next_fire_at)}")
    for warning in made.warnings:
        output.console(stderr=True).print(
            f"warning: {warning.path or '/'} {warning.message}", style="yellow", markup=False
        )
