"""Maps tenant ids to slugs."""

from collections.abc import Mapping
from uuid import UUID

from msgspec.structs import replace

from fairlead.actions import tenants
from fairlead.db.tx import Tx
from fairlead.model.access import Principal

Slugs = Mapping[UUID, str]


async def read_slugs(tx: Tx, principal: Principal) -> Slugs:
    """The slug of every tenant, by id."""
    return {one.id: one.slug for one in await tenants.list_all(tx, replace(principal, tenant_id=None))}


def slug_of(tenant_id: UUID | None, slugs: Slugs) -> str | None:
    """A tenant's slug, or its id if the tenant was removed; None for no tenant."""
    return None if tenant_id is None else slugs.get(tenant_id, str(tenant_id))
