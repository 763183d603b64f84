"""The reads of metrics, which act for no caller: the route decides who may see them."""

from fairlead.store.metrics import (
    QUANTILES,
    Fleet,
    RecentTimes,
    TenantLevels,
    list_levels,
    list_recent_times,
    measure_oldest,
    read_fleet,
)

__all__ = [
    "QUANTILES",
    "Fleet",
    "RecentTimes",
    "TenantLevels",
    "list_levels",
    "list_recent_times",
    "measure_oldest",
    "read_fleet",
]
