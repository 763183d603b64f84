"""The depth of the queue, for autoscalers."""

from fairlead.actions.stats import resolve_scope
from fairlead.db.tx import Tx
from fairlead.model.access import Principal
from fairlead.model.payload import find_storage_flaw
from fairlead.model.queue_depth import QueueDepth, measure_depth
from fairlead.model.request import unknown_definition
from fairlead.store import definitions, queue_depth


async def get_depth(tx: Tx, principal: Principal, *, definition: str | None = None) -> QueueDepth:
    """How many jobs workers run or could start now: of a definition or of all, of a tenant or of all that the principal sees.

    The transaction must see every tenant's leases, which the limits of definitions count; the answer names nothing of
    another tenant.
    """
    tenant_id = await resolve_scope(tx, principal, None)
    found = None
    if definition is not None:
        found = None if find_storage_flaw(definition) else await definitions.get(tx, definition)
        if found is None or not (tenant_id is None or found.is_for(tenant_id)):
            raise unknown_definition(definition)
    wanted = None if found is None else found.id
    pairs = await queue_depth.list_pairs(tx, tenant_id=tenant_id, definition_id=wanted)
    return measure_depth(None if found is None else found.key, tenant_id, wanted, pairs)
