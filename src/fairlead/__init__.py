"""Fairlead: a multi-tenant job system on PostgreSQL."""

from fairlead.app import EnqueuedJob, Fairlead, JobFunction
from fairlead.errors import FairleadError
from fairlead.model.job import Job, JobStatus, NewJob
from fairlead.model.outcome import Backoff, can_retry
from fairlead.settings import Settings

__all__ = [
    "Backoff",
    "EnqueuedJob",
    "Fairlead",
    "FairleadError",
    "Job",
    "JobFunction",
    "JobStatus",
    "NewJob",
    "Settings",
    "can_retry",
]
__version__ = "0.1.0"
