"""Parses large bodies in slices: parsing 16 MB at once would block the event loop."""

import json
from typing import Any

import msgspec
from fastapi import Request

from fairlead.server.body_limits import BODY_MEMORY, BodyMemory
from fairlead.turns.loop_pauses import LoopPauses

# Smaller bodies are parsed at once.
LARGE_BYTES = 262_144

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


class SlicedRequest(Request):
    """A request whose lists are parsed item by item, with pauses for other requests.

    A thread would not help: the parser holds the GIL.
    """

    async def json(self) -> Any:
        """Parse the body."""
        body = await self.body()
        memory: BodyMemory = self.scope[BODY_MEMORY]
        await memory.take_values(body)
        if len(body) < LARGE_BYTES:
            return await super().json()
        try:
            fields = _FIELDS.decode(body)
            return {name: await _parse_slices(bytes(value)) for name, value in fields.items()}
        except (msgspec.DecodeError, ValueError, RecursionError):
            return await super().json()  # not a JSON object: raises with the position of the error


async def _parse_slices(text: bytes) -> Any:
    if not text.lstrip().startswith(b"["):
        return json.loads(text)
    items, pauses = list[Any](), LoopPauses()
    for item in _ITEMS.decode(text):
        items.append(json.loads(bytes(item)))
        await pauses.pause_if_due()
    return items
