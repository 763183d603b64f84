"""The page where a super admin chooses the tenant of a new object."""

from fastapi.responses import Response

from fairlead.actions import tenants
from fairlead.server.console.visit import Visit

# How many tenants are offered; any other slug can be typed.
OFFERED = 200


async def choose_tenant(visit: Visit, *, what: str, to: str) -> Response:
    """Ask for the tenant of `what`, and continue at `to`."""
    async with visit.transaction() as tx:
        offered = await tenants.list_page(tx, visit.principal, after="", limit=OFFERED)
    return visit.page("choose_tenant.html", what=what, to=to, offered=[one.slug for one in offered])
