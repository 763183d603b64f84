"""Links with which people set a password: what they are for, and the mails that carry them."""

import html
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from fairlead.model.messages.email import parse_mailbox
from fairlead.model.template.path import Flaw

# The place of the link's secret in the mail: see `secrets` of EMAIL_SEND.
CODE = "code"
_PLACE = f"[[{CODE}]]"


class LinkPurpose(StrEnum):
    INVITATION = "invitation"
    RESET = "reset"


# The console's pages. The secret is in the fragment, which browsers send to no server: no log and no Referer has it.
PAGES = {LinkPurpose.INVITATION: "/console/invitation", LinkPurpose.RESET: "/console/reset-password"}


class MailText(NamedTuple):
    """A mail, with the place of the secret in it."""

    subject: str
    text: str
    html: str


class MailFacts(NamedTuple):
    """What a mail says."""

    public_url: str
    email: str
    # the slug; None for a super admin
    tenant: str | None
    role: str
    expires_at: datetime
    # who caused the mail, as the audit log names them
    actor: str = ""


def link_url(public_url: str, purpose: LinkPurpose, secret: str) -> str:
    """The address that a person opens."""
    return f"{public_url.rstrip('/')}{PAGES[purpose]}#{secret}"


def is_mailable(address: str) -> bool:
    """Whether every mail server accepts the address."""
    try:
        return parse_mailbox(address).address == address
    except Flaw:
        return False


def write_mail(purpose: LinkPurpose, facts: MailFacts) -> MailText:
    """The mail of a link."""
    return _write_invitation(facts) if purpose is LinkPurpose.INVITATION else _write_reset(facts)


def _write_invitation(facts: MailFacts) -> MailText:
    where = f"the tenant {facts.tenant}" if facts.tenant else "all tenants"
    role = facts.role.replace("_", " ")
    return _lay_out(
        f"Invitation to Fairlead at {_host(facts.public_url)}",
        f"{_name_inviter(facts.actor)} invites you to Fairlead at {facts.public_url}, as {role} of {where}.",
        ("Choose a password", link_url(facts.public_url, LinkPurpose.INVITATION, _PLACE)),
        f"The link works once, until {_format_time(facts.expires_at)}. Your account is {facts.email}.",
        "You did not expect this? Ignore this mail: without the link nobody can use the account.",
    )


def _write_reset(facts: MailFacts) -> MailText:
    where = f" of the tenant {facts.tenant}" if facts.tenant else ""
    return _lay_out(
        f"Reset your password for Fairlead at {_host(facts.public_url)}",
        f"Somebody asked to reset the password of {facts.email}{where} at {facts.public_url}.",
        ("Choose a new password", link_url(facts.public_url, LinkPurpose.RESET, _PLACE)),
        f"The link works once, until {_format_time(facts.expires_at)}. A new password signs you out everywhere.",
        "It was not you? Ignore this mail: your password stays as it is. If such mails keep coming, tell an admin.",
    )


def _lay_out(subject: str, opening: str, link: tuple[str, str], *rest: str) -> MailText:
    label, url = link
    text = "\n\n".join([opening, f"{label}:\n{url}", *rest]) + "\n"
    paragraphs = "".join(f"<p>{html.escape(one)}</p>" for one in rest)
    button = f'<p><a href="{html.escape(url)}">{label}</a></p>'
    page = f'<!doctype html><html lang="en"><body><p>{html.escape(opening)}</p>{button}{paragraphs}</body></html>'
    return MailText(subject, text, page)


def _name_inviter(actor: str) -> str:
    """The inviter's address. The names of tokens are chosen freely, and do not belong in a mail."""
    kind, _, address = actor.partition(":")
    return address if kind == "user" and is_mailable(address) else "An admin"


def _host(public_url: str) -> str:
    return public_url.partition("//")[2].partition("/")[0]


def _format_time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%A, %-d %B %Y, %H:%M UTC")
