"""How a definition does: its times, failures and throughput, the workers that serve it, its errors, its versions."""

import msgspec
from msgspec.structs import replace

from fairlead.actions import error_groups
from fairlead.actions.error_groups import GroupFilter
from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.model.definition import Definition
from fairlead.model.definition_history import VersionChange, compare_versions
from fairlead.model.error_groups import ErrorGroup
from fairlead.model.summary import JobTimes
from fairlead.model.why import ServingWorker
from fairlead.store import definition_history, throughput, times, why
from fairlead.store.throughput import ThroughputStep

# By name: the seconds of the range and of a step.
SPANS = {"1h": (3600, 60), "24h": (86_400, 900), "7d": (604_800, 10_800)}
# The most jobs of each part of the sample of times.
LOOK_TIMES = 2000
MOST_ERRORS = 5
MOST_VERSIONS = 20
MOST_WORKERS = 20


class DefinitionMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """A definition in a time span, of one tenant or of all."""

    flow: list[ThroughputStep]
    # of a sample of the newest attempts
    times: JobTimes
    # live workers; None for a tenant, to which only their number is shown
    workers: list[ServingWorker] | None
    serving: int
    # the open errors that were seen last
    errors: list[ErrorGroup]

    @property
    def ended_count(self) -> int:
        return sum(one.succeeded + one.failed for one in self.flow)

    @property
    def failed_count(self) -> int:
        return sum(one.failed for one in self.flow)

    @property
    def failure_rate(self) -> float | None:
        """The share of failures in all ends; None without ends."""
        return self.failed_count / self.ended_count if self.ended_count else None


async def get_metrics(
    tx: Tx, principal: Principal, definition: Definition, *, span: str
) -> DefinitionMetrics:
    """The metrics of a definition that the principal can see; the transaction must see all workers."""
    principal.require(Permission.READ_JOBS, principal.tenant_id)
    tenant_id = principal.tenant_id
    seconds, step = SPANS[span]
    flow = await throughput.list_definition_steps(
        tx, definition.id, tenant_id=tenant_id, seconds=seconds, step=step
    )
    workers, serving = await _find_workers(tx, principal, definition)
    of_definition = GroupFilter(definition_key=definition.key)
    errors = await error_groups.list_groups(tx, principal, of_definition, limit=MOST_ERRORS)
    await tx.prefer_indexes()
    sample = times.sample(tenant_id=tenant_id, seconds=seconds, look=LOOK_TIMES, definition_id=definition.id)
    [whole, *_] = await tx.all(*sample)
    return DefinitionMetrics(flow=flow, times=whole, workers=workers, serving=serving, errors=errors)


async def _find_workers(
    tx: Tx, principal: Principal, definition: Definition
) -> tuple[list[ServingWorker] | None, int]:
    """The live workers that serve the definition, for those who may see workers; and how many there are."""
    if Permission.READ_WORKERS in principal.permissions:
        found = await why.list_serving(tx, definition.key, limit=MOST_WORKERS)
        return found, len(found)
    if principal.tenant_id is None:
        return None, 0
    [counts] = await why.count_workers(tx, [(definition.key, principal.tenant_id)])
    return None, counts.serving


async def list_versions(tx: Tx, principal: Principal, definition: Definition) -> list[VersionChange]:
    """The newest versions of a definition that the principal can see, each with its difference from the one before.

    Only those who manage definitions see who changed it.
    """
    principal.require(Permission.READ_DEFINITIONS, principal.tenant_id)
    found = await definition_history.list_newest(tx, definition.id, limit=MOST_VERSIONS + 1)
    if Permission.MANAGE_DEFINITIONS not in principal.permissions:
        found = [replace(one, changed_by=None) for one in found]
    return compare_versions(found)[:MOST_VERSIONS]
