"""Temporary tokens and users of `fairlead dev`, valid while it runs."""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from fairlead.actions import access, tenants
from fairlead.cli import output
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError, UserUnknown
from fairlead.library.app import Fairlead
from fairlead.model.access import Role

TOKENS = ("tenant_admin_token", "super_admin_token")
ADMIN = "admin@dev.localhost"
MEMBER = "demo@dev.localhost"


@asynccontextmanager
async def open_dev_access(fl: Fairlead, announced: Path, tenant: str | None) -> AsyncIterator[dict[str, str]]:
    """Create tokens and users, and revoke them after the block; also revokes those of an earlier run that crashed."""
    await _revoke_access(fl, _read_old_tokens(announced))
    password = secrets.token_urlsafe(12)
    given = {
        "super_admin_token": await _create_token(fl, Role.SUPER_ADMIN, None),
        "email": ADMIN,
        "password": password,
    }
    await _enable_user(fl, ADMIN, password, Role.SUPER_ADMIN, None)
    if tenant is not None:
        given["tenant_admin_token"] = await _create_token(fl, Role.TENANT_ADMIN, tenant)
        given["tenant_admin_email"] = MEMBER
        await _enable_user(fl, MEMBER, password, Role.TENANT_ADMIN, tenant)
    try:
        yield given
    finally:
        try:
            await _revoke_access(fl, [given[name] for name in TOKENS if name in given])
        except FairleadError as error:  # the database may already be stopped
            output.console(stderr=True).print(
                f"the tokens and users of this run were not revoked: {error.message}"
            )


async def _create_token(fl: Fairlead, role: Role, tenant: str | None) -> str:
    async def make(tx: Tx) -> str:
        found = None if tenant is None else await tenants.find(tx, fl.principal, tenant)
        made = await access.create_token(
            tx,
            fl.principal,
            name=f"dev {role}",
            role=role,
            tenant_id=None if found is None else found.id,
            expires_at=None,  # revoked at the end of this run
        )
        return made.secret

    return await fl.database.transact(make)


async def _enable_user(fl: Fairlead, email: str, password: str, role: Role, tenant: str | None) -> None:
    """Create or enable a user with this password."""

    async def make(tx: Tx) -> None:
        found = None if tenant is None else await tenants.find(tx, fl.principal, tenant)
        try:
            user = await access.find_user(tx, fl.principal, email)
        except UserUnknown:
            tenant_id = None if found is None else found.id
            await access.add_user(
                tx, fl.principal, email=email, password=password, role=role, tenant_id=tenant_id
            )
        else:
            await access.change_user(tx, fl.principal, user.id, password=password, disabled=False)

    await fl.database.transact(make)


async def _revoke_access(fl: Fairlead, tokens: Sequence[str]) -> None:
    """Revoke these tokens and disable the users."""

    async def close(tx: Tx) -> None:
        for secret in tokens:
            await access.revoke_secret(tx, fl.principal, secret)
        for email in (ADMIN, MEMBER):
            try:
                user = await access.find_user(tx, fl.principal, email)
            except UserUnknown:
                continue
            if user.disabled_at is None:
                await access.change_user(tx, fl.principal, user.id, disabled=True)

    await fl.database.transact(close)


def _read_old_tokens(path: Path) -> list[str]:
    try:
        said = msgspec.json.decode(path.read_bytes(), type=dict[str, str | None])
    except (FileNotFoundError, msgspec.MsgspecError):
        return []
    return [secret for name in TOKENS if (secret := said.get(name))]
