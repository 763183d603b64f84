"""Parses large bodies in slices: parsing 16 MB at once would block the event loop."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec
from fastapi import Request

from fairlead.server.body_limits import BODY_MEMORY, BodyMemory
from fairlead.turns.loop_pauses import LoopPauses

# Smaller texts are parsed at once.
LARGE_BYTES = 262_144
# How many levels of large lists and objects are parsed item by item.
MOST_LEVELS = 6

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


class SlicedRequest(Request):
    """A request whose large lists and objects are parsed item by item, with pauses for other requests.

    A thread would not help: the parser holds the GIL.
    """

    # what is done when the body was read, however long its client took to send it
    after_body: Callable[[], Awaitable[None]] | None = None

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The body, in parts."""
        async for part in super().stream():
            yield part
        if self.after_body is not None:
            check, self.after_body = self.after_body, None
            await check()

    async def admit(self) -> None:
        """Read the body, and wait for the tenant's turn to have it parsed.

        The framework would make a refusal in `json` an error of the body's text.
        """
        memory: BodyMemory = self.scope[BODY_MEMORY]
        await memory.take_values(await self.body())

    async def json(self) -> Any:
        """Parse the body."""
        body = await self.body()
        try:
            return await _parse_slices(body, LoopPauses(), MOST_LEVELS)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return await super().json()  # not JSON: raises with the position of the error


async def _parse_slices(text: bytes, pauses: LoopPauses, levels: int) -> Any:
    await pauses.pause_if_due()
    if len(text) < LARGE_BYTES or not levels:
        return json.loads(text)
    match text.lstrip()[:1]:
        case b"{":
            fields = _FIELDS.decode(text)
            return {
                name: await _parse_slices(bytes(value), pauses, levels - 1) for name, value in fields.items()
            }
        case b"[":
            return [await _parse_slices(bytes(item), pauses, levels - 1) for item in _ITEMS.decode(text)]
    return json.loads(text)
