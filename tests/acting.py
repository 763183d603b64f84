"""One action, in a transaction of its own."""

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from fairlead.db.tx import Tx
from tests.given.places import Opener

P = ParamSpec("P")
R = TypeVar("R")


async def act(
    place: Opener,
    action: Callable[Concatenate[Tx, P], Coroutine[Any, Any, R]],
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    """What the action answers: `await act(fl, hosts.remove, TESTER, host.id)`."""
    async with place.transaction() as tx:
        return await action(tx, *args, **kwargs)
