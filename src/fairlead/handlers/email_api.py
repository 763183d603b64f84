"""Email through the APIs of Resend and of Microsoft Graph."""

import asyncio
import base64
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from fairlead.handlers.commands import read_secret
from fairlead.handlers.context import Context
from fairlead.handlers.email import SentMessage
from fairlead.handlers.http_exchange import ExchangeBroken, HostUnreachable, HttpAnswer, exchange
from fairlead.handlers.http_failures import PermanentFailure, TemporaryFailure, failure_for_answer
from fairlead.model.messages.email import Mailbox, Message, remove_addresses
from fairlead.model.messages.email_settings import MicrosoftGraph, Resend
from fairlead.model.secrets.redact import Mask
from fairlead.model.template.path import Flaw

MAX_ANSWER_BYTES = 65_536
# Resend: the same key is in use by a request that has not ended yet.
_IN_PROGRESS = "concurrent_idempotent_requests"
# Graph: a token is renewed this long before it expires.
_TOKEN_MARGIN_SECONDS = 60.0


class ResendProvider:
    """Sends through Resend: https://resend.com/docs/api-reference/emails/send-email.

    It sends one message per idempotency key for a day.
    """

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
            content=msgspec.json.encode(_build_resend_body(message)),
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


def _build_resend_body(message: Message) -> dict[str, Any]:
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


class GraphProvider:
    """Sends through Microsoft Graph as an application: https://learn.microsoft.com/graph/api/user-sendmail.

    Graph has no idempotency keys: a message whose answer was lost may be sent twice.
    """

    name = "graph"

    def __init__(self, settings: MicrosoftGraph) -> None:
        self.sender = settings.sender
        self._settings = settings
        self._token = ""
        self._token_ends = 0.0

    async def send(self, ctx: Context, message: Message) -> SentMessage:
        """Send from the configured mailbox. A rejected token is replaced once."""
        content = msgspec.json.encode(self._build_body(message))
        answer = await self._post_message(ctx, content)
        if answer.status == 401:
            self._token = ""
            answer = await self._post_message(ctx, content)
        if answer.status != 202:
            raise _graph_refusal(ctx, answer, decode_object(answer).get("error"))
        # the answer has no other id for the message
        return SentMessage(answer.headers.get("request-id", ""), len(message.recipients))

    async def _post_message(self, ctx: Context, content: bytes) -> HttpAnswer:
        headers = {
            "authorization": f"Bearer {await self._current_token(ctx)}",
            "content-type": "application/json",
            "client-request-id": str(ctx.job_id),
        }
        mailbox = quote(self.sender.address, safe="@")
        return await self._post(f"{self._settings.api_url}/v1.0/users/{mailbox}/sendMail", headers, content)

    async def _current_token(self, ctx: Context) -> str:
        if self._token and time.monotonic() < self._token_ends - _TOKEN_MARGIN_SECONDS:
            return self._token
        settings = self._settings
        form = {
            "grant_type": "client_credentials",
            "client_id": settings.client_id,
            "client_secret": read_secret(settings.client_secret, os.environ),
            "scope": f"{settings.api_url}/.default",
        }
        url = f"{settings.login_url}/{quote(settings.directory_id, safe='')}/oauth2/v2.0/token"
        headers = {"content-type": "application/x-www-form-urlencoded"}
        answer = await self._post(url, headers, urlencode(form).encode())
        found = decode_object(answer)
        if answer.status != 200 or not isinstance(found.get("access_token"), str):
            raise _graph_refusal(ctx, answer, {"code": found.get("error"), "message": "no token was given"})
        self._token = found["access_token"]
        self._token_ends = time.monotonic() + float(found.get("expires_in", 0))
        return self._token

    async def _post(self, url: str, headers: dict[str, str], content: bytes) -> HttpAnswer:
        return await post_to_provider(
            url,
            headers=headers,
            content=content,
            seconds=self._settings.timeout_seconds,
            provider=self.name,
        )

    def _build_body(self, message: Message) -> dict[str, Any]:
        if others := [name for name in message.headers if not name.lower().startswith("x-")]:
            raise Flaw(f"headers must begin with X- with this provider: {others[0]} does not")
        told = {
            "subject": message.subject,
            # Graph accepts only one body
            "body": {
                "contentType": "HTML" if message.html else "Text",
                "content": message.html or message.text,
            },
            "from": _recipient(message.sender),
            "toRecipients": _recipients(message.to),
            "ccRecipients": _recipients(message.cc),
            "bccRecipients": _recipients(message.bcc),
            "replyTo": _recipients(message.reply_to),
            "internetMessageHeaders": [
                {"name": name, "value": value} for name, value in message.headers.items()
            ],
            "attachments": [
                {
                    "@odata.type": "#microsoft.graph.fileAttachment",
                    "name": one.filename,
                    "contentType": one.content_type,
                    "contentBytes": base64.b64encode(one.content).decode(),
                }
                for one in message.attachments
            ],
        }
        kept = {name: value for name, value in told.items() if value or name == "subject"}
        return {"message": kept, "saveToSentItems": self._settings.save_to_sent_items}


def _recipients(mailboxes: Sequence[Mailbox]) -> list[dict[str, Any]]:
    return [_recipient(one) for one in mailboxes]


def _recipient(mailbox: Mailbox) -> dict[str, Any]:
    named = {"name": mailbox.name} if mailbox.name else {}
    return {"emailAddress": {"address": mailbox.address, **named}}


def _graph_refusal(ctx: Context, answer: HttpAnswer, error: Any) -> Exception:
    told = error if isinstance(error, dict) else {}
    why = describe_refusal("Microsoft Graph", answer.status, told.get("code"), told.get("message"), ctx.mask)
    return failure_for_answer(ctx, answer.status, answer.headers.get("retry-after"), why)


async def post_to_provider(
    url: str, *, headers: dict[str, str], content: bytes, seconds: float, provider: str
) -> HttpAnswer:
    """POST; returns the answer. A timeout or a connection error is a TemporaryFailure."""
    try:
        async with asyncio.timeout(seconds):
            return await exchange("POST", url, headers=headers, content=content, max_bytes=MAX_ANSWER_BYTES)
    except TimeoutError:
        raise TemporaryFailure(f"{provider} did not answer within {seconds:g} s") from None
    except (HostUnreachable, ExchangeBroken) as error:
        raise TemporaryFailure(f"{provider} could not be reached: {error}") from None


def describe_refusal(provider: str, status: int, code: Any, message: Any, mask: Mask | None = None) -> str:
    """An error message with the provider's status, code and message."""
    details = [str(one) for one in (code, message) if one]
    return remove_addresses(": ".join([f"{provider} answered {status}", *details]), mask)


def decode_object(answer: HttpAnswer) -> Mapping[str, Any]:
    """The JSON object in an answer; empty if it has none."""
    try:
        found = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
