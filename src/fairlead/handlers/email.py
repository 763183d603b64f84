"""`EMAIL_SEND`: a job that sends an email through the provider that is configured for the tenant."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from fairlead.handlers.commands import SecretMissing
from fairlead.handlers.context import Context, Fatal
from fairlead.handlers.http_failures import TemporaryFailure
from fairlead.model.access import GLOBAL_TENANT
from fairlead.model.messages.email import (
    EMAIL_SEND,
    LONGEST_SUBJECT,
    MAX_ATTACHMENTS,
    MAX_RECIPIENTS,
    MAX_SECRETS,
    Mailbox,
    Message,
    check_headers,
    check_sizes,
    check_subject,
    decode_attachment,
    insert_secrets,
    parse_mailboxes,
)
from fairlead.model.secrets.redact import Secret
from fairlead.model.template.path import Flaw

KEY = EMAIL_SEND
OPTIONS = {"key": KEY, "timeout": 330, "max_attempts": 8, "audit_action": "EMAIL_SENT"}

Address = Annotated[str, Meta(min_length=3, max_length=500)]
Addresses = Address | Annotated[list[Address], Meta(max_length=MAX_RECIPIENTS)]


class MessageRefused(Fatal):
    """The message is invalid; nothing was sent."""


class SentMessage(NamedTuple):
    """A provider's receipt for an accepted message."""

    message_id: str
    accepted: int
    refused: int = 0


class Provider(Protocol):
    """An email provider. It raises Fatal, Snooze or TemporaryFailure."""

    name: str
    sender: Mailbox

    async def send(self, ctx: Context, message: Message) -> SentMessage:
        """Send the message; idempotent by job if the provider supports that."""


class File(msgspec.Struct, forbid_unknown_fields=True):
    """An attachment."""

    filename: Annotated[str, Meta(min_length=1, max_length=200)]
    # base64
    content: str
    content_type: str = "application/octet-stream"


class Emails:
    """Sends the messages of jobs."""

    def __init__(self, providers: Mapping[str | None, Provider]) -> None:
        """`providers` by tenant; None is the default provider."""
        self._providers = providers

    async def send(
        self,
        ctx: Context,
        *,
        to: Addresses,
        subject: Annotated[str, Meta(max_length=LONGEST_SUBJECT)],
        text: str | None = None,
        html: str | None = None,
        cc: Addresses | None = None,
        bcc: Addresses | None = None,
        reply_to: Addresses | None = None,
        headers: dict[str, str] | None = None,
        attachments: Annotated[list[File], Meta(max_length=MAX_ATTACHMENTS)] | None = None,
        secrets: Annotated[dict[str, Annotated[str, Secret()]], Meta(max_length=MAX_SECRETS)] | None = None,
        provider_of: str | None = None,
    ) -> dict[str, Any]:
        """Send a message by email."""
        provider = self._find_provider(ctx.tenant, provider_of)
        try:
            message = Message(
                sender=provider.sender,
                to=parse_mailboxes("to", to),
                cc=parse_mailboxes("cc", cc),
                bcc=parse_mailboxes("bcc", bcc),
                reply_to=parse_mailboxes("reply_to", reply_to),
                subject=check_subject(subject),
                text=insert_secrets("text", text, secrets),
                html=insert_secrets("html", html, secrets, as_html=True),
                headers=check_headers(headers),
                attachments=[
                    decode_attachment(number, one.filename, one.content_type, one.content)
                    for number, one in enumerate(attachments or ())
                ],
            )
            check_sizes(message)
            sent = await provider.send(ctx, message)
        except Flaw as flaw:
            raise MessageRefused(f"The message cannot be sent: {flaw.message}.") from None
        except SecretMissing as error:
            raise TemporaryFailure(f"A secret of {provider.name} cannot be read: {error}.") from None
        if sent.refused:
            ctx.log.warning("recipients_refused", refused=sent.refused, accepted=sent.accepted)
        return {"provider": provider.name, **sent._asdict()}

    def _find_provider(self, tenant: str, provider_of: str | None) -> Provider:
        """The provider of the job's tenant; only the platform's own jobs may use that of another."""
        if provider_of not in (None, tenant) and tenant != GLOBAL_TENANT:
            raise MessageRefused(f"provider_of is only for jobs of the tenant {GLOBAL_TENANT}: leave it out.")
        provider = self._providers.get(provider_of or tenant) or self._providers.get(None)
        if provider is None:
            raise MessageRefused(
                f"No email provider is configured for {provider_of or tenant}: add [email] to fairlead.toml."
            )
        return provider
