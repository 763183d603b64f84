"""`fairlead tenants`."""

from typing import Any

import click

from fairlead.actions import tenants as actions
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command
from fairlead.errors import InvalidInput
from fairlead.model.access import Tenant


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
    as_json: bool,
) -> None:
    """Add a tenant."""
    async with session.open() as fl, fl.transaction() as tx:
        tenant = await actions.add(
            tx, fl.principal, slug=slug, name=name, timezone=timezone, weight=weight, max_running=max_running
        )
    _print_tenants([tenant], as_json=as_json, one=True)


@tenants.command("list")
@output.json_option
@command
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
    "--quota",
    "given",
    multiple=True,
    metavar="NAME=NUMBER",
    help="The tenant's own quota: 0 means no limit, `default` the quota of the settings. May be repeated.",
)
@output.json_option
@command
async def set_tenant(
    session: CommandSession,
    *,
    tenant: str,
    no_max_running: bool,
    given: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Change the given fields of a tenant."""
    changes = {name: value for name, value in options.items() if value is not None}
    if no_max_running and "max_running" in changes:
        raise InvalidInput("Give --max-running or --no-max-running, not both.")
    if no_max_running:
        changes["max_running"] = None
    if given:
        changes["quotas"] = dict(_parse_quota(one) for one in given)
    if not changes:
        raise InvalidInput(
            "Nothing to change: give --name, --timezone, --weight, --max-running, --no-max-running or --quota."
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
        ("slug", "name", "timezone", "weight", "max running", "paused", "by", "note", "id"),
        [
            (
                t.slug,
                t.name,
                t.timezone,
                t.weight,
                t.max_running,
                t.paused_at,
                t.paused_by,
                t.pause_note,
                t.id,
            )
            for t in found
        ],
        empty="There are no tenants yet. Add one with: fairlead tenants add SLUG",
    )
