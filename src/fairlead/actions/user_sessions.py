"""Sign in and out: verify users, start and end their sessions, and find the principal of a session."""

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from fairlead.actions.passwords import check_password
from fairlead.db.tx import Tx
from fairlead.model.access import ACCESS_CHANGED, Principal
from fairlead.model.address_list import build_lists
from fairlead.model.payload import find_storage_flaw
from fairlead.model.second_factor import SignInProof
from fairlead.model.secrets.generated import generate_secret, hash_secret
from fairlead.model.user_agent import clean_user_agent
from fairlead.store import access, audit

# The user behind a sign-in, as it was read.
VerifiedUser = access.Credentials
# Whether a user may sign in with a password.
PasswordRule = Callable[[VerifiedUser], bool]
# How much of an address is recorded when a sign-in fails.
LONGEST_ADDRESS = 200


def allow_passwords(_user: VerifiedUser) -> bool:
    """Every user who has a password may use it."""
    return True


async def find_session_principal(
    tx: Tx, secret: str, *, is_use: bool = False, idle_seconds: float | None = None
) -> Principal | None:
    """The principal of a session's cookie. With `is_use` the session was used: its idle timeout begins anew.

    This is written once a minute at most, so that most requests change nothing.
    """
    user = await access.find_session_user(tx, hash_secret(secret))
    if user is None:
        return None
    if is_use and user.is_seen_long_ago:
        await access.mark_session_seen(tx, hash_secret(secret), idle_seconds=idle_seconds)
    return _user_principal(
        user,
        user.tenant_addresses,
        tenant_weight=user.tenant_weight,
        lacks_second_factor=user.lacks_second_factor,
    )


def _user_principal(
    user: access.SessionUser | access.Credentials,
    tenant_addresses: Sequence[str] | None = None,
    *,
    tenant_weight: int = 1,
    lacks_second_factor: bool = False,
) -> Principal:
    return Principal(
        f"user:{user.email}",
        user.role,
        user.tenant_id,
        id=user.id,
        user_id=user.id,
        lacks_second_factor=lacks_second_factor,
        address_lists=build_lists(tenant=tenant_addresses),
        tenant_weight=tenant_weight,
    )


async def is_unknown_session(tx: Tx, secret: str) -> bool:
    """Whether a cookie never was a session's; the cookie of an ended session is not a guess."""
    return not await access.session_existed(tx, hash_secret(secret))


async def verify_user(
    tx: Tx, *, email: str, password: str, may_use_password: PasswordRule = allow_passwords
) -> access.Credentials | None:
    """The user with this address and password; slow on purpose, and as slow for an unknown address.

    Several tenants may have the address: the password selects the user.
    """
    return await choose_user(await find_credentials(tx, email=email), password, may_use_password)


async def find_credentials(tx: Tx, *, email: str) -> list[access.Credentials]:
    """The users of this cell with an address."""
    return [] if find_storage_flaw(email) else await access.find_credentials(tx, email)


async def choose_user(
    found: Sequence[access.Credentials], password: str, may_use_password: PasswordRule = allow_passwords
) -> access.Credentials | None:
    """The user with this password; slow on purpose, and as slow if there is none with the address."""
    for user in found:
        if await check_password(user.password_hash if may_use_password(user) else None, password):
            return user
    if not found:
        await check_password(None, password)
    return None


async def get_user(tx: Tx, user_id: UUID) -> access.Credentials | None:
    """A user whom the caller has verified without a password; None if the user is disabled or does not exist."""
    return await access.get_credentials(tx, user_id)


async def start_session(
    tx: Tx,
    user: access.Credentials,
    *,
    seconds: float,
    idle_seconds: float | None = None,
    user_agent: str | None = None,
    proof: SignInProof = SignInProof.PASSWORD,
    details: Mapping[str, object] | None = None,
) -> tuple[Principal, str] | None:
    """Start a session for a verified user. The principal and the cookie's secret; None if the user was changed meanwhile.

    The caller checks that the principal's allow-lists admit the browser's address.

    Users are verified by `verify_user`, or in another way and then read with `get_user`. `details` go into the audit log.
    None also if the proof is a password (or a link in a mail, which stands for one), and the user has a second factor.
    """
    secret = generate_secret(user.tenant_id)
    started = await access.start_session(
        tx,
        user,
        secret_hash=secret.hash,
        seconds=seconds,
        idle_seconds=idle_seconds,
        proof=proof,
        user_agent=clean_user_agent(user_agent),
    )
    if not started:
        return None
    principal = _user_principal(user, await access.read_tenant_addresses(tx, user.tenant_id))
    await audit.write(
        tx,
        actor=principal.actor,
        principal_id=user.id,
        action="user_signed_in",
        resource_type="user",
        resource_id=user.id,
        tenant_id=user.tenant_id,
        details=dict(details or {}),
    )
    return principal, secret.text


async def record_failed_sign_in(tx: Tx, *, email: str, if_known: bool = False) -> None:
    """Record a failed sign-in, in each tenant that has the address; with `if_known`, an unknown address is not recorded."""
    email = "" if find_storage_flaw(email) else email[:LONGEST_ADDRESS]
    found = await access.find_credentials(tx, email)
    users: list[tuple[UUID | None, UUID | None]] = [(one.id, one.tenant_id) for one in found]
    for user_id, tenant_id in users or ([] if if_known else [(None, None)]):
        await audit.write(
            tx,
            actor="anonymous",
            action="login_failed",
            resource_type="user",
            resource_id=user_id,
            tenant_id=tenant_id,
            details={"email": email},
        )


async def sign_out(tx: Tx, secret: str) -> None:
    """End the session of this cookie, if it exists."""
    user = await access.find_session_user(tx, hash_secret(secret))
    if user is None or not await access.end_session(tx, hash_secret(secret)):
        return
    tx.notify(ACCESS_CHANGED)
    await audit.write(
        tx,
        actor=f"user:{user.email}",
        principal_id=user.id,
        action="user_signed_out",
        resource_type="user",
        resource_id=user.id,
        tenant_id=user.tenant_id,
    )
