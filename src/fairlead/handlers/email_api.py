"""Requests to the API of an email provider."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.handlers.http_exchange import ExchangeBroken, HostUnreachable, HttpAnswer, exchange
from fairlead.handlers.http_failures import TemporaryFailure
from fairlead.model.messages.email import remove_addresses
from fairlead.model.secrets.redact import Mask

MAX_ANSWER_BYTES = 65_536


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
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
