"""The overview: whether everything is fine, what is slow, and what is busy."""

from datetime import datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from fairlead.actions import error_groups
from fairlead.actions.checks import list_stored
from fairlead.actions.stats import resolve_scope
from fairlead.actions.system import STALE_LEASES
from fairlead.actions.tenants import get_slug
from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.model.fairness import ShareInput, compute_shares
from fairlead.model.overview import (
    MOST_NAMES,
    Facts,
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
    counts = await stats.count_jobs(tx, tenant_id=tenant_id)
    busiest = await store.list_busiest(tx, tenant_id=tenant_id, seconds=HOUR_SECONDS, most=MOST_NAMES)
    facts = await _collect_facts(tx, principal, tenant_id, counts.at)
    stale = STALE_LEASES * tx.settings.lease_seconds
    fleet = await store.summarize_fleet(tx, seconds=stale) if tenant_id is None else None
    whole, *slowest = await times.sample_times(
        tx, tenant_id=tenant_id, seconds=HOUR_SECONDS, look=LOOK_TIMES, most=MOST_NAMES
    )
    problems = find_problems(facts)
    shown = choose_shown(problems)
    return Overview(
        at=counts.at,
        tenant=await get_slug(tx, tenant_id),
        verdict=judge(problems),
        summary=summarize(problems),
        problems=shown,
        problems_left_out=len(problems) - len(shown),
        counts=counts.by_status,
        workers=fleet,
        wait_ms=whole.wait_ms,
        run_ms=whole.run_ms,
        slowest=slowest,
        busiest=busiest,
        checks=list(facts.checks),
    )


async def _collect_facts(tx: Tx, principal: Principal, tenant_id: UUID | None, now: datetime) -> Facts:
    backlogs = await store.list_backlogs(tx, tenant_id=tenant_id)
    may_read_triggers = Permission.READ_TRIGGERS in principal.permissions
    return Facts(
        at=now,
        of_tenant=tenant_id is not None,
        backlogs=backlogs,
        workers=await why.count_workers(tx, [(one.definition, one.tenant_id) for one in backlogs]),
        running=await store.count_running(tx),
        hosts=await store.list_silent_hosts(tx, tenant_id=tenant_id),
        silent_workers=await store.list_silent_workers(
            tx, tenant_id=tenant_id, seconds=STALE_LEASES * tx.settings.lease_seconds
        ),
        triggers=await store.list_failing_triggers(tx, tenant_id=tenant_id) if may_read_triggers else (),
        pauses=await store.list_pauses(tx, tenant_id=tenant_id),
        shares=await _list_shares(tx) if tenant_id is None else (),
        checks=await list_stored(tx) if tenant_id is None else (),
        errors=await error_groups.list_new(
            tx, replace(principal, tenant_id=tenant_id), now - NEW_FOR, limit=MOST_ERRORS
        ),
    )


async def _list_shares(tx: Tx) -> list[TenantShare]:
    """Each tenant's share of the running jobs, while another tenant waits."""
    found = await store.list_working_tenants(tx)
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
