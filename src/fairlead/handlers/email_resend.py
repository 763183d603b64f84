"""Email through Resend: https://resend.com/docs/api-reference/emails/send-email."""

import base64
import os
from typing import Any

import msgspec

from fairlead.handlers.commands import read_secret
from fairlead.handlers.context import Context
from fairlead.handlers.email import SentMessage
from fairlead.handlers.email_api import decode_object, describe_refusal, post_to_provider
from fairlead.handlers.http_failures import PermanentFailure, TemporaryFailure, failure_for_answer
from fairlead.model.messages.email import Message
from fairlead.model.messages.email_settings import Resend

# The same key is in use by a request that has not ended yet.
_IN_PROGRESS = "concurrent_idempotent_requests"


class ResendProvider:
    """Sends through Resend, which sends one message per idempotency key for a day."""

    name = "resend"

    def __init__(self, settings: Resend) -> None:
        self.sender = settings.sender
        self._settings = settings

    async def send(self, ctx: Context, message: Message) -> SentMessage:
        """Send with an idempotency key that is the same for each attempt."""
        headers = {
            "authorization": f"Bearer {read_secret(self._settings.api_key, os.environ)}",
            "content-type": "application/json",
            "idempotency-key": f"fairlead/{ctx.job_id}",
        }
        answer = await post_to_provider(
            f"{self._settings.api_url}/emails",
            headers=headers,
            content=msgspec.json.encode(_build_body(message)),
            seconds=self._settings.timeout_seconds,
            provider=self.name,
        )
        found = decode_object(answer)
        if answer.status == 200 and isinstance(found.get("id"), str):
            return SentMessage(found["id"], len(message.recipients))
        why = describe_refusal("Resend", answer.status, found.get("name"), found.get("message"), ctx.mask)
        if answer.status == 409:
            raise (TemporaryFailure if found.get("name") == _IN_PROGRESS else PermanentFailure)(why)
        if answer.status < 300:  # the message may have been sent; the key prevents a second one
            raise TemporaryFailure(why)
        raise failure_for_answer(ctx, answer.status, answer.headers.get("retry-after"), why)


def _build_body(message: Message) -> dict[str, Any]:
    """The message in the API's format, identical for each attempt."""
    told = {
        "from": str(message.sender),
        "to": [str(one) for one in message.to],
        "cc": [str(one) for one in message.cc],
        "bcc": [str(one) for one in message.bcc],
        "reply_to": [str(one) for one in message.reply_to],
        "subject": message.subject,
        "text": message.text,
        "html": message.html,
        "headers": dict(message.headers),
        "attachments": [
            {
                "filename": one.filename,
                "content": base64.b64encode(one.content).decode(),
                "content_type": one.content_type,
            }
            for one in message.attachments
        ],
    }
    return {name: value for name, value in told.items() if value or name == "subject"}
