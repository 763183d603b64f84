"""Every refusal Fairlead makes: one root, one class per refusal, each with a stable code."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple
from uuid import UUID


class Fault(NamedTuple):
    """One thing that was wrong, and where."""

    path: str
    message: str


class FairleadError(Exception):
    """The root. `code` is stable and for machines; the message tells a person what to do."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.faults = tuple(faults)

    def as_dict(self) -> dict[str, Any]:
        """The shape that `--json` and the API answer with."""
        return {
            "code": self.code,
            "detail": self.message,
            "errors": [{"path": fault.path, "message": fault.message} for fault in self.faults],
        }


# Input


class Refused(FairleadError):
    """The caller asked for something that cannot be done as asked; nothing was done."""


class InvalidInput(Refused):
    code = "invalid_input"


class PayloadInvalid(Refused):
    code = "payload_invalid"


class PayloadTooCostly(PayloadInvalid):
    """Checking the payload against its schema would take too long."""

    code = "payload_too_costly"


class PayloadNotJson(Refused):
    code = "payload_not_json"


class PayloadTooLarge(Refused):
    code = "payload_too_large"


class PayloadTooDeep(Refused):
    code = "payload_too_deep"


class SecretsRequired(Refused):
    """Secrets that were left as they were shown cannot be used for what was edited."""

    code = "secrets_required"


class TenantUnknown(Refused):
    code = "tenant_unknown"


class TenantExists(Refused):
    code = "tenant_exists"


class HostUnknown(Refused):
    code = "host_unknown"


class HostExists(Refused):
    code = "host_exists"


class HostInUse(Refused):
    code = "host_in_use"


class HostRequired(Refused):
    code = "host_required"


class ResourceUnknown(Refused):
    code = "resource_unknown"


class ResourceExists(Refused):
    code = "resource_exists"


class ResourceElsewhere(Refused):
    """The resource is on another host than the one that was named."""

    code = "resource_elsewhere"


class EnrolmentRefused(Refused):
    code = "enrolment_refused"


class AgentSuperseded(Refused):
    """Another agent was started for the host."""

    code = "agent_superseded"


class DefinitionUnknown(Refused):
    code = "definition_unknown"


class DefinitionExists(Refused):
    code = "definition_exists"


class DefinitionInactive(Refused):
    code = "definition_inactive"


class DefinitionInvalid(Refused):
    code = "definition_invalid"


class SchemaTooCostly(DefinitionInvalid):
    """Checking a payload against this schema could take too long, whatever the payload's size."""

    code = "schema_too_costly"


class DefinitionUnsettled(Refused):
    """The definition changed again and again while the payload was checked against it."""

    code = "definition_unsettled"


class TemplateInvalid(Refused):
    code = "template_invalid"


class TemplateFailed(Refused):
    """A template could not be filled with what it was given."""

    code = "template_failed"


class FilterInvalid(Refused):
    code = "filter_invalid"


class SignatureInvalid(Refused):
    code = "signature_invalid"


class JobUnknown(Refused):
    code = "job_unknown"


class JobIdTaken(Refused):
    code = "job_id_taken"


class JobNotCancelable(Refused):
    code = "job_not_cancelable"


class JobNotRetryable(Refused):
    code = "job_not_retryable"


class KeyReserved(Refused):
    """A dedupe key, or the key of a run, that only the system itself may have."""

    code = "key_reserved"


class TriggerUnknown(Refused):
    code = "trigger_unknown"


class TriggerCircle(Refused):
    """A trigger that does not fire, as too many triggers have set one another off."""

    code = "circle"


class TriggerInvalid(Refused):
    code = "trigger_invalid"


class TriggerFormInvalid(Refused):
    """Neither an event nor a schedule, or both."""

    code = "trigger_form_invalid"


class EventUnknown(Refused):
    code = "event_unknown"


class EventInvalid(Refused):
    code = "event_invalid"


class EventReserved(Refused):
    """An event that only the system itself tells of."""

    code = "event_reserved"


class WorkflowUnknown(Refused):
    code = "workflow_unknown"


class WorkflowInvalid(Refused):
    code = "workflow_invalid"


class WorkflowRunUnknown(Refused):
    code = "workflow_run_unknown"


class WorkflowRunOver(Refused):
    """What is asked can only be done to a run that still goes on."""

    code = "workflow_run_over"


class WorkflowTooDeep(Refused):
    code = "workflow_too_deep"


class WorkflowRunNotRetryable(Refused):
    code = "workflow_run_not_retryable"


class WorkflowRunFailed(FairleadError):
    """Raised where the output of a run was asked for and there is none."""

    code = "workflow_run_failed"


class AlreadyRegistered(Refused):
    code = "already_registered"


class RegistrationUnknown(Refused):
    code = "registration_unknown"


class JobFailed(FairleadError):
    """The job whose result was waited for ended without one. `status` is how: failed, dead_letter or canceled."""

    code = "job_failed"
    job_id: UUID
    status: str
    last_error: str | None


class ResultTimeout(FairleadError):
    """The job whose result was waited for had not ended in time."""

    code = "result_timeout"


class LeaseLost(FairleadError):
    """The lease is not ours any more: somebody else may own the job, and nothing was changed."""

    code = "lease_lost"


class ClaimSettled(Refused):
    """The id of this claim was used before, and the jobs that it took have ended."""

    code = "claim_settled"


class Forbidden(Refused):
    code = "forbidden"


class Unauthenticated(Refused):
    """Who asks is not known: no token, none that is good, or a wrong password."""

    code = "unauthenticated"


class TokenUnknown(Refused):
    code = "token_unknown"


class UserUnknown(Refused):
    code = "user_unknown"


class UserExists(Refused):
    code = "user_exists"


class NotFound(Refused):
    """There is nothing at this address."""

    code = "not_found"


class MethodNotAllowed(Refused):
    code = "method_not_allowed"


class BodyTooLarge(Refused):
    code = "body_too_large"


class BodyNotJson(Refused):
    code = "body_not_json"


class ContentTypeUnsupported(Refused):
    """The body is declared as something else than JSON, or not declared at all."""

    code = "content_type_unsupported"


class IdempotencyClash(Refused):
    """The Idempotency-Key was used before, with another body."""

    code = "idempotency_clash"


class RequestTooSlow(Refused):
    """The header or the body of a request was not here in time."""

    code = "request_too_slow"


class HeaderTooLarge(Refused):
    code = "header_too_large"


class ServerFull(FairleadError):
    """There are as many connections as the server, or the address, may have."""

    code = "server_full"


class TooManyRequests(Refused):
    code = "too_many_requests"
    retry_after: int | None = None


class QueueFull(Refused):
    """The tenant has as many jobs waiting as it may."""

    code = "queue_full"


class QuotaExceeded(Refused):
    """The tenant uses as much of a quota as it may; the fault says which."""

    code = "quota_exceeded"


class CrossSite(Refused):
    """A page of another site tried to act with this user's cookie."""

    code = "cross_site"


class InternalError(FairleadError):
    """Something went wrong here; the log of the server says what."""

    code = "internal_error"


class ConnectionNotSupported(Refused):
    code = "connection_not_supported"


class DedupeClash(Refused):
    """Under REPEATABLE READ or SERIALIZABLE another transaction enqueued the same dedupe key first."""

    code = "dedupe_clash"


class CronInvalid(Refused):
    """Not a cron expression, or one that never runs."""

    code = "cron_invalid"


class TimezoneUnknown(Refused):
    code = "timezone_unknown"


class ScheduleInvalid(Refused):
    """An interval or a start that cannot be."""

    code = "schedule_invalid"


class CommandInvalid(Refused):
    """A command of the allowlist, in fairlead.toml, cannot be."""

    code = "command_invalid"


class CommandRefused(Refused):
    """The payload cannot fill the slots of the command; nothing was run."""

    code = "command_refused"


class SettingInvalid(Refused):
    code = "setting_invalid"


# Surroundings


class DatabaseUnreachable(FairleadError):
    code = "database_unreachable"


class DatabaseRefused(FairleadError):
    """PostgreSQL answered, but not with what we need (version, rights, encoding), or has no room for it."""

    code = "database_refused"


class SchemaOutdated(FairleadError):
    code = "schema_outdated"


class MigrationFailed(FairleadError):
    code = "migration_failed"


class EmbeddedUnavailable(FairleadError):
    """No PostgreSQL binaries to run, or none that fit the data folder."""

    code = "embedded_unavailable"


class EmbeddedFailed(FairleadError):
    """The embedded PostgreSQL did not start or stop as it should."""

    code = "embedded_failed"


class NotOpen(FairleadError):
    code = "not_open"


class AlreadyOpen(FairleadError):
    """It was to be opened a second time: whoever closed it first would close it for both."""

    code = "already_open"


class WrongLoop(FairleadError):
    """It was opened on another event loop than the one that it is used on."""

    code = "wrong_loop"


class DatabaseBusy(FairleadError):
    """A statement waited too long for a lock, or ran too long."""

    code = "database_busy"


class TransactionIdle(FairleadError):
    """A transaction was left idle for too long, and PostgreSQL ended it: nothing of it remains."""

    code = "transaction_idle"


class PortTaken(FairleadError):
    code = "port_taken"


class ServerUnreachable(FairleadError):
    """The server of an agent does not answer, or not now."""

    code = "server_unreachable"


class ServerNotWaitedFor(ServerUnreachable):
    """A proxy before the server of an agent did not wait for its answer."""

    code = "server_not_waited_for"


class ServerRefused(FairleadError):
    """The server of an agent answered, but not with what we asked for."""

    code = "server_refused"
