"""The overview: whether everything is fine, what is slow, and what is busy."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.actions import error_groups
from fairlead.actions.checks import list_stored
from fairlead.actions.stats import resolve_scope
from fairlead.actions.system import STALE_LEASES
from fairlead.actions.tenants import get_slug
from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.model.fairness import ShareInput, compute_shares
from fairlead.model.finding import Finding
from fairlead.model.overview import (
    MOST_NAMES,
    Facts,
    FleetSummary,
    Overview,
    TenantShare,
    choose_shown,
    find_problems,
    judge,
    summarize,
)
from fairlead.store import overview as store
from fairlead.store import stats, times, why

HOUR_SECONDS = 3600
# An error is new if it was first seen within this time.
NEW_FOR = timedelta(hours=24)
MOST_ERRORS = 100
# The most jobs of each part of the sample of times.
LOOK_TIMES = 1000


async def get_overview(tx: Tx, principal: Principal, *, tenant: str | None = None) -> Overview:
    """The overview of a tenant, or of all that the principal may see.

    The transaction must see every tenant's leases, which the limits of definitions count; the answer names nothing of
    another tenant.
    """
    tenant_id = await resolve_scope(tx, principal, tenant)
    stale = STALE_LEASES * tx.settings.lease_seconds
    # as few round trips as possible: on a busy machine each of them waits
    [counts], busiest, backlogs, running, hosts, silent_workers, pauses, triggers = await tx.all_of(
        stats.counts(tenant_id),
        store.busiest(tenant_id, seconds=HOUR_SECONDS, most=MOST_NAMES),
        store.backlogs(tenant_id),
        store.running(),
        store.silent_hosts(tenant_id),
        store.silent_workers(tenant_id, seconds=stale),
        store.pauses(tenant_id),
        store.failing_triggers(tenant_id),
    )
    system = await _read_system(tx, stale) if tenant_id is None else _SystemFacts()
    await tx.prefer_indexes()
    workers, errors, [whole, *slowest] = await tx.all_of(
        why.workers([(backlog.definition, backlog.tenant_id) for backlog in backlogs]),
        error_groups.new_groups(
            replace(principal, tenant_id=tenant_id), counts.at - NEW_FOR, limit=MOST_ERRORS
        ),
        times.sample(tenant_id=tenant_id, seconds=HOUR_SECONDS, look=LOOK_TIMES, most=MOST_NAMES),
    )
    problems = find_problems(
        Facts(
            at=counts.at,
            of_tenant=tenant_id is not None,
            backlogs=backlogs,
            workers=workers,
            running=running,
            hosts=hosts,
            silent_workers=silent_workers,
            triggers=triggers if Permission.READ_TRIGGERS in principal.permissions else (),
            pauses=pauses,
            shares=system.shares,
            checks=system.checks,
            errors=errors,
        )
    )
    shown = choose_shown(problems)
    return Overview(
        at=counts.at,
        tenant=await get_slug(tx, tenant_id),
        verdict=judge(problems),
        summary=summarize(problems),
        problems=shown,
        problems_left_out=len(problems) - len(shown),
        counts=counts.by_status,
        workers=system.fleet,
        wait_ms=whole.wait_ms,
        run_ms=whole.run_ms,
        slowest=slowest,
        busiest=busiest,
        checks=list(system.checks),
    )


class _SystemFacts(NamedTuple):
    """What only an overview of all tenants has."""

    shares: Sequence[TenantShare] = ()
    checks: Sequence[Finding] = ()
    fleet: FleetSummary | None = None


async def _read_system(tx: Tx, stale_seconds: float) -> _SystemFacts:
    working, [fleet] = await tx.all_of(store.working_tenants(), store.fleet(stale_seconds))
    return _SystemFacts(_find_shares(working), await list_stored(tx), fleet)


def _find_shares(found: Sequence[store.WorkingTenant]) -> list[TenantShare]:
    """Each tenant's share of the running jobs, while another tenant waits."""
    inputs = [
        ShareInput(weight=one.weight, running=one.running, has_waiting=one.queued > 0 and not one.is_paused)
        for one in found
    ]
    waiting = sum(one.has_waiting for one in inputs)
    return [
        TenantShare(tenant=one.tenant, running=one.running, share=part.share, fair_share=part.fair_share)
        for one, given, part in zip(found, inputs, compute_shares(inputs), strict=True)
        if part.share is not None and part.fair_share is not None and waiting - given.has_waiting > 0
    ]
