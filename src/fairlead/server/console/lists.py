"""What lists have in common: where a page of one goes on, and whose things it shows."""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import msgspec
from fastapi import Request

from fairlead.actions import tenants
from fairlead.db.tx import Tx
from fairlead.model.page import Page
from fairlead.server.console.visit import Visit


class Named(Protocol):
    """Something with an id that lists are ordered by."""

    @property
    def id(self) -> UUID: ...


T = TypeVar("T", bound=Named)


class Rows(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list, and what the next one comes after."""

    items: Sequence[T]
    next_after: UUID | None


def rows(found: Page[T]) -> Rows[T]:
    """What was fetched as a page."""
    return Rows(found, None if found.last is None else found.last.id)


def after_id(request: Request) -> UUID | None:
    """Where the address says that a list goes on; what is no id means its beginning."""
    try:
        return UUID(request.query_params.get("after", ""))
    except ValueError:
        return None


async def tenant_slugs(tx: Tx, visit: Visit) -> dict[UUID, str]:
    """How the tenants are called, for those who look at all of them at once."""
    if visit.tenant_id is not None:
        return {}
    return {one.id: one.slug for one in await tenants.every(tx, visit.principal)}
