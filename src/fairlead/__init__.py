"""Fairlead: a multi-tenant job system on PostgreSQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairlead.version import __version__

if TYPE_CHECKING:
    from fairlead.actions.bulk_jobs import BulkResult
    from fairlead.actions.jobs import JobFilter, JobPage
    from fairlead.errors import FairleadError
    from fairlead.handlers.batch_job import BatchJob
    from fairlead.handlers.context import ChildFailed, Context, Fatal, Nondeterministic, Snooze, StepFailed
    from fairlead.handlers.middleware import StoreJobs
    from fairlead.handlers.step_call import Retry
    from fairlead.library.app import Fairlead
    from fairlead.library.client import EnqueuedJob, JobFunction
    from fairlead.library.leases import JobLease
    from fairlead.library.workflows import Flow, WorkflowRun
    from fairlead.model.approval import Approval, ApprovalAnswer, ApprovalStatus
    from fairlead.model.dedupe import dedupe_key
    from fairlead.model.durable import JobStep, ReceivedEvent, ReceivedSignal
    from fairlead.model.flow import KeyLimit, Rate
    from fairlead.model.job import Debounce, EnqueueResult, Job, JobStatus, NewJob
    from fairlead.model.outcome import Backoff, can_retry
    from fairlead.model.secrets.redact import Secret
    from fairlead.settings import Settings
else:
    # The module of each public name: it is imported when the name is first used.
    _MODULES = {
        "Approval": "model.approval",
        "ApprovalAnswer": "model.approval",
        "ApprovalStatus": "model.approval",
        "Backoff": "model.outcome",
        "BatchJob": "handlers.batch_job",
        "BulkResult": "actions.bulk_jobs",
        "ChildFailed": "handlers.context",
        "Context": "handlers.context",
        "Debounce": "model.job",
        "EnqueueResult": "model.job",
        "EnqueuedJob": "library.client",
        "Fairlead": "library.app",
        "FairleadError": "errors",
        "Fatal": "handlers.context",
        "Flow": "library.workflows",
        "Job": "model.job",
        "JobFilter": "actions.jobs",
        "JobFunction": "library.client",
        "JobLease": "library.leases",
        "JobPage": "actions.jobs",
        "JobStatus": "model.job",
        "JobStep": "model.durable",
        "KeyLimit": "model.flow",
        "NewJob": "model.job",
        "Nondeterministic": "handlers.context",
        "Rate": "model.flow",
        "ReceivedEvent": "model.durable",
        "ReceivedSignal": "model.durable",
        "Retry": "handlers.step_call",
        "Secret": "model.secrets.redact",
        "Settings": "settings",
        "Snooze": "handlers.context",
        "StepFailed": "handlers.context",
        "StoreJobs": "handlers.middleware",
        "WorkflowRun": "library.workflows",
        "can_retry": "model.outcome",
        "dedupe_key": "model.dedupe",
    }

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "Approval",
    "ApprovalAnswer",
    "ApprovalStatus",
    "Backoff",
    "BatchJob",
    "BulkResult",
    "ChildFailed",
    "Context",
    "Debounce",
    "EnqueueResult",
    "EnqueuedJob",
    "Fairlead",
    "FairleadError",
    "Fatal",
    "Flow",
    "Job",
    "JobFilter",
    "JobFunction",
    "JobLease",
    "JobPage",
    "JobStatus",
    "JobStep",
    "KeyLimit",
    "NewJob",
    "Nondeterministic",
    "Rate",
    "ReceivedEvent",
    "ReceivedSignal",
    "Retry",
    "Secret",
    "Settings",
    "Snooze",
    "StepFailed",
    "StoreJobs",
    "WorkflowRun",
    "__version__",
    "can_retry",
    "dedupe_key",
]
