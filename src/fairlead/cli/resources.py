"""`fairlead resources`."""

from uuid import UUID

import click

from fairlead.actions import hosts as actions
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.cli.tenant_names import read_slugs, slug_of
from fairlead.cli.tokens import open_tenant_transaction
from fairlead.model.access import Permission
from fairlead.model.host import Resource

_tenant = click.option(
    "--tenant", help="The tenant, slug or id; needed only if several tenants have such a name."
)


@click.group()
def resources() -> None:
    """Resources: things on hosts that jobs act on, such as game servers. RESOURCE is a name or an id."""


@resources.command()
@click.argument("name")
@click.option("--host", required=True, help="Its host: name or id.")
@click.option("--kind", required=True, help="Its kind, such as server.")
@_tenant
@output.json_option
@command
async def add(
    session: CommandSession, *, name: str, host: str, kind: str, tenant: str | None, as_json: bool
) -> None:
    """Register a resource on a host."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.find(tx, principal, host, Permission.MANAGE_HOSTS)
        made = await actions.add_resource(
            tx, principal, tenant_id=found.tenant_id, host_id=found.id, kind=kind, name=name
        )
    _print_answer(made, f"added {made.kind} {made.name} on {made.host} ({made.id})", as_json=as_json)


@resources.command("list")
@click.option("--tenant", help="Only this tenant's resources: slug or id.")
@click.option("--host", help="Only resources on this host: name or id.")
@click.option("--kind", help="Only resources of this kind.")
@click.option("--limit", type=click.IntRange(1, actions.MAX_PAGE), default=100, show_default=True)
@click.option("--after", type=click.UUID, help="Continue after the resource with this id.")
@output.json_option
@list_command
async def list_resources(
    session: CommandSession,
    *,
    tenant: str | None,
    host: str | None,
    kind: str | None,
    limit: int,
    after: UUID | None,
    as_json: bool,
) -> None:
    """List resources, oldest first."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        host_id = None if host is None else (await actions.find(tx, principal, host)).id
        found = await actions.list_resources(
            tx, principal, host_id=host_id, kind=kind, after=after, limit=limit
        )
        slugs = await read_slugs(tx, principal)
    if as_json:
        output.print_json({"items": found})
        return
    output.print_table(
        ("name", "kind", "host", "created", "tenant", "id"),
        [
            (one.name, one.kind, one.host, one.created_at, slug_of(one.tenant_id, slugs), one.id)
            for one in found
        ],
        empty="No matching resources. Register one with: fairlead resources add NAME --host HOST --kind KIND",
    )


@resources.command()
@click.argument("resource")
@click.option("--host", required=True, help="The new host: name or id.")
@_tenant
@output.json_option
@command
async def move(
    session: CommandSession, *, resource: str, host: str, tenant: str | None, as_json: bool
) -> None:
    """Move a resource to another host. New jobs go there; queued jobs stay on the old host."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.find_resource(tx, principal, resource, Permission.MANAGE_HOSTS)
        to = await actions.find(tx, principal, host, Permission.MANAGE_HOSTS)
        moved = await actions.change_resource(tx, principal, found.id, host_id=to.id)
    _print_answer(moved, f"{moved.kind} {moved.name} is on {moved.host}", as_json=as_json)


def _print_answer(resource: Resource, text: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(resource)
    else:
        output.console().print(text, markup=False)
