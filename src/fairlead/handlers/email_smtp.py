"""Email over SMTP."""

import os
from datetime import UTC, datetime

import aiosmtplib

from fairlead.handlers.commands import read_secret
from fairlead.handlers.context import Context
from fairlead.handlers.email import SentMessage
from fairlead.handlers.http_failures import PermanentFailure, TemporaryFailure
from fairlead.model.messages.email import Message, message_id, remove_addresses
from fairlead.model.messages.email_mime import build_mime
from fairlead.model.messages.email_settings import Smtp


class SmtpProvider:
    """Sends over SMTP, with one connection per message."""

    name = "smtp"

    def __init__(self, settings: Smtp) -> None:
        self.sender = settings.sender
        self._settings = settings

    async def send(self, ctx: Context, message: Message) -> SentMessage:
        """Send the message. SMTP has no idempotency keys: receivers can recognize duplicates only by the Message-ID."""
        known_as = message_id(ctx.job_id, message.sender)
        mime = build_mime(message, known_as, datetime.now(UTC))
        try:
            async with self._client() as client:
                refused, _ = await client.sendmail(message.sender.address, message.recipients, mime)
        except aiosmtplib.SMTPRecipientsRefused as error:
            raise _failure(
                ctx, min(one.code for one in error.recipients), error.recipients[0].message
            ) from None
        except aiosmtplib.SMTPResponseException as error:
            raise _failure(ctx, error.code, error.message) from None
        except (aiosmtplib.SMTPException, OSError) as error:
            why = remove_addresses(str(error), ctx.mask) or type(error).__name__
            raise TemporaryFailure(f"The mail server could not be used: {why}") from None
        return SentMessage(known_as, len(message.recipients) - len(refused), len(refused))

    def _client(self) -> aiosmtplib.SMTP:
        settings = self._settings
        return aiosmtplib.SMTP(
            hostname=settings.host,
            port=settings.actual_port,
            # the default looks up this machine's name, which blocks the event loop
            local_hostname=settings.sender.domain,
            timeout=settings.timeout_seconds,
            use_tls=settings.tls == "tls",
            start_tls=settings.tls == "starttls",
            username=settings.username,
            password=None if settings.password is None else read_secret(settings.password, os.environ),
        )


def _failure(ctx: Context, code: int, said: str) -> Exception:
    """The failure for an SMTP code: 5xx is permanent. The message has the server's text without addresses."""
    message = f"The mail server answered {code}: {remove_addresses(said, ctx.mask)}"
    return PermanentFailure(message) if code >= 500 else TemporaryFailure(message)
