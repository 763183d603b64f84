"""Links with which people set a password: make one, mail it, and use it.

The mail is a job of the tenant `global`, whichever tenant the user belongs to: who may read the jobs of the user's tenant
must not find it. The transactions must see all rows; every statement names the user.
"""

from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from fairlead.actions import enqueue
from fairlead.actions.catalog import Catalog
from fairlead.actions.passwords import find_password_faults, hash_password
from fairlead.db.tx import Tx
from fairlead.errors import (
    AccountLinkInvalid,
    EmailNotConfigured,
    Fault,
    InvalidInput,
    PublicUrlMissing,
    TooManyRequests,
)
from fairlead.model.access import ACCESS_CHANGED, GLOBAL_TENANT, GLOBAL_TENANT_ID, trusted_principal
from fairlead.model.account_link import CODE, LinkPurpose, MailFacts, link_url, write_mail
from fairlead.model.job import NewJob
from fairlead.model.messages.email import EMAIL_SEND
from fairlead.model.secrets.generated import generate_secret, hash_secret
from fairlead.settings import Settings
from fairlead.store import access, account_links, allowances, definitions
from fairlead.store.account_links import LinkedUser
from fairlead.store.allowances import RateBudget

# The path that EMAIL_SEND marks as secret. A function of that key without it would show the links.
_SECRETS = "/secrets/*"


class Mailer(NamedTuple):
    """What it takes to mail a link: the settings, and the definitions of the user's cell."""

    settings: Settings
    catalog: Catalog


def require_public_url(settings: Settings) -> str:
    """The setting public_url, or PublicUrlMissing: the Host header of a request is not to be trusted in a link."""
    if settings.public_url is None:
        raise PublicUrlMissing(
            "Links to this server cannot be sent: set public_url in fairlead.toml (or FAIRLEAD_PUBLIC_URL) to the address "
            "where people reach it, such as https://jobs.example.com.",
            [Fault("public_url", "is not set")],
        )
    return settings.public_url


async def require_mail(tx: Tx, settings: Settings) -> str:
    """The setting public_url; EmailNotConfigured if no worker sends mails of the platform."""
    public_url = require_public_url(settings)
    found = (await definitions.get_by_keys(tx, [EMAIL_SEND])).get(EMAIL_SEND)
    if found is None or not found.is_active or not found.is_for(GLOBAL_TENANT_ID):
        raise EmailNotConfigured(
            "No worker sends mails: add [email] to the fairlead.toml of a worker and start it. Without mail, set a password for "
            "the user, or print a link with: fairlead users invite EMAIL --print-link"
        )
    if _SECRETS not in found.secret_paths:
        raise EmailNotConfigured(
            f"The definition {EMAIL_SEND} is not the built-in one of this version, which keeps links secret: start a worker of "
            f"this version with [email] in its fairlead.toml, and give your own function another key."
        )
    return public_url


async def can_mail(tx: Tx, settings: Settings) -> bool:
    """Whether links can be mailed."""
    try:
        await require_mail(tx, settings)
    except (EmailNotConfigured, PublicUrlMissing):
        return False
    return True


async def create_link(
    tx: Tx, user: LinkedUser, purpose: LinkPurpose, settings: Settings, *, actor: str
) -> str:
    """Make a link, which replaces an earlier one, and return its address. The caller shows it once, and has locked the user."""
    public_url = require_public_url(settings)
    secret, _ = await _add_link(tx, user, purpose, settings, actor=actor)
    return link_url(public_url, purpose, secret)


async def mail_link(tx: Tx, user: LinkedUser, purpose: LinkPurpose, mailer: Mailer, *, actor: str) -> None:
    """Make a link, which replaces an earlier one, and mail it. The caller has locked the user."""
    public_url = await require_mail(tx, mailer.settings)
    secret, facts = await _add_link(tx, user, purpose, mailer.settings, actor=actor)
    mail = write_mail(purpose, facts._replace(public_url=public_url))
    job = NewJob(
        definition=EMAIL_SEND,
        tenant=GLOBAL_TENANT,
        payload={
            "to": user.email,
            **mail._asdict(),
            "secrets": {CODE: secret},
            **({"provider_of": user.tenant} if user.tenant else {}),
        },
        expires_in=_link_seconds(purpose, mailer.settings),
    )
    made = await enqueue.enqueue(tx, trusted_principal(actor), mailer.catalog, job)
    await account_links.note_mail(tx, made.id)


async def _add_link(
    tx: Tx, user: LinkedUser, purpose: LinkPurpose, settings: Settings, *, actor: str
) -> tuple[str, MailFacts]:
    secret = generate_secret(user.tenant_id)
    await account_links.revoke(tx, user.id, purpose)
    expires_at = await account_links.add(
        tx,
        user.id,
        purpose,
        secret_hash=secret.hash,
        seconds=_link_seconds(purpose, settings),
        created_by=actor,
    )
    return secret.text, MailFacts("", user.email, user.tenant, user.role, expires_at, actor)


def _link_seconds(purpose: LinkPurpose, settings: Settings) -> float:
    return (
        settings.invitation_hours * 3600 if purpose is LinkPurpose.INVITATION else settings.reset_minutes * 60
    )


async def find_user(tx: Tx, secret: str, purpose: LinkPurpose) -> LinkedUser:
    """The user of a link, or AccountLinkInvalid."""
    found = await account_links.find(tx, hash_secret(secret), purpose)
    if found is None:
        raise link_invalid(purpose)
    return found


async def use_link(tx: Tx, secret: str, purpose: LinkPurpose, password_hash: str) -> UUID:
    """Set the password of a link's user, and end the user's sessions. A link works once; AccountLinkInvalid the second time."""
    used = await account_links.use(tx, hash_secret(secret), purpose)
    if used is None or not await account_links.set_password(tx, used, password_hash=password_hash):
        raise link_invalid(purpose)
    for other in LinkPurpose:
        await account_links.revoke(tx, used.user_id, other)
    await access.end_sessions_of(tx, used.user_id)
    tx.notify(ACCESS_CHANGED)
    return used.user_id


async def hash_new_password(password: str) -> str:
    """The hash of a password that may be set; slow on purpose. InvalidInput for a weak one, which uses up no link."""
    if faults := find_password_faults(password, "new_password"):
        raise InvalidInput(f"Cannot set the password: {faults[0].path} {faults[0].message}.", faults)
    return await hash_password(password)


async def take_mail(tx: Tx, what: str, whom: str, budget: RateBudget) -> float:
    """Count a mail: 0, or the seconds to wait for the next."""
    hashed = sha256(whom.casefold().encode(errors="replace")).hexdigest()[:32]
    return (await allowances.take_units(tx, f"{what}:{hashed}", budget)).wait


def too_many_mails(message: str, wait: float) -> TooManyRequests:
    """The error after too many mails."""
    error = TooManyRequests(f"{message} Try again in {max(1, round(wait / 60))} min.")
    error.retry_after = max(1, round(wait))
    return error


def link_invalid(purpose: LinkPurpose) -> AccountLinkInvalid:
    """The error for every link that cannot be used: it does not say why, since anyone can ask."""
    advice = (
        "Ask an admin of your tenant to send the invitation again."
        if purpose is LinkPurpose.INVITATION
        else "Ask for another one with “Forgot password?” on the sign-in page."
    )
    return AccountLinkInvalid(
        f"This link does not work (any more): it was used, replaced or withdrawn, or it has expired. {advice}",
        [Fault("token", "is not valid")],
    )
