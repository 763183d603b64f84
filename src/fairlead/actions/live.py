"""The reads of live feeds and the tickets of their sockets. A feed acts for no caller: the socket was permitted when it was opened."""

from fairlead.store.live import (
    AttemptState,
    AuditChange,
    RunningAttempt,
    Ticket,
    add_ticket,
    filter_active_tenants,
    filter_valid_sessions,
    filter_valid_tokens,
    list_attempts,
    list_changes,
    list_newer_attempts,
    list_running,
    list_system_changes,
    list_worker_ids,
    read_clock,
    use_ticket,
)
from fairlead.store.stats import count_jobs

__all__ = [
    "AttemptState",
    "AuditChange",
    "RunningAttempt",
    "Ticket",
    "add_ticket",
    "count_jobs",
    "filter_active_tenants",
    "filter_valid_sessions",
    "filter_valid_tokens",
    "list_attempts",
    "list_changes",
    "list_newer_attempts",
    "list_running",
    "list_system_changes",
    "list_worker_ids",
    "read_clock",
    "use_ticket",
]
