"""Whom a helper is given: a transaction, or whatever opens one."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from fairlead import Settings
from fairlead.db.database import Database
from fairlead.db.tx import Tx

P = ParamSpec("P")
R = TypeVar("R")


class Opener(Protocol):
    """A Fairlead, a database, a world, a console."""

    def transaction(self) -> AbstractAsyncContextManager[Tx]: ...


Helper = Callable[Concatenate[Tx, P], Coroutine[Any, Any, R]]
HelperAnywhere = Callable[Concatenate[Tx | Opener, P], Coroutine[Any, Any, R]]


def anywhere(helper: Helper[P, R]) -> HelperAnywhere[P, R]:
    """Let a helper open the transaction that it is not given."""

    @wraps(helper)
    async def act(place: Tx | Opener, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if isinstance(place, Tx):
            return await helper(place, *args, **kwargs)
        async with place.transaction() as tx:
            return await helper(tx, *args, **kwargs)

    return act


def at(url: str, helper: HelperAnywhere[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a helper on the database of this URL, in a test without a loop."""

    async def act() -> R:
        async with Database(url, Settings()) as database:
            return await helper(database, *args, **kwargs)

    return asyncio.run(act())
