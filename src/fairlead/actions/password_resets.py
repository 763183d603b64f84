"""Reset a forgotten password by mail.

Nobody is signed in here: what is said must not depend on whether an address is known.
"""

from uuid import UUID

from fairlead.actions import account_links
from fairlead.actions.account_links import Mailer
from fairlead.db.tx import Tx
from fairlead.model.account_link import LinkPurpose, is_mailable
from fairlead.model.payload import find_storage_flaw
from fairlead.store import access, audit
from fairlead.store import account_links as links
from fairlead.store.account_links import LinkedUser
from fairlead.store.allowances import RateBudget

# Mails to one address: more requests get the same answer, and no mail.
TO_ADDRESS = RateBudget(3, 1200.0)


async def may_mail(tx: Tx, email: str) -> bool:
    """Count a request for an address, known or not; False after too many."""
    return not await account_links.take_mail(tx, "reset:to", email, TO_ADDRESS)


async def find_accounts(tx: Tx, email: str) -> list[LinkedUser]:
    """The accounts of this cell whose password can be reset with an address: one of each tenant.

    Not those without a password: they sign in with their provider, or have not accepted their invitation.
    """
    if find_storage_flaw(email) or not is_mailable(email):
        return []
    return await links.find_accounts(tx, email)


async def send(tx: Tx, mailer: Mailer, user_id: UUID) -> None:
    """Mail a link to a user, unless the user was changed meanwhile."""
    user = await links.lock_user(tx, user_id, tenant_id=None)
    if user is None or not user.has_password:
        return
    await account_links.mail_link(tx, user, LinkPurpose.RESET, mailer, actor="anonymous")
    await _audit(tx, "anonymous", "password_reset_requested", user.id, user.tenant_id)


async def reset(tx: Tx, secret: str, *, password_hash: str) -> None:
    """Use a link: set the password, and end all sessions. It starts none: a sign-in may need more than the password."""
    user_id = await account_links.use_link(tx, secret, LinkPurpose.RESET, password_hash)
    user = await access.get_credentials(tx, user_id)
    if user is None:
        raise account_links.link_invalid(LinkPurpose.RESET)
    await _audit(tx, f"user:{user.email}", "password_reset", user.id, user.tenant_id)


async def _audit(tx: Tx, actor: str, action: str, user_id: UUID, tenant_id: UUID | None) -> None:
    await audit.write(
        tx, actor=actor, action=action, resource_type="user", resource_id=user_id, tenant_id=tenant_id
    )
