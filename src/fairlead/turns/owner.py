"""The owner of what a task does: whose turn it is, and how many turns that owner gets."""

from contextvars import ContextVar
from typing import NamedTuple


class Owner(NamedTuple):
    """A tenant, or the address of a client that has not signed in."""

    name: str
    # an owner of weight 2 gets twice the share of an owner of weight 1
    weight: float = 1.0
    # of a client that has not signed in
    is_address: bool = False


# None for the work of the process itself, which never waits for a turn.
owner_of_task: ContextVar[Owner | None] = ContextVar("owner_of_task", default=None)
