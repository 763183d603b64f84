"""Invite people by mail: they set their password themselves. The same rules as for adding a user."""

from uuid import UUID

from fairlead.actions import access as access_actions
from fairlead.actions import account_links, user_sessions
from fairlead.actions.account_links import Mailer
from fairlead.actions.token_limits import require_grantable
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput, InvitationAccepted, UserUnknown
from fairlead.model.access import Permission, Principal, Role, User
from fairlead.model.account_link import LinkPurpose, is_mailable
from fairlead.settings import Settings
from fairlead.store import access, audit
from fairlead.store import account_links as links
from fairlead.store.access import Credentials
from fairlead.store.account_links import LinkedUser
from fairlead.store.allowances import RateBudget

# Mails to one address, whichever tenants invite it, and mails of one tenant.
TO_ADDRESS = RateBudget(5, 3600.0)
OF_TENANT = RateBudget(200, 60.0)


async def invite(
    tx: Tx, principal: Principal, mailer: Mailer, *, email: str, role: Role, tenant_id: UUID | None
) -> User:
    """Add a user without a password, and mail an invitation. The transaction sees all rows."""
    user = await _add_user(tx, principal, email=email, role=role, tenant_id=tenant_id)
    return await invite_again(tx, principal, mailer, user.id)


async def invite_again(tx: Tx, principal: Principal, mailer: Mailer, user_id: UUID) -> User:
    """Mail another invitation to a user who has not accepted one; the earlier link ends."""
    user = await _lock_pending(tx, principal, user_id)
    await _limit_mails(tx, user)
    await account_links.mail_link(tx, user, LinkPurpose.INVITATION, mailer, actor=principal.actor)
    await _audit(tx, principal, "user_invited", user, {"email": user.email, "role": user.role})
    return await _get(tx, principal, user_id)


async def create_link(
    tx: Tx,
    principal: Principal,
    settings: Settings,
    *,
    email: str,
    role: Role | None,
    tenant_id: UUID | None,
) -> tuple[User, str]:
    """The same without a mail: the user and the address to hand over. Without a role, for a user who exists."""
    user_id = (
        (await access_actions.find_user(tx, principal, email)).id
        if role is None
        else (await _add_user(tx, principal, email=email, role=role, tenant_id=tenant_id)).id
    )
    user = await _lock_pending(tx, principal, user_id)
    url = await account_links.create_link(tx, user, LinkPurpose.INVITATION, settings, actor=principal.actor)
    details = {"email": user.email, "role": user.role, "link_printed": True}
    await _audit(tx, principal, "user_invited", user, details)
    return await _get(tx, principal, user_id), url


async def withdraw(tx: Tx, principal: Principal, user_id: UUID) -> None:
    """End an invitation that was not accepted, and remove its user."""
    user = await _lock_pending(tx, principal, user_id)
    await links.remove_user(tx, user_id)
    await _audit(tx, principal, "invitation_withdrawn", user, {"email": user.email, "role": user.role})


async def accept(tx: Tx, secret: str, *, password_hash: str) -> Credentials:
    """Use an invitation: set the password. The user, for whom the caller starts a session."""
    user_id = await account_links.use_link(tx, secret, LinkPurpose.INVITATION, password_hash)
    user = await user_sessions.get_user(tx, user_id)
    if user is None:
        raise account_links.link_invalid(LinkPurpose.INVITATION)
    await audit.write(
        tx,
        actor=f"user:{user.email}",
        principal_id=user.id,
        action="invitation_accepted",
        resource_type="user",
        resource_id=user.id,
        tenant_id=user.tenant_id,
    )
    return user


async def _add_user(tx: Tx, principal: Principal, *, email: str, role: Role, tenant_id: UUID | None) -> User:
    if not is_mailable(email):
        raise InvalidInput(
            "Cannot invite this address: use one such as ada@example.com, in ASCII.",
            [Fault("email", "must be an address such as ada@example.com, in ASCII")],
        )
    return await access_actions.add_user(
        tx, principal, email=email, password=None, role=role, tenant_id=tenant_id
    )


async def _lock_pending(tx: Tx, principal: Principal, user_id: UUID) -> LinkedUser:
    """A user who has not accepted an invitation, whom the principal may manage and whose role it may grant."""
    principal.require(Permission.MANAGE_USERS, principal.tenant_id)
    user = await links.lock_user(tx, user_id, tenant_id=principal.tenant_id)
    if user is None:
        raise UserUnknown(f"There is no user {user_id} who could be invited.", [Fault("id", "unknown")])
    require_grantable(principal, user.role)
    if user.has_password or await links.has_signed_in(tx, user_id):
        raise InvitationAccepted(
            f"{user.email} has an account in use. Disable the user, or set another password, instead."
        )
    return user


async def _limit_mails(tx: Tx, user: LinkedUser) -> None:
    if wait := await account_links.take_mail(tx, "invitation:to", user.email, TO_ADDRESS):
        raise account_links.too_many_mails("This address has got many invitations.", wait)
    if wait := await account_links.take_mail(tx, "invitation:of", str(user.tenant_id), OF_TENANT):
        raise account_links.too_many_mails("This tenant has sent many invitations.", wait)


async def _get(tx: Tx, principal: Principal, user_id: UUID) -> User:
    found = await access.get_user(tx, user_id, tenant_id=principal.tenant_id)
    if found is None:
        raise UserUnknown(f"There is no user {user_id}.", [Fault("id", "unknown")])
    return found


async def _audit(
    tx: Tx, principal: Principal, action: str, user: LinkedUser, details: dict[str, object]
) -> None:
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="user",
        resource_id=user.id,
        tenant_id=user.tenant_id,
        details=details,
    )
