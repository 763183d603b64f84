"""A request to an identity provider, bounded in time and size."""

import asyncio
from typing import Any

import msgspec

from fairlead.handlers.http_exchange import ExchangeBroken, HostUnreachable, HttpAnswer, exchange

# A request to a provider, with the whole answer.
PATIENCE_SECONDS = 10.0
MOST_BYTES = 262_144


class ProviderSilent(Exception):
    """The provider gave no answer that can be used: why, and what the network says about it."""

    def __init__(self, why: str, detail: str = "") -> None:
        super().__init__(why)
        self.why, self.detail = why, detail


async def ask_provider(
    method: str, url: str, what: str, *, headers: dict[str, str], content: bytes = b""
) -> HttpAnswer:
    """The answer of a provider; ProviderSilent if there is none. `what` names it in the error."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer = await exchange(method, url, headers=headers, content=content, max_bytes=MOST_BYTES)
    except TimeoutError:
        raise ProviderSilent(f"it did not answer in {PATIENCE_SECONDS:.0f} seconds") from None
    except (HostUnreachable, ExchangeBroken) as error:
        raise ProviderSilent("it cannot be reached", str(error)) from None
    if answer.truncated:
        raise ProviderSilent(f"its {what} is larger than {MOST_BYTES} bytes")
    return answer


async def fetch_document(url: str, what: str) -> tuple[HttpAnswer, dict[str, Any]]:
    """A JSON document of a provider, and the answer that it came with."""
    answer = await ask_provider("GET", url, what, headers={"accept": "application/json"})
    document = decode_document(answer)
    if answer.status != 200 or document is None:
        raise ProviderSilent(f"its {what} cannot be read", f"status {answer.status}")
    return answer, document


def decode_document(answer: HttpAnswer) -> dict[str, Any] | None:
    """The JSON object of an answer; None if it has none."""
    try:
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        return None
