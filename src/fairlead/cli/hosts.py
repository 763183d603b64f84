"""`fairlead hosts`."""

import shlex
from typing import Any
from uuid import UUID

import click
import msgspec

from fairlead.actions import hosts as actions
from fairlead.cli import output
from fairlead.cli.json_input import read_json
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.cli.tenant_names import read_slugs, slug_of
from fairlead.cli.tokens import open_tenant_transaction
from fairlead.model.access import Permission
from fairlead.model.host import Host

_tenant = click.option(
    "--tenant", help="The host's tenant, slug or id; needed only if several tenants have a host of this name."
)


@click.group()
def hosts() -> None:
    """Hosts: machines whose jobs only their own agents run. HOST is a name or an id."""


@hosts.command()
@click.argument("name")
@click.option("--tenant", required=True, help="The host's tenant: slug or id.")
@click.option(
    "--max-running", default=1, show_default=True, help="The most jobs that run on it concurrently."
)
@click.option("--labels", help="Labels (a JSON object).")
@output.json_option
@command
async def add(
    session: CommandSession, *, name: str, tenant: str, max_running: int, labels: str | None, as_json: bool
) -> None:
    """Register a host."""
    parsed_labels = {} if labels is None else read_json(labels, "labels")
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        host = await actions.add(
            tx,
            principal,
            tenant_id=_require_tenant(principal.tenant_id),
            name=name,
            max_running=max_running,
            labels=parsed_labels,
        )
    _print_answer(host, f"added host {host.name} ({host.id})", as_json=as_json)
    if not as_json:
        output.console().print(
            f"Next, for its agent: fairlead hosts enrol {shlex.quote(name)} --tenant {tenant} --server URL"
        )


def _require_tenant(tenant_id: UUID | None) -> UUID:
    if tenant_id is None:
        raise TypeError("a tenant was required")
    return tenant_id


@hosts.command("list")
@click.option("--tenant", help="Only this tenant's hosts: slug or id.")
@click.option("--limit", type=click.IntRange(1, actions.MAX_PAGE), default=100, show_default=True)
@click.option("--after", type=click.UUID, help="Continue after the host with this id.")
@output.json_option
@list_command
async def list_hosts(
    session: CommandSession, *, tenant: str | None, limit: int, after: UUID | None, as_json: bool
) -> None:
    """List hosts, oldest first."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.list_hosts(tx, principal, after=after, limit=limit)
        slugs = await read_slugs(tx, principal)
    if as_json:
        output.print_json({"items": found})
        return
    output.print_table(
        ("name", "state", "running", "last seen", "agent", "note", "tenant", "id"),
        [
            (
                one.name,
                _describe_state(one),
                f"{one.running}/{one.max_running}",
                one.last_seen_at,
                one.agent_version,
                one.pause_note,
                slug_of(one.tenant_id, slugs),
                one.id,
            )
            for one in found
        ],
        empty="There are no hosts yet. Register one with: fairlead hosts add NAME --tenant TENANT",
    )


def _describe_state(host: Host) -> str:
    """Whether the host's agent is online, and whether the host is paused or draining."""
    words = ["online" if host.online else "offline"]
    words += ["paused"] if host.paused_at is not None else []
    words += ["draining"] if host.draining else []
    return ", ".join(words)


@hosts.command()
@click.argument("host")
@_tenant
@output.json_option
@command
async def show(session: CommandSession, *, host: str, tenant: str | None, as_json: bool) -> None:
    """Show a host and its resources."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.find(tx, principal, host)
        things = await actions.list_resources(tx, principal, host_id=found.id, limit=actions.MAX_PAGE)
        slugs = await read_slugs(tx, principal)
    if as_json:
        output.print_json({**msgspec.to_builtins(found), "resources": things})
        return
    output.print_facts(
        [
            ("id", found.id),
            ("name", found.name),
            ("tenant", slug_of(found.tenant_id, slugs)),
            ("state", _describe_state(found)),
            ("note", found.pause_note),
            ("running", f"{found.running} of at most {found.max_running}"),
            ("last seen", output.format_moment(found.last_seen_at)),
            ("agent", found.agent_version),
            ("labels", msgspec.json.encode(found.labels).decode()),
        ]
    )
    output.console().print()
    output.print_table(
        ("resource", "kind", "id"),
        [(one.name, one.kind, one.id) for one in things],
        empty="The host has no resources.",
    )


@hosts.command()
@click.argument("host")
@_tenant
@click.option("--name", help="Its new name.")
@click.option("--max-running", type=int, help="The most jobs that run on it concurrently.")
@click.option("--labels", help="New labels (a JSON object), which replace the old ones.")
@output.json_option
@command
async def change(
    session: CommandSession, *, host: str, tenant: str | None, labels: str | None, as_json: bool, **says: Any
) -> None:
    """Change the given fields of a host. Its running jobs continue."""
    changes = {name: value for name, value in says.items() if value is not None}
    if labels is not None:
        changes["labels"] = read_json(labels, "labels")
    await _change(session, host, tenant, changes, "changed", as_json=as_json)


@hosts.command()
@click.argument("host")
@_tenant
@click.option("--note", help="The reason, shown to other users.")
@output.json_option
@command
async def pause(
    session: CommandSession, *, host: str, tenant: str | None, note: str | None, as_json: bool
) -> None:
    """Give its agent no more jobs; running jobs continue."""
    await _change(session, host, tenant, {"paused": True, "note": note}, "paused", as_json=as_json)


@hosts.command()
@click.argument("host")
@_tenant
@click.option("--note", help="The reason, shown to other users.")
@output.json_option
@command
async def resume(
    session: CommandSession, *, host: str, tenant: str | None, note: str | None, as_json: bool
) -> None:
    """Give its agent jobs again, whether it was paused or drained."""
    changes = {"paused": False, "draining": False, "note": note}
    await _change(session, host, tenant, changes, "resumed", as_json=as_json)


@hosts.command()
@click.argument("host")
@_tenant
@output.json_option
@command
async def drain(session: CommandSession, *, host: str, tenant: str | None, as_json: bool) -> None:
    """Give its agent no more jobs, let it finish its running jobs and stop; queued jobs wait for `resume`."""
    await _change(session, host, tenant, {"draining": True}, "draining", as_json=as_json)


@hosts.command()
@click.argument("host")
@_tenant
@click.option("--server", required=True, metavar="URL", help="The server's URL for the agent.")
@output.json_option
@command
async def enrol(
    session: CommandSession, *, host: str, tenant: str | None, server: str, as_json: bool
) -> None:
    """Print the command that starts the host's agent. Its code is valid once, for 15 minutes."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.find(tx, principal, host, Permission.MANAGE_HOSTS)
        made = await actions.create_enrolment_code(tx, principal, found.id)
    line = f"fairlead agent --server {shlex.quote(server.rstrip('/'))} --enrol {made.code}"
    if as_json:
        document = {"host_id": found.id, "code": made.code, "expires_at": made.expires_at, "command": line}
        output.print_json(document)
        return
    click.echo(line)
    output.console(stderr=True).print(
        f"Run it once on {found.name}. The code expires {output.format_distance(made.expires_at)}.",
        markup=False,
    )


@hosts.command()
@click.argument("host")
@_tenant
@output.json_option
@command
async def revoke(session: CommandSession, *, host: str, tenant: str | None, as_json: bool) -> None:
    """Revoke the tokens of its agents; they stop working within five seconds."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.find(tx, principal, host, Permission.MANAGE_HOSTS)
        count = await actions.revoke_agents(tx, principal, found.id)
    if as_json:
        output.print_json({"host_id": found.id, "tokens": count})
    else:
        output.console().print(
            f"revoked {count} token{'' if count == 1 else 's'} of {found.name}", markup=False
        )


@hosts.command()
@click.argument("host")
@_tenant
@output.json_option
@command
async def remove(session: CommandSession, *, host: str, tenant: str | None, as_json: bool) -> None:
    """Remove a host, with its resources and its agents' tokens. Its finished jobs stay."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.find(tx, principal, host, Permission.MANAGE_HOSTS)
        gone = await actions.remove(tx, principal, found.id)
    _print_answer(gone, f"removed {gone.name}", as_json=as_json)


async def _change(
    session: CommandSession,
    name: str,
    tenant: str | None,
    changes: dict[str, Any],
    what: str,
    *,
    as_json: bool,
) -> None:
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.find(tx, principal, name, Permission.MANAGE_HOSTS)
        host = await actions.change(tx, principal, found.id, changes)
    _print_answer(host, f"{what} {host.name}", as_json=as_json)


def _print_answer(host: Host, text: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(host)
    else:
        output.console().print(text, markup=False)
