"""Reading usage."""

from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.store import usage
from fairlead.store.usage import Flow


async def flows(tx: Tx, principal: Principal, *, by: str) -> list[Flow]:
    """How many jobs ended how in the last day, by `hour` or `day`: of the principal's tenant, or of all together."""
    principal.require(Permission.READ_USAGE, principal.tenant_id)
    return await usage.flows(tx, tenant_id=principal.tenant_id, by=by)
