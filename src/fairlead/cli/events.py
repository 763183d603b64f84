"""`fairlead events`."""

from datetime import datetime
from uuid import UUID

import click
import msgspec
from msgspec.structs import asdict

from fairlead.actions import events as actions
from fairlead.actions import triggers
from fairlead.cli import firings, output
from fairlead.cli.json_input import read_json
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.cli.tokens import open_tenant_transaction
from fairlead.model.event import Event
from fairlead.model.trigger import Firing, Trigger


@click.group()
def events() -> None:
    """Emit and list events; triggers create jobs from them."""


@events.command()
@click.argument("name")
@click.argument("data", required=False)
@click.option("--tenant", required=True, help="The event's tenant: slug or id.")
@click.option("--correlation-id", help="Your own id for finding the event and its jobs.")
@click.option("--occurred-at", type=output.Moment(), help="When it happened (default: now).")
@click.option(
    "--caused-by",
    type=click.UUID,
    envvar="FAIRLEAD_JOB_ID",
    help="The job that emits it; set automatically in a command that a worker runs.",
)
@output.json_option
@command
async def emit(
    session: CommandSession,
    *,
    name: str,
    data: str | None,
    tenant: str,
    correlation_id: str | None,
    occurred_at: datetime | None,
    caused_by: UUID | None,
    as_json: bool,
) -> None:
    """Store an event, such as provider.folder.updated, with its DATA as JSON; its triggers then create jobs."""
    parsed_data = {} if data is None else read_json(data, "data")
    async with session.open() as fl:
        event_id = await fl.emit(
            name,
            tenant=tenant,
            data=parsed_data,
            correlation_id=correlation_id,
            occurred_at=occurred_at,
            caused_by=caused_by,
        )
    if as_json:
        output.print_json({"id": event_id})
    else:
        output.console().print(f"emitted {event_id}")


@events.command("list")
@click.option("--tenant", help="Only this tenant's events: slug or id.")
@click.option("--name", help="Only events with this name.")
@click.option("--correlation-id", help="Only events with this correlation id.")
@click.option("--limit", type=click.IntRange(1, actions.MAX_PAGE), default=20, show_default=True)
@click.option("--after", type=click.UUID, help="Continue after the event with this id.")
@output.json_option
@list_command
async def list_events(
    session: CommandSession,
    *,
    tenant: str | None,
    name: str | None,
    correlation_id: str | None,
    limit: int,
    after: UUID | None,
    as_json: bool,
) -> None:
    """List events, newest first."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.list_events(
            tx, principal, name=name, correlation_id=correlation_id, before=after, limit=limit
        )
    if as_json:
        output.print_json({"items": found})
        return
    output.print_table(
        ("id", "tenant", "name", "occurred", "dispatched", "replay of", "correlation id"),
        [
            (e.id, e.tenant, e.name, e.occurred_at, e.dispatched_at, e.replay_of, e.correlation_id)
            for e in found
        ],
        empty="No matching events. Emit one with: fairlead events emit NAME '{}' --tenant TENANT",
    )


@events.command()
@click.argument("event_id", type=click.UUID)
@output.json_option
@command
async def show(session: CommandSession, *, event_id: UUID, as_json: bool) -> None:
    """Show an event and its firings."""
    async with session.open() as fl, fl.transaction() as tx:
        event, fired = await actions.get(tx, fl.principal, event_id)
        rules = await triggers.list_triggers(
            tx, fl.principal, tenant=str(event.tenant_id), event_name=event.name, limit=triggers.MAX_PAGE
        )
    if as_json:
        output.print_json({**asdict(event), "firings": fired})
    else:
        _print_event(event, fired, rules)


@events.command()
@click.argument("event_id", type=click.UUID)
@click.option("--trigger", "trigger_id", type=click.UUID, help="Only this trigger: its id.")
@output.json_option
@command
async def replay(session: CommandSession, *, event_id: UUID, trigger_id: UUID | None, as_json: bool) -> None:
    """Fire an event's triggers again, ignoring their deduplication windows."""
    async with session.open() as fl, fl.transaction() as tx:
        new_id = await actions.replay(tx, fl.principal, event_id, only_trigger_id=trigger_id)
    if as_json:
        output.print_json({"id": new_id, "replay_of": event_id})
    else:
        output.console().print(f"replayed as {new_id}")


def _print_event(event: Event, fired: list[Firing], rules: list[Trigger]) -> None:
    pairs = [
        ("id", event.id),
        ("tenant", event.tenant),
        ("name", event.name),
        ("occurred", output.format_moment(event.occurred_at)),
        ("dispatched", output.format_moment(event.dispatched_at) or "not yet; is a scheduler running?"),
        ("correlation id", event.correlation_id),
        ("replay of", event.replay_of),
        ("emitted by", event.created_by),
        ("caused by job", event.caused_by),
        ("data", msgspec.json.encode(event.data).decode()),
    ]
    output.print_facts((name, value) for name, value in pairs if value is not None)
    if event.dispatched_at is not None:
        output.console().print()
        firings.print_firings(fired, triggers=rules, empty="No trigger matched it.")
