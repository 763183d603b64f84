"""Email over SMTP."""

import os
from datetime import UTC, datetime

import aiosmtplib

from fairlead.handlers.answers import PermanentFailure, TemporaryFailure
from fairlead.handlers.commands import secret_of
from fairlead.handlers.context import Context
from fairlead.handlers.email import Sent
from fairlead.model.email import Message, message_id, without_addresses
from fairlead.model.email_mime import mime_of
from fairlead.model.email_settings import Smtp


class SmtpProvider:
    """One connection for each message."""

    name = "smtp"

    def __init__(self, settings: Smtp) -> None:
        self.sender = settings.sender
        self._settings = settings

    async def send(self, ctx: Context, message: Message) -> Sent:
        """Hand the message to the server. SMTP knows no idempotency: its Message-ID is all that tells copies apart."""
        known_as = message_id(ctx.job_id, message.sender)
        mime = mime_of(message, known_as, datetime.now(UTC))
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
            why = without_addresses(str(error), ctx.mask) or type(error).__name__
            raise TemporaryFailure(f"The mail server could not be used: {why}") from None
        return Sent(known_as, len(message.recipients) - len(refused), len(refused))

    def _client(self) -> aiosmtplib.SMTP:
        settings = self._settings
        return aiosmtplib.SMTP(
            hostname=settings.host,
            port=settings.actual_port,
            # else it asks the resolver for a name of this machine, and everybody here waits for that
            local_hostname=settings.sender.domain,
            timeout=settings.timeout_seconds,
            use_tls=settings.tls == "tls",
            start_tls=settings.tls == "starttls",
            username=settings.username,
            password=None if settings.password is None else secret_of(settings.password, os.environ),
        )


def _failure(ctx: Context, code: int, said: str) -> Exception:
    """5xx is for good; with the addresses in it taken out, what the server said helps to see why."""
    message = f"The mail server answered {code}: {without_addresses(said, ctx.mask)}"
    return PermanentFailure(message) if code >= 500 else TemporaryFailure(message)
