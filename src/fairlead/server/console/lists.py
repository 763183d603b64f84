"""Paging by id, and the tenant column of lists."""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import msgspec
from fastapi import Request

from fairlead.actions import tenants
from fairlead.db.tx import Tx
from fairlead.model.page import Page
from fairlead.server.console.visit import Visit


class HasId(Protocol):
    """An item of a list that is ordered by id."""

    @property
    def id(self) -> UUID: ...


T = TypeVar("T", bound=HasId)


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list, and the cursor of the next."""

    items: Sequence[T]
    next_after: UUID | None


def list_page(found: Page[T]) -> ListPage[T]:
    """The page of the fetched items."""
    return ListPage(found, None if found.last is None else found.last.id)


def after_id(request: Request) -> UUID | None:
    """The URL's `after` parameter; None if it is missing or invalid."""
    try:
        return UUID(request.query_params.get("after", ""))
    except ValueError:
        return None


async def tenant_slugs(tx: Tx, visit: Visit) -> dict[UUID, str]:
    """The slugs of all tenants, if the visitor looks at all of them."""
    if visit.tenant_id is not None:
        return {}
    return {one.id: one.slug for one in await tenants.list_all(tx, visit.principal)}
