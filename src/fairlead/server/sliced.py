"""Large bodies are read in slices: parsing 16 MB at once would hold up every other request."""

import json
from typing import Any

import msgspec
from fastapi import Request

from fairlead.pauses import Pauses

# Below this a body is read at once.
LARGE_BYTES = 262_144
SLICE_SECONDS = 0.02

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


class SlicedRequest(Request):
    """A request whose lists are parsed item by item, with a pause for others now and then.

    A thread would not help: the parser holds the interpreter's lock.
    """

    async def json(self) -> Any:
        """The body's JSON; what is not JSON is refused as everywhere."""
        body = await self.body()
        if len(body) < LARGE_BYTES:
            return await super().json()
        try:
            fields = _FIELDS.decode(body)
            return {name: await _sliced(bytes(value)) for name, value in fields.items()}
        except (msgspec.DecodeError, ValueError, RecursionError):
            return await super().json()  # not an object of JSON: it says what is wrong, and where


async def _sliced(text: bytes) -> Any:
    if not text.lstrip().startswith(b"["):
        return json.loads(text)
    items, pauses = list[Any](), Pauses(SLICE_SECONDS)
    for item in _ITEMS.decode(text):
        items.append(json.loads(bytes(item)))
        if pauses.is_time:
            await pauses.pause()
    return items
