"""Sign-in with an identity provider: sign-ins under way, users by claim, and the ends of their sessions.

These transactions see all rows: the person has no session yet, and the provider decides about tenants. Permissions are the
settings' claims.
"""

from collections.abc import Mapping
from uuid import UUID

from fairlead.actions import user_sessions
from fairlead.actions.user_sessions import VerifiedUser
from fairlead.db.tx import Tx
from fairlead.errors import Fault, SignInRefused
from fairlead.model.access import ACCESS_CHANGED
from fairlead.model.oidc.claims import Person
from fairlead.model.oidc.settings import OidcProvider
from fairlead.model.secrets.generated import hash_secret
from fairlead.store import access, audit, identities

# How long a person may take at the provider.
SIGN_IN_SECONDS = 600.0
LONGEST_PAGE = 2000


async def begin(tx: Tx, *, provider: str, state: str, browser: str, next_page: str) -> None:
    """Remember a sign-in that begins in a browser."""
    await identities.begin(
        tx,
        state_hash=hash_secret(state),
        browser_hash=hash_secret(browser),
        provider=provider,
        next_page=next_page if len(next_page) <= LONGEST_PAGE else "",
        seconds=SIGN_IN_SECONDS,
    )


async def take(tx: Tx, *, provider: str, state: str, browser: str) -> str:
    """Use up the sign-in that began in this browser: the page to show next. SignInRefused if there is none."""
    found = await identities.take(
        tx, state_hash=hash_secret(state), browser_hash=hash_secret(browser), provider=provider
    )
    if found is None:
        raise unknown_sign_in()
    return found


def unknown_sign_in() -> SignInRefused:
    """The error for an answer that belongs to no sign-in of the browser."""
    return SignInRefused(
        "This sign-in did not begin in this browser, took longer than 10 minutes, or is over already. Begin it again."
    )


async def find_user(
    tx: Tx, provider: OidcProvider, person: Person, *, tenant_id: UUID | None
) -> VerifiedUser:
    """The user whom a person is here: added at the first sign-in, and changed to what the claims say at each."""
    user = await _find_or_add(tx, provider, person, tenant_id)
    if user.is_disabled:
        raise SignInRefused(
            "Your user is disabled here. Ask an admin of your tenant to enable it.",
            [Fault("user", "is disabled")],
        )
    await _update(tx, provider, person, user, tenant_id)
    verified = await user_sessions.get_user(tx, user.user_id)
    if verified is None:
        raise SignInRefused("Your user was changed meanwhile. Sign in again.")
    return verified


async def note_session(
    tx: Tx, provider: OidcProvider, person: Person, user: VerifiedUser, secret: str
) -> None:
    """Record with which provider a session began, so that the provider can end it."""
    await identities.add_session(
        tx,
        secret_hash=hash_secret(secret),
        tenant_id=user.tenant_id,
        user_id=user.id,
        issuer=provider.issuer,
        provider=provider.name,
        sid=person.sid,
    )


async def _find_or_add(
    tx: Tx, provider: OidcProvider, person: Person, tenant_id: UUID | None
) -> identities.KnownUser:
    found = await _find(tx, provider, person, tenant_id)
    if found is not None:
        return found
    with_address = await identities.find_user_with_address(tx, person.email, tenant_id=tenant_id)
    if with_address is not None:
        # two first sign-ins of the same person at once: the other one has added the user
        found = await _find(tx, provider, person, tenant_id)
        return found or await _link(tx, provider, person, with_address, tenant_id)
    added = await access.add_user(
        tx,
        tenant_id=tenant_id,
        email=person.email,
        password_hash=None,
        role=person.role,
        created_by=f"oidc:{provider.name}",
    )
    if added is None:
        found = await _find(tx, provider, person, tenant_id)
        if found is None:
            raise _address_taken(provider)
        return found
    await _add_identity(tx, provider, person, added.id, tenant_id)
    details = {"email": person.email, "role": person.role, "provider": provider.name}
    await _audit(tx, "user_created", added.id, tenant_id, details)
    return identities.KnownUser(user_id=added.id, email=added.email, role=added.role, is_disabled=False)


async def _find(
    tx: Tx, provider: OidcProvider, person: Person, tenant_id: UUID | None
) -> identities.KnownUser | None:
    return await identities.find(tx, issuer=provider.issuer, subject=person.subject, tenant_id=tenant_id)


async def _link(
    tx: Tx, provider: OidcProvider, person: Person, user: identities.KnownUser, tenant_id: UUID | None
) -> identities.KnownUser:
    """Make the user with the same address the person, if the settings and the provider vouch for the address."""
    vouches = provider.link_by_email and person.email_verified and _is_same(person.email, user.email)
    if not vouches or user.is_disabled:
        raise _address_taken(provider)
    await _add_identity(tx, provider, person, user.user_id, tenant_id)
    await _audit(tx, "user_linked", user.user_id, tenant_id, {"provider": provider.name})
    return user


def _is_same(address: str, other: str) -> bool:
    """Whether two addresses differ at most in the case of ASCII letters.

    `lower` of some databases finds look-alikes, too: it makes a k of the Kelvin sign.
    """
    return address.encode().lower() == other.encode().lower()


async def _add_identity(
    tx: Tx, provider: OidcProvider, person: Person, user_id: UUID, tenant_id: UUID | None
) -> None:
    if not await identities.add(
        tx,
        user_id,
        tenant_id=tenant_id,
        issuer=provider.issuer,
        subject=person.subject,
        provider=provider.name,
    ):
        raise _address_taken(provider)


async def _update(
    tx: Tx, provider: OidcProvider, person: Person, user: identities.KnownUser, tenant_id: UUID | None
) -> None:
    await identities.mark(tx, user.user_id, issuer=provider.issuer, provider=provider.name)
    if (user.role, user.email) == (person.role, person.email):
        return
    if not await identities.change_user(tx, user.user_id, role=person.role, email=person.email):
        raise _address_taken(provider)
    changes: dict[str, object] = {"provider": provider.name}
    if user.email != person.email:
        changes["email"] = person.email
    if user.role is not person.role:
        changes["role"] = person.role
        await access.end_sessions_of(tx, user.user_id)
        tx.notify(ACCESS_CHANGED)
    await _audit(tx, "user_changed", user.user_id, tenant_id, changes)


async def end_elsewhere(tx: Tx, provider: OidcProvider, person: Person, *, tenant_id: UUID | None) -> None:
    """End the sessions and tokens that a person has in other tenants of this cell: the claims name another tenant now."""
    ended = await identities.end_elsewhere(
        tx, issuer=provider.issuer, subject=person.subject, tenant_id=tenant_id
    )
    if await identities.leave_elsewhere(
        tx, issuer=provider.issuer, subject=person.subject, tenant_id=tenant_id
    ):
        tx.notify(ACCESS_CHANGED)
    await _audit_ends(tx, provider, ended)


async def record_refusal(tx: Tx, provider: OidcProvider, person: Person | None, why: str) -> None:
    """Audit a sign-in that was refused."""
    details = {"provider": provider.name, "why": why} | ({} if person is None else {"email": person.email})
    await audit.write(tx, actor="anonymous", action="login_failed", resource_type="user", details=details)


async def note_logout(tx: Tx, provider: OidcProvider, jti: str, *, seconds: float) -> None:
    """Accept a logout token once; SignInRefused if it was received before."""
    if not await identities.note_logout(tx, hash_secret(f"{provider.issuer} {jti}"), seconds=seconds):
        raise SignInRefused("This logout token was received before.")


async def end_sessions(tx: Tx, provider: OidcProvider, *, subject: str | None, sid: str | None) -> int:
    """End the sessions that a provider's logout token names, in this cell. Their number."""
    ended = await identities.end_sessions(tx, issuer=provider.issuer, subject=subject, sid=sid)
    await _audit_ends(tx, provider, ended)
    return len(ended)


async def find_session_provider(tx: Tx, secret: str) -> str | None:
    """The name of the provider with which a session began."""
    return await identities.find_session_provider(tx, hash_secret(secret))


async def _audit_ends(tx: Tx, provider: OidcProvider, ended: list[identities.EndedSession]) -> None:
    for user_id, tenant_id in {(one.user_id, one.tenant_id) for one in ended}:
        details = {"provider": provider.name, "by": "provider"}
        await _audit(tx, "user_signed_out", user_id, tenant_id, details)
    if ended:
        tx.notify(ACCESS_CHANGED)


async def _audit(
    tx: Tx, action: str, user_id: UUID, tenant_id: UUID | None, details: Mapping[str, object]
) -> None:
    """`details` name the provider."""
    await audit.write(
        tx,
        actor=f"oidc:{details['provider']}",
        action=action,
        resource_type="user",
        resource_id=user_id,
        tenant_id=tenant_id,
        details=dict(details),
    )


def _address_taken(provider: OidcProvider) -> SignInRefused:
    return SignInRefused(
        f"Another user here has your e-mail address and is not linked to {provider.label}. Ask your administrator to "
        f"link the two with link_by_email in [oidc.{provider.name}], for which {provider.label} must vouch for the address.",
        [Fault("email", "taken")],
    )
