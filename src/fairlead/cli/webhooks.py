"""`fairlead webhooks`."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click

from fairlead.actions import triggers
from fairlead.actions import webhooks as actions
from fairlead.cli import output, trigger_output
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.model.end_event import END_EVENTS
from fairlead.model.messages.http_call import parse_target
from fairlead.model.secrets.signing import read_signing_secrets
from fairlead.model.trigger import Firing, Trigger
from fairlead.settings import config_file, read_document


@click.group()
def webhooks() -> None:
    """Notify a URL when jobs or workflow runs end. Each webhook is a trigger: use `fairlead triggers` to enable, disable and list firings."""


@webhooks.command()
@click.argument("url")
@click.option("--tenant", required=True, help="The webhook's tenant: slug or id.")
@click.option(
    "--event",
    "events",
    required=True,
    multiple=True,
    type=click.Choice(END_EVENTS),
    help="The event to notify about; may be repeated.",
)
@click.option(
    "--definition", "definitions", multiple=True, help="Only jobs of this definition; may be repeated."
)
@click.option("--workflow", "workflows", multiple=True, help="Only runs of this workflow; may be repeated.")
@click.option("--sign-with", help="The signing secret, by its name in the worker's fairlead.toml.")
@output.json_option
@command
async def add(session: CommandSession, *, url: str, tenant: str, as_json: bool, **says: Any) -> None:
    """Send a POST with type, timestamp and data to URL for each job or run that ends with one of the events."""
    async with session.open() as fl, fl.transaction() as tx:
        made = await actions.add(tx, fl.principal, tenant, url=url, **says)
    _warn_unsigned(made[0].tenant, url, says["sign_with"])
    if as_json:
        output.print_json({"items": [trigger_output.trigger_document(one, None) for one in made]})
        return
    for one in made:
        output.console().print(f"added {one.id}: on {one.event_name}", markup=False)


def _warn_unsigned(tenant: str, url: str, name: str | None) -> None:
    """Warn about a signing secret that is unknown here: the worker may have it, or deliveries will fail."""
    known = read_signing_secrets(read_document(config_file()))
    secret = known.get((tenant, str(name))) or known.get((None, str(name)))
    if name is None:
        return
    if secret is None:
        why = (
            f"The signing secret {name!r} is not in {config_file()} on this machine: the sending worker needs it in "
            f"[http.tenants.{tenant}.secrets]."
        )
    elif refused := secret.why_not(tenant, parse_target(url)):
        why = f"The signing secret {name!r} in {config_file()} here {refused}."
    else:
        return
    output.console(stderr=True).print(why, style="yellow", markup=False)


@webhooks.command("list")
@click.option("--tenant", help="Only this tenant's webhooks: slug or id.")
@output.json_option
@list_command
async def list_webhooks(session: CommandSession, *, tenant: str | None, as_json: bool) -> None:
    """List webhooks, newest first, with the last firing of each."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.list_webhooks(tx, fl.principal, tenant=tenant)
        latest = await triggers.list_latest_firings(tx, fl.principal, found)
    if as_json:
        output.print_json(
            {"items": [trigger_output.trigger_document(one, latest.get(one.id)) for one in found]}
        )
    else:
        _print_webhooks(found, latest)


@webhooks.command()
@click.argument("webhook_id", type=click.UUID)
@output.json_option
@command
async def remove(session: CommandSession, *, webhook_id: UUID, as_json: bool) -> None:
    """Remove a webhook; deliveries that are already enqueued are still sent."""
    async with session.open() as fl, fl.transaction() as tx:
        gone = await actions.remove(tx, fl.principal, webhook_id)
    if as_json:
        output.print_json(trigger_output.trigger_document(gone, None))
    else:
        output.console().print(f"removed {gone.id}")


def _print_webhooks(found: Sequence[Trigger], latest: dict[UUID, Firing]) -> None:
    output.print_table(
        ("id", "tenant", "event", "url", "of", "signed with", "enabled", "last fired", "job"),
        [
            (
                one.id,
                one.tenant,
                one.event_name,
                one.payload_template.get("url"),
                _describe_filter(one),
                one.payload_template.get("sign_with"),
                "yes" if one.is_enabled else "no",
                one.last_fired_at,
                latest[one.id].job_id if one.id in latest else None,
            )
            for one in found
        ],
        empty="No webhooks. Add one with: fairlead webhooks add URL --tenant TENANT --event job.failed",
    )


def _describe_filter(webhook: Trigger) -> str:
    """The webhook's definitions or workflows; `filtered` for any other filter."""
    if not webhook.filter:
        return "all"
    match webhook.filter:
        case {"definition_key": {"in": [*keys]}, **more} | {"workflow": {"in": [*keys]}, **more} if not more:
            return ", ".join(keys)
    return "filtered"
