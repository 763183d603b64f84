"""The branches of a durable function: lines of calls whose order the code fixes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from fairlead.handlers.context import Suspend


class Branch:
    """A line of calls whose order the code fixes: the function itself, or one argument of `ctx.gather`."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.next = 0
        self.gathers = 0

    def holds(self, other: str) -> bool:
        """Whether the other branch is this one, or began in it."""
        return other == self.path or other.startswith(f"{self.path}/" if self.path else "/")


current_branch: ContextVar[Branch | None] = ContextVar("branch", default=None)
IN_STEP = Branch()


@contextmanager
def inside_step() -> Iterator[None]:
    """Refuse steps and waits during the block."""
    mark = current_branch.set(IN_STEP)
    try:
        yield
    finally:
        current_branch.reset(mark)


def join_ends(ended: Sequence[tuple[Any, BaseException | None]], *, return_exceptions: bool) -> list[Any]:
    """The results of branches that have ended, in their order; raises Suspend while one waits, then the first failure."""
    waiting = [error for _, error in ended if isinstance(error, Suspend)]
    if waiting:
        raise Suspend(min(one.delay for one in waiting), [place for one in waiting for place in one.places])
    if return_exceptions:
        return [value if error is None else error for value, error in ended]
    for _, error in ended:
        if error is not None:
            raise error
    return [value for value, _ in ended]


async def await_end(awaitable: Any) -> tuple[Any, BaseException | None]:
    """The result of a branch or its exception; a branch that waits or fails does not stop the others."""
    try:
        return await awaitable, None
    except (Exception, Suspend) as error:  # noqa: BLE001 - `gather` raises it
        return None, error
