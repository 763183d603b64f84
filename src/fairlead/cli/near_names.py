"""Names that a mistyped one may have meant."""

import difflib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fairlead.actions import definitions
from fairlead.errors import DefinitionUnknown
from fairlead.library.app import Fairlead


def find_near(name: str, known: Sequence[str]) -> str | None:
    """The known name that is nearest to this one, or whose last part is near its last part; None if none is."""
    lasts = {one.rpartition(".")[2]: one for one in sorted(known, reverse=True)}
    near = difflib.get_close_matches(name, known, n=1)
    parts = difflib.get_close_matches(name.rpartition(".")[2], lasts, n=1)
    return next(iter([*near, *(lasts[one] for one in parts)]), None)


@asynccontextmanager
async def suggest_definition(fl: Fairlead, key: str) -> AsyncIterator[None]:
    """Name the nearest definition if the block is refused because there is none with this key."""
    try:
        yield
    except DefinitionUnknown as error:
        async with fl.transaction() as tx:
            near = find_near(key, [one.key for one in await definitions.list_all(tx, fl.principal)])
        how = "`fairlead definitions list` lists those that there are."
        hint = how if near is None else f"Did you mean {near}? {how}"
        raise DefinitionUnknown(f"{error.message}. {hint}", error.faults) from None
