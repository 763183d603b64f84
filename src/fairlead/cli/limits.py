"""`fairlead limits`."""

from typing import Any

import click
from rich.text import Text

from fairlead.actions import limits as actions
from fairlead.actions import tenants
from fairlead.actions.limits import MOST, LimitScope, LimitUse
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.errors import InvalidInput
from fairlead.model.flow import format_key_limit, format_rate
from fairlead.model.limits import LimitPart
from fairlead.model.request import unknown_tenant

_SCOPES = {
    LimitScope.SYSTEM: "system",
    LimitScope.TENANT: "tenant",
    LimitScope.DEFINITION: "definition",
    LimitScope.DEFINITION_TENANT: "each tenant",
    LimitScope.KEY: "each key",
}


@click.group(invoke_without_command=True)
@click.option("--tenant", help="Only what applies to this tenant: slug or id.")
@click.option("--limit", type=click.IntRange(1, MOST), default=100, show_default=True)
@click.option("--cursor", metavar="TEXT", help="Continue a list: next_cursor of the page before.")
@output.json_option
@click.pass_context
def limits(
    context: click.Context, *, tenant: str | None, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List rates and limits by key: what is left of each, and how many jobs it holds back."""
    if context.invoked_subcommand is None:
        _list_limits(tenant=tenant, limit=limit, cursor=cursor, as_json=as_json)


@limits.command("set")
@click.option("--rate", metavar="RATE", help="How many jobs may start: 100/min, or with a burst 100/min+20.")
@click.option("--no-rate", is_flag=True, help="Remove the rate.")
@click.option("--tenant", help="The rate of this tenant: slug or id.")
@click.option("--definition", help="The rate of this definition: its key.")
@click.option("--each-tenant", is_flag=True, help="The definition's rate for each tenant.")
@output.json_option
@command
async def set_rate(
    session: CommandSession, *, rate: str | None, no_rate: bool, as_json: bool, **named: Any
) -> None:
    """Set the rate of a tenant, of a definition, or (none named) of the system: how many jobs may start."""
    if no_rate == (rate is not None):
        raise InvalidInput("Give --rate RATE, such as 100/min, or --no-rate.")
    async with session.open() as fl:
        now = await fl.set_rate(rate, **named)
    if as_json:
        output.print_json({"rate": now})
    else:
        output.console().print(Text("no rate" if now is None else f"rate {format_rate(now)}"))


@list_command
async def _list_limits(
    session: CommandSession, *, tenant: str | None, limit: int, cursor: str | None, as_json: bool
) -> None:
    async with session.open() as fl, fl.transaction() as tx:
        only = None if tenant is None else await tenants.find(tx, fl.principal, tenant)
        if tenant is not None and only is None:
            raise unknown_tenant(tenant)
        found = await actions.list_page(
            tx, fl.principal, tenant_id=None if only is None else only.id, after=cursor or "", limit=limit
        )
    if as_json:
        output.print_json({"items": found, "next_cursor": None if found.last is None else found.last.place})
        return
    output.print_table(
        ("limit", "of", "allowed", "left", "next start", "held back", "most by"),
        [_row(one) for one in found],
        empty="There are no rates and no limits by key. Set one with: fairlead limits set --rate 100/min",
    )


def _row(one: LimitUse) -> tuple[object, ...]:
    held = Text(_count(one.held, more=one.has_more), "yellow") if one.held else None
    return (
        _SCOPES[one.scope],
        one.definition_key or one.tenant,
        _describe_limit(one),
        one.tokens,
        one.opens_at,
        held,
        ", ".join(_describe_part(part) for part in one.parts) or None,
    )


def _describe_limit(one: LimitUse) -> str:
    return (
        format_key_limit(one.by_key)
        if one.by_key is not None
        else ""
        if one.rate is None
        else format_rate(one.rate)
    )


def _describe_part(part: LimitPart) -> str:
    name = part.tenant if part.value is None else f"{part.tenant} {part.value}"
    return f"{name} ({_count(part.held, more=part.has_more)})"


def _count(number: int, *, more: bool) -> str:
    return f"{number:,}{'+' if more else ''}"
