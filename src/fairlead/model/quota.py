"""Quotas: limits on what a tenant may store and run."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from fairlead.errors import Fault, QueueFull, QuotaExceeded, Refused, TooManyRequests
from fairlead.settings import Settings

MAX_QUOTA = 2**53 - 1


class Quota(StrEnum):
    QUEUED_JOBS = "queued_jobs"
    RUN_JOBS = "run_jobs"
    TRIGGERS = "triggers"
    TOKENS = "tokens"
    STORED_BYTES = "stored_bytes"
    LONG_POLLS = "long_polls"
    LIVE_SOCKETS = "live_sockets"
    FOLLOWED_LOGS = "followed_logs"


SETTINGS = {
    Quota.QUEUED_JOBS: "max_queued_per_tenant",
    Quota.RUN_JOBS: "max_run_jobs",
    Quota.TRIGGERS: "max_triggers_per_tenant",
    Quota.TOKENS: "max_tokens_per_tenant",
    Quota.STORED_BYTES: "max_stored_bytes_per_tenant",
    Quota.LONG_POLLS: "max_long_polls_per_tenant",
    Quota.LIVE_SOCKETS: "max_sockets_per_tenant",
    Quota.FOLLOWED_LOGS: "max_followers_per_tenant",
}
# The database checks these when a job is enqueued.
OF_JOBS = (Quota.QUEUED_JOBS, Quota.RUN_JOBS, Quota.STORED_BYTES)
# Servers count these: open connections.
OF_OPENINGS = (Quota.LONG_POLLS, Quota.LIVE_SOCKETS, Quota.FOLLOWED_LOGS)
_DEFAULTS = Settings()

WHAT = {
    Quota.QUEUED_JOBS: "queued jobs",
    Quota.RUN_JOBS: "jobs",
    Quota.TRIGGERS: "triggers",
    Quota.TOKENS: "valid tokens",
    Quota.STORED_BYTES: "bytes of payloads, outputs and logs",
    Quota.LONG_POLLS: "open long polls",
    Quota.LIVE_SOCKETS: "open live sockets",
    Quota.FOLLOWED_LOGS: "followed logs",
}
ADVICE = {
    Quota.QUEUED_JOBS: "Try again when some have run",
    Quota.RUN_JOBS: "Check whether the workflow starts itself, start several runs",
    Quota.TRIGGERS: "Delete triggers that are not needed",
    Quota.TOKENS: "Revoke tokens that are not needed",
    Quota.STORED_BYTES: "Wait until retention has removed old jobs, keep jobs for fewer days",
    Quota.LONG_POLLS: "Run fewer workers and agents, let one worker run several jobs at a time",
    Quota.LIVE_SOCKETS: "Close some, try again later",
    Quota.FOLLOWED_LOGS: "Stop following some, try again later",
}


class QuotaUse(msgspec.Struct, frozen=True):
    """How much of a quota a tenant uses. `allowed` is None without a limit; `used` is None if there is no single number."""

    quota: Quota
    used: int | None
    allowed: int | None
    # whether the quota is the tenant's own, not the settings'
    is_own: bool


def effective_quota(quota: Quota, own: Mapping[str, int], settings: Settings) -> int | None:
    """The quota that applies: the tenant's own, or the settings'; None means no limit."""
    number = own.get(quota)
    return int(getattr(settings, SETTINGS[quota]) if number is None else number) or None


def settings_for_jobs(settings: Settings) -> dict[str, int]:
    """The settings that the database needs: those that differ from the defaults."""
    return {
        quota.value: getattr(settings, SETTINGS[quota])
        for quota in OF_JOBS
        if getattr(settings, SETTINGS[quota]) != getattr(_DEFAULTS, SETTINGS[quota])
    }


def quota_error(quota: Quota, *, used: int, allowed: int, more: int = 1, run_id: Any = None) -> Refused:
    """The error for a request that would exceed a quota."""
    kind = _error_class(quota)
    whose = "This tenant" if run_id is None else f"Run {run_id}, with all runs that it started,"
    asked = f", and {more} more were requested" if more > 1 else ""
    return kind(
        f"{whose} has {used} {WHAT[quota]}{asked}; the quota {quota} is {allowed}. {ADVICE[quota]}, or raise the quota: "
        f"fairlead tenants set TENANT --quota {quota}=NUMBER",
        [Fault(quota, f"{used} of {allowed} used")],
    )


def _error_class(quota: Quota) -> type[Refused]:
    if quota is Quota.QUEUED_JOBS:
        return QueueFull
    return TooManyRequests if quota in OF_OPENINGS else QuotaExceeded


def quota_error_from_database(told: Mapping[str, Any], *, more: int = 1) -> Refused:
    """The error for a refusal that the database describes."""
    return quota_error(
        Quota(told["quota"]), used=told["used"], allowed=told["allowed"], more=more, run_id=told.get("run_id")
    )
