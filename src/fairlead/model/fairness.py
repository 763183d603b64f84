"""Fair shares: of all running jobs, and of all run time, each tenant with work should have a part by its weight."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec


class ShareInput(msgspec.Struct, frozen=True, kw_only=True):
    """What decides a tenant's share: its weight, its running jobs, and whether queued jobs of it may run."""

    weight: int
    running: int
    has_waiting: bool

    @property
    def has_work(self) -> bool:
        return bool(self.running) or self.has_waiting


class RunningShare(msgspec.Struct, frozen=True):
    """The share of all running jobs (None if there are none), and the fair share (None for a tenant without work)."""

    share: float | None
    fair_share: float | None


def compute_shares(parts: Sequence[ShareInput]) -> list[RunningShare]:
    """The share of each tenant, in the same order."""
    running = sum(one.running for one in parts)
    weights = sum(one.weight for one in parts if one.has_work)
    return [
        RunningShare(
            one.running / running if running else None, one.weight / weights if one.has_work else None
        )
        for one in parts
    ]


class HourOfTenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's run time in an hour, with the run time and the weights of all tenants that ran in it."""

    tenant: str
    weight: int
    hour: datetime
    run_ms: int
    total_ms: int
    weights: int


class TenantFairness(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's run time over some hours, and the run time that its weight would have given it."""

    tenant: str
    weight: int
    run_ms: int
    # of the run time of all tenants
    share: float
    fair_share: float
    # its share of each hour's run time
    hourly: dict[datetime, float]


def compare_over_time(rows: Sequence[HourOfTenant]) -> list[TenantFairness]:
    """Each tenant over all hours, the most run time first.

    Of an hour, the fair share is that of a tenant's weight among the tenants that ran in it: a tenant without work takes no
    part. Over several hours, it is their mean, weighted by the run time of each.
    """
    total = sum({one.hour: one.total_ms for one in rows}.values())
    by_tenant: dict[str, list[HourOfTenant]] = defaultdict(list)
    for one in rows:
        by_tenant[one.tenant].append(one)
    found = [
        TenantFairness(
            tenant=tenant,
            weight=hours[0].weight,
            run_ms=sum(one.run_ms for one in hours),
            share=sum(one.run_ms for one in hours) / total,
            fair_share=sum(one.total_ms * one.weight / one.weights for one in hours) / total,
            hourly={one.hour: one.run_ms / one.total_ms for one in hours},
        )
        for tenant, hours in by_tenant.items()
    ]
    return sorted(found, key=lambda one: (-one.run_ms, one.tenant))
