"""Fairlead: a multi-tenant job system on PostgreSQL."""

from fairlead.app import Fairlead
from fairlead.errors import FairleadError
from fairlead.handlers.context import Context, Fatal, Snooze
from fairlead.handles import EnqueuedJob, JobFunction
from fairlead.leases import JobLease
from fairlead.model.dedupe import dedupe_key
from fairlead.model.job import Job, JobStatus, NewJob
from fairlead.model.outcome import Backoff, can_retry
from fairlead.model.redact import Secret
from fairlead.settings import Settings
from fairlead.version import __version__
from fairlead.workflows import Flow, WorkflowRun

__all__ = [
    "Backoff",
    "Context",
    "EnqueuedJob",
    "Fairlead",
    "FairleadError",
    "Fatal",
    "Flow",
    "Job",
    "JobFunction",
    "JobLease",
    "JobStatus",
    "NewJob",
    "Secret",
    "Settings",
    "Snooze",
    "WorkflowRun",
    "__version__",
    "can_retry",
    "dedupe_key",
]
