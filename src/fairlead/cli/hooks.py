"""`fairlead hooks`."""

import sys
from typing import Any

import click
import msgspec

from fairlead.actions import hook_deliveries
from fairlead.actions import hooks as actions
from fairlead.actions.hooks import DEFAULT_KEEP_SECONDS, LONGEST_KEEP_SECONDS, HookSecret
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.cli.tokens import limit_to_tenant, open_tenant_transaction
from fairlead.model.hooks.hook import DEFAULT_TOLERANCE, LONGEST_TOLERANCE, Hook, Scheme, UniqueBy
from fairlead.model.request import unknown_tenant

_tenant = click.option(
    "--tenant", help="The hook's tenant, slug or id; needed only if several tenants have a hook of this name."
)
_secret_stdin = click.option(
    "--secret-stdin",
    is_flag=True,
    help="Read the sender's secret from standard input instead of generating one.",
)
_tolerance = click.IntRange(1, LONGEST_TOLERANCE)
_EVENT = "The event's name; {type} in it is replaced by the sender's type."


@click.group()
def hooks() -> None:
    """Receive webhooks of other systems: each becomes an event. HOOK is a name or an id."""


@hooks.command("list")
@click.option("--tenant", help="Only this tenant's hooks: slug or id.")
@output.json_option
@list_command
async def list_hooks(session: CommandSession, *, tenant: str | None, as_json: bool) -> None:
    """List hooks, oldest first, with the last delivery and refusal of each."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.list_hooks(tx, principal, limit=actions.MAX_PAGE)
    if as_json:
        output.print_json({"items": [_document(one) for one in found]})
        return
    output.print_table(
        (
            "name",
            "tenant",
            "scheme",
            "event",
            "path",
            "enabled",
            "last received",
            "last refused",
            "why",
            "id",
        ),
        [
            (
                one.name,
                one.tenant,
                one.scheme,
                one.event_name,
                one.path,
                "yes" if one.is_enabled else "no",
                one.last_received_at,
                one.last_refused_at,
                one.last_refusal,
                one.id,
            )
            for one in found
        ],
        empty="No hooks. Create one with: fairlead hooks create NAME --tenant TENANT --scheme github",
    )


@hooks.command()
@click.argument("name")
@click.option("--tenant", required=True, help="The hook's tenant: slug or id.")
@click.option(
    "--scheme", required=True, type=output.enum_choice(Scheme), help="How the sender signs its deliveries."
)
@click.option("--event", "event_name", help=f"{_EVENT} Default: NAME.{{type}}.")
@_secret_stdin
@click.option(
    "--unique-by",
    type=output.enum_choice(UniqueBy),
    default=UniqueBy.ID.value,
    show_default=True,
    help="What identifies a delivery: a second one with the same becomes no second event.",
)
@click.option(
    "--tolerance-seconds",
    type=_tolerance,
    default=DEFAULT_TOLERANCE,
    show_default=True,
    help="How old a signature may be, if the scheme has a timestamp.",
)
@output.json_option
@command
async def create(
    session: CommandSession,
    *,
    name: str,
    tenant: str,
    scheme: str,
    event_name: str | None,
    secret_stdin: bool,
    unique_by: str,
    tolerance_seconds: int,
    as_json: bool,
) -> None:
    """Create a hook, and print its secret if it was generated: it is not shown again."""
    secret = _read_secret() if secret_stdin else None
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        if principal.tenant_id is None:
            raise unknown_tenant(tenant)
        made = await actions.create(
            tx,
            principal,
            tenant_id=principal.tenant_id,
            name=name,
            scheme=Scheme(scheme),
            event_name=event_name,
            secret=secret,
            unique_by=UniqueBy(unique_by),
            tolerance_seconds=tolerance_seconds,
        )
    _print_secret(made, as_json=as_json)


@hooks.command()
@click.argument("hook")
@click.option("--event", "event_name", help=_EVENT)
@click.option("--unique-by", type=output.enum_choice(UniqueBy), help="What identifies a delivery.")
@click.option("--tolerance-seconds", type=_tolerance, help="How old a signature may be.")
@click.option("--enable/--disable", "is_enabled", default=None, help="Take deliveries, or refuse them.")
@_tenant
@output.json_option
@command
async def update(
    session: CommandSession, *, hook: str, tenant: str | None, as_json: bool, **changes: Any
) -> None:
    """Change the given fields of a hook; this takes effect within two seconds."""
    given = {name: value for name, value in changes.items() if value is not None}
    if "unique_by" in given:
        given["unique_by"] = UniqueBy(given["unique_by"])
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.find(tx, principal, hook)
        changed = await actions.change(tx, principal, found.id, given)
    _print_hook(changed, f"updated {changed.name}", as_json=as_json)


@hooks.command()
@click.argument("hook")
@_secret_stdin
@click.option(
    "--keep-seconds",
    type=click.IntRange(0, LONGEST_KEEP_SECONDS),
    default=DEFAULT_KEEP_SECONDS,
    show_default=True,
    help="How long the old secret stays valid.",
)
@_tenant
@output.json_option
@command
async def rotate(
    session: CommandSession,
    *,
    hook: str,
    secret_stdin: bool,
    keep_seconds: int,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Give a hook a new secret, and print it if it was generated: it is not shown again."""
    secret = _read_secret() if secret_stdin else None
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.find(tx, principal, hook)
        made = await actions.rotate_secret(tx, principal, found.id, secret=secret, keep_seconds=keep_seconds)
    _print_secret(made, as_json=as_json)


@hooks.command()
@click.argument("hook")
@_tenant
@output.json_option
@command
async def delete(session: CommandSession, *, hook: str, tenant: str | None, as_json: bool) -> None:
    """Delete a hook and its secrets. Its events stay."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.find(tx, principal, hook)
        gone = await actions.remove(tx, principal, found.id)
    _print_hook(gone, f"deleted {gone.name}", as_json=as_json)


@hooks.command()
@click.argument("hook")
@_tenant
@output.json_option
@command
async def test(session: CommandSession, *, hook: str, tenant: str | None, as_json: bool) -> None:
    """Emit an event like that of a delivery of the type `test`, to try the hook's triggers."""
    async with session.open() as fl, fl.transaction() as tx:
        principal = await limit_to_tenant(tx, fl.principal, tenant)
        found = await actions.find(tx, principal, hook)
        event_id = await hook_deliveries.send_test(tx, principal, fl.catalog, found)
    if as_json:
        output.print_json({"id": event_id})
    else:
        output.console().print(f"emitted {event_id}: fairlead events show {event_id}", markup=False)


def _read_secret() -> str:
    return sys.stdin.readline().rstrip("\r\n")


def _document(hook: Hook) -> dict[str, Any]:
    return {**msgspec.to_builtins(hook), "path": hook.path}


def _print_hook(hook: Hook, text: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(_document(hook))
    else:
        output.console().print(text, markup=False)


def _print_secret(made: HookSecret, *, as_json: bool) -> None:
    if as_json:
        output.print_json({**_document(made.hook), "secret": made.secret})
        return
    output.print_facts(
        [
            ("path", made.hook.path),
            ("event", made.hook.event_name),
            ("id", made.hook.id),
            *([("secret", made.secret)] if made.secret else []),
        ]
    )
    if made.secret:
        output.console().print("\nCopy the secret now: it is not shown again.")
