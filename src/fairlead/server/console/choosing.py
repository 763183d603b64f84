"""What a super admin who looks at all tenants is asked before something is made for one."""

from fastapi.responses import Response

from fairlead.actions import tenants
from fairlead.server.console.visit import Visit

# How many tenants are offered; the name of any other can be typed.
OFFERED = 200


async def choose_tenant(visit: Visit, *, what: str, to: str) -> Response:
    """A page that asks for which tenant something is, and goes on at `to`."""
    async with visit.transaction() as tx:
        offered = await tenants.page(tx, visit.principal, after="", limit=OFFERED)
    return visit.page("choose_tenant.html", what=what, to=to, offered=[one.slug for one in offered])
