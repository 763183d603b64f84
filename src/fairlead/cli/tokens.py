"""`fairlead tokens`."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import click
import msgspec
from msgspec.structs import replace

from fairlead.actions import access, token_limits, token_rotation
from fairlead.actions import tenants as tenant_actions
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.cli.tenant_names import Slugs, read_slugs, slug_of
from fairlead.db.tx import Tx
from fairlead.errors import InvalidInput
from fairlead.model.access import Principal, Role, Token, TokenState
from fairlead.model.request import unknown_tenant

# A token's state in the list.
STATES = {
    TokenState.VALID: "valid",
    TokenState.EXPIRED: "expired",
    TokenState.REVOKED: "revoked",
    TokenState.MAKER_DISABLED: "refused: its creator is disabled",
    TokenState.MAKER_LACKS_ROLE: "refused: its creator's role cannot grant it",
}


@asynccontextmanager
async def open_tenant_transaction(
    session: CommandSession, tenant: str | None
) -> AsyncIterator[tuple[Tx, Principal]]:
    """A transaction and the caller's principal, limited to a tenant if one is given."""
    async with session.open() as fl, fl.transaction() as tx:
        yield tx, await limit_to_tenant(tx, fl.principal, tenant)


async def limit_to_tenant(tx: Tx, principal: Principal, tenant: str | None) -> Principal:
    """The principal, limited to a tenant if one is given."""
    if tenant is None:
        return principal
    found = await tenant_actions.find(tx, principal, tenant)
    if found is None:
        raise unknown_tenant(tenant)
    return replace(principal, tenant_id=found.id)


@click.group()
def tokens() -> None:
    """Tokens for programs that call the API."""


@tokens.command()
@click.argument("name")
@click.option("--role", type=output.enum_choice(Role), required=True, help="The token's role.")
@click.option(
    "--tenant", help="The tenant, slug or id; leave it out for super admins and for workers of all tenants."
)
@click.option("--host", "host_id", type=click.UUID, help="The agent's host: its id.")
@click.option(
    "--expires-days",
    type=click.FloatRange(min=0, max=36_500),
    help=f"How long it is valid (default: {token_limits.DEFAULT_DAYS}).",
)
@click.option("--no-expiry", is_flag=True, help="Valid until it is revoked.")
@click.option(
    "--definition",
    "only",
    multiple=True,
    help="Only this definition may be run (worker) or enqueued (application); may be repeated.",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="PERMISSION",
    help="Only this permission of the role, such as jobs.read; may be repeated.",
)
@click.option(
    "--allow",
    "addresses",
    multiple=True,
    metavar="NETWORK",
    help="Only from this network, such as 10.0.0.0/8; may be repeated.",
)
@output.json_option
@command
async def create(
    session: CommandSession,
    *,
    name: str,
    role: str,
    tenant: str | None,
    host_id: UUID | None,
    expires_days: float | None,
    no_expiry: bool,
    only: tuple[str, ...],
    scopes: tuple[str, ...],
    addresses: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create a token and print its secret, which is not shown again."""
    if no_expiry and expires_days is not None:
        raise InvalidInput("Give --expires-days or --no-expiry, not both.")
    expires: datetime | access.Expiry | None = None if no_expiry else access.Expiry.DEFAULT
    if expires_days is not None:
        expires = datetime.now(UTC) + timedelta(days=expires_days)
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        made = await access.create_token(
            tx,
            principal,
            name=name,
            role=Role(role),
            tenant_id=principal.tenant_id,
            host_id=host_id,
            expires_at=expires,
            only=only or None,
            scopes=scopes or None,
            addresses=addresses or None,
        )
    if as_json:
        output.print_json({**msgspec.to_builtins(made.token), "secret": made.secret})
        return
    output.print_facts([("token", made.secret), ("id", made.token.id), ("role", role), ("tenant", tenant)])
    output.print_facts([("expires", made.token.expires_at or "never")])
    output.console().print("\nCopy it now: it is not shown again.")


@tokens.command("list")
@click.option("--tenant", help="Only this tenant's tokens: slug or id.")
@click.option("--limit", type=click.IntRange(1, access.MAX_PAGE), default=100, show_default=True)
@click.option("--after", type=click.UUID, help="Continue after the token with this id.")
@output.json_option
@list_command
async def list_tokens(
    session: CommandSession, *, tenant: str | None, limit: int, after: UUID | None, as_json: bool
) -> None:
    """List tokens, without their secrets."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await access.list_tokens(tx, principal, after=after, limit=limit)
        slugs = await read_slugs(tx, principal)
    _print_tokens(found, slugs, as_json=as_json)


@tokens.command()
@click.argument("token_id", type=click.UUID)
@output.json_option
@command
async def revoke(session: CommandSession, *, token_id: UUID, as_json: bool) -> None:
    """Revoke a token: it stops working within five seconds."""
    async with open_tenant_transaction(session, None) as (tx, principal):
        token = await access.revoke_token(tx, principal, token_id)
    if as_json:
        output.print_json(token)
    else:
        output.console().print(f"revoked {token.name} ({token.prefix}…)")


@tokens.command()
@click.argument("token_id", type=click.UUID)
@click.option(
    "--overlap",
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="How long the old secret stays valid, at most 30d: 90s, 15m, 1h, 7d.",
)
@output.json_option
@command
async def rotate(session: CommandSession, *, token_id: UUID, overlap: str, as_json: bool) -> None:
    """Create a token like this one, with a new secret; this one ends after the overlap."""
    seconds = _parse_overlap(overlap)
    async with open_tenant_transaction(session, None) as (tx, principal):
        made = await token_rotation.rotate(tx, principal, token_id, overlap_seconds=seconds)
    if as_json:
        output.print_json({**msgspec.to_builtins(made.token), "secret": made.secret})
        return
    output.print_facts([("token", made.secret), ("id", made.token.id), ("role", made.token.role)])
    output.print_facts([("expires", made.token.expires_at or "never"), ("old one ends in", overlap)])
    output.console().print("\nCopy it now: it is not shown again.")


def _parse_overlap(text: str) -> float:
    found = re.fullmatch(r"(\d{1,7})([smhd])", text.strip())
    if found is None:
        raise InvalidInput("Write the overlap as a number and s, m, h or d, such as --overlap 1h.")
    return int(found[1]) * {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}[found[2]]


def _print_tokens(found: list[Token], slugs: Slugs, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"items": found})
        return
    output.print_table(
        (
            "name",
            "role",
            "tenant",
            "definitions",
            "scopes",
            "addresses",
            "begins",
            "created",
            "last used",
            "expires",
            "state",
            "id",
        ),
        [
            (
                t.name,
                t.role,
                slug_of(t.tenant_id, slugs),
                ", ".join(t.definitions or ()) or None,
                ", ".join(t.scopes or ()) or None,
                ", ".join(t.addresses or ()) or None,
                t.prefix,
                t.created_at,
                t.last_used_at,
                t.expires_at,
                STATES[t.state],
                t.id,
            )
            for t in found
        ],
        empty="There are no tokens yet. Create one with: fairlead tokens create NAME --role ROLE",
    )
