"""`fairlead tenants`."""

from typing import Any

import click

from fairlead.actions import tenants as actions
from fairlead.cli import output
from fairlead.cli.move_progress import MoveProgress
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.errors import InvalidInput
from fairlead.library.tenant_moves import DRAIN_SECONDS, WAIT_SECONDS, cancel_move, move_tenant
from fairlead.model.access import Tenant
from fairlead.model.flow import format_rate, parse_rate


@click.group()
def tenants() -> None:
    """Add, change and pause tenants."""


@tenants.command()
@click.argument("slug")
@click.option("--name", help="Its display name (default: the slug).")
@click.option("--timezone", default="UTC", show_default=True, help="Its IANA time zone.")
@click.option(
    "--weight", default=1, show_default=True, help="Its share of capacity relative to other tenants."
)
@click.option(
    "--max-running", type=int, help="The most of its jobs that run concurrently (default: no limit)."
)
@click.option("--cell", help="The cell to live in (default: the home cell).")
@output.json_option
@command
async def add(
    session: CommandSession,
    *,
    slug: str,
    name: str | None,
    timezone: str,
    weight: int,
    max_running: int | None,
    cell: str | None,
    as_json: bool,
) -> None:
    """Add a tenant."""
    session.cell, cell = None, cell or session.cell  # the directory is in the home cell
    async with session.open() as fl:
        tenant = await fl.add_tenant(
            slug, name=name, timezone=timezone, weight=weight, max_running=max_running, cell=cell
        )
    _print_tenants([tenant], as_json=as_json, one=True)


@tenants.command()
@click.argument("tenant")
@click.option("--to", "target", metavar="CELL", help="The cell to move it to.")
@click.option("--cancel", is_flag=True, help="Take back a move that has not got past its copy.")
@click.option(
    "--drain-seconds",
    default=DRAIN_SECONDS,
    show_default=True,
    help="How long running jobs may go on before their leases move, too.",
)
@click.option(
    "--wait-seconds",
    default=WAIT_SECONDS,
    show_default=True,
    help="How long open transactions that have used the tenant's rows are waited for.",
)
@output.json_option
@command
async def move(
    session: CommandSession,
    *,
    tenant: str,
    target: str | None,
    cancel: bool,
    drain_seconds: float,
    wait_seconds: float,
    as_json: bool,
) -> None:
    """Move a tenant to another cell, or go on with a move that was interrupted.

    The tenant can be read meanwhile; its writes wait some seconds, and then are refused until it has moved.
    """
    if cancel == (target is not None):
        raise InvalidInput("Say where to move the tenant (--to CELL), or take its move back (--cancel).")
    async with session.open() as fl:
        if target is None:
            moved = await cancel_move(fl, tenant)
        else:
            with MoveProgress(shown=not as_json) as progress:
                moved = await move_tenant(
                    fl,
                    tenant,
                    target=target,
                    drain_seconds=drain_seconds,
                    wait_seconds=wait_seconds,
                    tell=progress,
                )
    where = moved.source if cancel else moved.target
    if as_json:
        output.print_json({"tenant": moved.slug, "cell": where, "canceled": cancel})
    else:
        output.console().print(f"{moved.slug} {'stays' if cancel else 'lives'} in the cell {where}")


@tenants.command("list")
@output.json_option
@list_command
async def list_tenants(session: CommandSession, *, as_json: bool) -> None:
    """List all tenants."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.list_all(tx, fl.principal)
    _print_tenants(found, as_json=as_json)


@tenants.command()
@click.argument("tenant")
@click.option("--note", help="The reason, shown to other users.")
@click.option("--resume", is_flag=True, help="Resume the tenant instead.")
@output.json_option
@command
async def pause(
    session: CommandSession, *, tenant: str, note: str | None, resume: bool, as_json: bool
) -> None:
    """Stop claiming a tenant's jobs; running jobs continue."""
    async with session.open() as fl, fl.transaction() as tx:
        changed = await actions.pause(tx, fl.principal, tenant, paused=not resume, note=note)
    _print_tenants([changed], as_json=as_json, one=True)


@tenants.command()
@click.argument("tenant")
@click.option("--note", help="The reason, shown to other users.")
@output.json_option
@command
async def resume(session: CommandSession, *, tenant: str, note: str | None, as_json: bool) -> None:
    """Claim a tenant's jobs again."""
    async with session.open() as fl, fl.transaction() as tx:
        changed = await actions.pause(tx, fl.principal, tenant, paused=False, note=note)
    _print_tenants([changed], as_json=as_json, one=True)


@tenants.command("set")
@click.argument("tenant")
@click.option("--name", help="Its display name.")
@click.option("--timezone", help="Its IANA time zone.")
@click.option("--weight", type=int, help="Its share of capacity relative to other tenants.")
@click.option("--max-running", type=int, help="The most of its jobs that run concurrently.")
@click.option("--no-max-running", is_flag=True, help="Remove the limit of running jobs.")
@click.option(
    "--rate", metavar="RATE", help="How many of its jobs may start: 100/min, or with a burst 100/min+20."
)
@click.option("--no-rate", is_flag=True, help="Remove the limit of starts.")
@click.option(
    "--quota",
    "given",
    multiple=True,
    metavar="NAME=NUMBER",
    help="The tenant's own quota: 0 means no limit, `default` the quota of the settings. May be repeated.",
)
@click.option(
    "--allow",
    "addresses",
    multiple=True,
    metavar="NETWORK",
    help="Its users and tokens may be used only from this network, such as 10.0.0.0/8. May be repeated.",
)
@click.option("--allow-all", is_flag=True, help="Its users and tokens may be used from any address.")
@output.json_option
@command
async def set_tenant(
    session: CommandSession,
    *,
    tenant: str,
    no_max_running: bool,
    no_rate: bool,
    given: tuple[str, ...],
    addresses: tuple[str, ...],
    allow_all: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Change the given fields of a tenant."""
    changes = {name: value for name, value in options.items() if value is not None}
    if no_max_running and "max_running" in changes:
        raise InvalidInput("Give --max-running or --no-max-running, not both.")
    if no_max_running:
        changes["max_running"] = None
    if no_rate and "rate" in changes:
        raise InvalidInput("Give --rate or --no-rate, not both.")
    if "rate" in changes or no_rate:
        changes["rate"] = None if no_rate else parse_rate(changes["rate"])
    if given:
        changes["quotas"] = dict(_parse_quota(one) for one in given)
    if addresses and allow_all:
        raise InvalidInput("Give --allow or --allow-all, not both.")
    if addresses or allow_all:
        changes["addresses"] = list(addresses)
    if not changes:
        raise InvalidInput(
            "Nothing to change: give --name, --timezone, --weight, --max-running, --no-max-running, --rate, --no-rate, "
            "--quota, --allow or --allow-all."
        )
    async with session.open() as fl, fl.transaction() as tx:
        tenant_now = await actions.change(tx, fl.principal, tenant, changes)
    _print_tenants([tenant_now], as_json=as_json, one=True)


def _parse_quota(text: str) -> tuple[str, int | None]:
    name, _, number = text.partition("=")
    if number == "default":
        return name, None
    if not number.isdecimal():
        raise InvalidInput(f"--quota {text[:100]}: write it as NAME=NUMBER, such as queued_jobs=5000.")
    return name, int(number)


@tenants.command("quotas")
@click.argument("tenant")
@output.json_option
@command
async def show_quotas(session: CommandSession, *, tenant: str, as_json: bool) -> None:
    """Show a tenant's quotas and how much of each it uses."""
    async with session.open() as fl:
        found = await fl.quotas(tenant)
    if as_json:
        output.print_json({"items": found})
        return
    output.print_table(
        ("quota", "used", "allowed", "set by"),
        [
            (
                one.quota.value,
                "per run" if one.used is None else one.used,
                "unlimited" if one.allowed is None else one.allowed,
                "tenant" if one.is_own else "settings",
            )
            for one in found
        ],
        empty="",
    )


def _print_tenants(found: list[Tenant], *, as_json: bool, one: bool = False) -> None:
    if as_json:
        output.print_json(found[0] if one else {"items": found})
        return
    output.print_table(
        ("slug", "name", "timezone", "weight", "max running", "rate", "paused", "by", "note", "id"),
        [
            (
                t.slug,
                t.name,
                t.timezone,
                t.weight,
                t.max_running,
                None if t.rate is None else format_rate(t.rate),
                t.paused_at,
                t.paused_by,
                t.pause_note,
                t.id,
            )
            for t in found
        ],
        empty="There are no tenants yet. Add one with: fairlead tenants add SLUG",
    )
