"""`fairlead users`."""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from uuid import UUID

import click

from fairlead.actions import access, identities, invitations, second_factor
from fairlead.actions.account_links import Mailer
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.cli.tenant_names import Slugs, read_slugs, slug_of
from fairlead.cli.tokens import limit_to_tenant, open_tenant_transaction
from fairlead.db.tx import Tx
from fairlead.errors import InvalidInput
from fairlead.model.access import PEOPLE, Principal, Role, User
from fairlead.model.oidc.settings import read_oidc_settings
from fairlead.settings import config_file, read_document

ROLES = click.Choice([role.value for role in PEOPLE])
# Never an argument: other users of the machine can see arguments.
password_stdin = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")


@click.group()
def users() -> None:
    """Users who sign in."""


@users.command()
@click.argument("email")
@click.option("--role", type=ROLES, required=True, help="The user's role.")
@click.option("--tenant", help="The user's tenant, slug or id; leave it out for a super admin.")
@password_stdin
@output.json_option
@command
async def add(
    session: CommandSession, *, email: str, role: str, tenant: str | None, password_stdin: bool, as_json: bool
) -> None:
    """Add a user. Prompts for the password."""
    password = _read_password(from_stdin=password_stdin)
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        user = await access.add_user(
            tx, principal, email=email, password=password, role=Role(role), tenant_id=principal.tenant_id
        )
        slugs = await read_slugs(tx, principal)
    _print_users([user], slugs, as_json=as_json, one=True)


@users.command()
@click.argument("email")
@click.option("--role", type=ROLES, help="The role of a new user; leave it out to invite a user again.")
@click.option("--tenant", help="The user's tenant, slug or id; leave it out for a super admin.")
@click.option("--print-link", is_flag=True, help="Send no mail, but print the link: hand it over yourself.")
@output.json_option
@command
async def invite(
    session: CommandSession,
    *,
    email: str,
    role: str | None,
    tenant: str | None,
    print_link: bool,
    as_json: bool,
) -> None:
    """Invite a user by mail to choose a password; without --role, again."""
    url = None
    async with session.open() as fl, fl.transaction() as tx:
        principal = await limit_to_tenant(tx, fl.principal, tenant)
        if print_link:
            user, url = await invitations.create_link(
                tx,
                principal,
                fl.settings,
                email=email,
                role=None if role is None else Role(role),
                tenant_id=principal.tenant_id,
            )
        elif role is None:
            found = await access.find_user(tx, principal, email)
            user = await invitations.invite_again(tx, principal, Mailer(fl.settings, fl.catalog), found.id)
        else:
            user = await invitations.invite(
                tx,
                principal,
                Mailer(fl.settings, fl.catalog),
                email=email,
                role=Role(role),
                tenant_id=principal.tenant_id,
            )
    if as_json:
        output.print_json(user if url is None else {"user": user, "link": url})
    elif url is None:
        output.console().print(f"an invitation to {user.email} is on its way")
    else:
        # exactly the link, for programs that read it
        click.echo(url)


@users.command()
@click.argument("user")
@output.json_option
@command
async def withdraw(session: CommandSession, *, user: str, as_json: bool) -> None:
    """Withdraw an invitation, by email or id: its link ends, and the user is removed."""
    async with _open_user(session, user) as (tx, principal, found):
        await invitations.withdraw(tx, principal, found.id)
    _print_done(found, {"withdrawn": True}, f"the invitation of {found.email} is withdrawn", as_json=as_json)


@users.command("list")
@click.option("--tenant", help="Only this tenant's users: slug or id.")
@click.option("--limit", type=click.IntRange(1, access.MAX_PAGE), default=100, show_default=True)
@click.option("--after", type=click.UUID, help="Continue after the user with this id.")
@output.json_option
@list_command
async def list_users(
    session: CommandSession, *, tenant: str | None, limit: int, after: UUID | None, as_json: bool
) -> None:
    """List users."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await access.list_users(tx, principal, after=after, limit=limit)
        slugs = await read_slugs(tx, principal)
    _print_users(found, slugs, as_json=as_json)


@users.command()
@click.argument("user")
@click.option("--role", type=ROLES, help="The new role.")
@click.option("--password", "ask", is_flag=True, help="Prompt for a new password.")
@password_stdin
@click.option("--disable/--enable", "disabled", default=None, help="Disable or enable the user's sign-in.")
@click.option(
    "--remove-second-factor",
    "without_factor",
    is_flag=True,
    help="Remove the second factor of a user who has lost it.",
)
@output.json_option
@command
async def change(
    session: CommandSession,
    *,
    user: str,
    role: str | None,
    ask: bool,
    password_stdin: bool,
    disabled: bool | None,
    without_factor: bool,
    as_json: bool,
) -> None:
    """Change a user, by email or id. Every change ends the user's sessions."""
    password = _read_password(from_stdin=password_stdin) if ask or password_stdin else None
    if role is None and password is None and disabled is None and not without_factor:
        raise InvalidInput(
            "Nothing to change: give --role, --password, --disable, --enable or --remove-second-factor."
        )
    async with _open_user(session, user) as (tx, principal, found):
        if without_factor:
            await second_factor.remove(tx, principal, found.id)
        changed = await access.change_user(
            tx,
            principal,
            found.id,
            role=None if role is None else Role(role),
            password=password,
            disabled=disabled,
        )
        slugs = await read_slugs(tx, principal)
    _print_users([changed], slugs, as_json=as_json, one=True)


@users.command("sign-out")
@click.argument("user")
@output.json_option
@command
async def sign_out(session: CommandSession, *, user: str, as_json: bool) -> None:
    """End all sessions of a user, by email or id; the user may sign in again."""
    async with _open_user(session, user) as (tx, principal, found):
        count = await access.sign_out_user(tx, principal, found.id)
    _print_done(found, {"sessions_ended": count}, f"ended {count} sessions of {found.email}", as_json=as_json)


@users.command("revoke-tokens")
@click.argument("user")
@output.json_option
@command
async def revoke_tokens(session: CommandSession, *, user: str, as_json: bool) -> None:
    """Revoke every token that a user created, by email or id."""
    async with _open_user(session, user) as (tx, principal, found):
        count = await access.revoke_tokens_of(tx, principal, found.id)
    _print_done(found, {"revoked": count}, f"revoked {count} tokens of {found.email}", as_json=as_json)


@users.command("identities")
@click.argument("user")
@output.json_option
@list_command
async def list_identities(session: CommandSession, *, user: str, as_json: bool) -> None:
    """List the identities with which a user signs in, by email or id."""
    async with _open_user(session, user) as (tx, principal, found):
        listed = await identities.list_of_user(tx, principal, found.id, _read_providers())
    if as_json:
        output.print_json({"items": listed})
        return
    output.print_table(
        ("provider", "issuer", "subject", "linked", "last sign-in", "only way", "id"),
        [
            (
                one.provider,
                one.issuer,
                one.subject,
                one.created_at,
                one.last_sign_in_at,
                "yes" if one.is_only_way else "no",
                one.id,
            )
            for one in listed
        ],
        empty=f"{found.email} signs in with no identity provider.",
    )


@users.command()
@click.argument("user")
@click.argument("identity", type=click.UUID)
@click.option(
    "--even-if-only",
    is_flag=True,
    help="Also if the user then has no way to sign in, and their tokens stop working.",
)
@output.json_option
@command
async def unlink(
    session: CommandSession, *, user: str, identity: UUID, even_if_only: bool, as_json: bool
) -> None:
    """Unlink an identity from a user, by email or id, and end the sessions that began with it."""
    async with _open_user(session, user) as (tx, principal, found):
        unlinked = await identities.unlink(
            tx, principal, found.id, identity, _read_providers(), even_if_only=even_if_only
        )
    _print_done(
        found,
        {"identity_id": identity, "sessions_ended": unlinked.sessions_ended},
        f"unlinked {found.email} from {unlinked.identity.provider}, and ended {unlinked.sessions_ended} sessions",
        as_json=as_json,
    )


@asynccontextmanager
async def _open_user(session: CommandSession, name: str) -> AsyncIterator[tuple[Tx, Principal, User]]:
    """A transaction, the caller's principal, and the user with an address or id."""
    async with open_tenant_transaction(session, None) as (tx, principal):
        yield tx, principal, await access.find_user(tx, principal, name)


def _read_providers() -> identities.Providers:
    """They decide which other ways to sign in a user has."""
    return list(read_oidc_settings(read_document(config_file())).values())


def _print_done(user: User, facts: Mapping[str, object], told: str, *, as_json: bool) -> None:
    """What was done to a user: the facts as JSON, or the same in words."""
    if as_json:
        output.print_json({"user_id": user.id, **facts})
    else:
        output.console().print(told)


def _read_password(*, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise InvalidInput("Cannot prompt for a password without a terminal: use --password-stdin.")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))


def _print_users(found: list[User], slugs: Slugs, *, as_json: bool, one: bool = False) -> None:
    if as_json:
        output.print_json(found[0] if one else {"items": found})
        return
    output.print_table(
        ("email", "role", "tenant", "created", "invited until", "second factor", "disabled", "id"),
        [
            (
                u.email,
                u.role,
                slug_of(u.tenant_id, slugs),
                u.created_at,
                u.invitation_expires_at,
                "yes" if u.has_second_factor else "no",
                u.disabled_at,
                u.id,
            )
            for u in found
        ],
        empty="There are no users yet. Add one with: fairlead users add EMAIL --role ROLE",
    )
