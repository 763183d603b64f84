"""Every error that Fairlead raises: one root, one class per error, each with a stable code and its HTTP status."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple
from uuid import UUID


class Fault(NamedTuple):
    """One fault in the input, and its path."""

    path: str
    message: str


class FairleadError(Exception):
    """The root of all errors. Programs use the stable `code`; the message tells a person what to do."""

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.faults = tuple(faults)

    def as_dict(self) -> dict[str, Any]:
        """The error as `--json` and the API return it."""
        return {
            "code": self.code,
            "detail": self.message,
            "errors": [{"path": fault.path, "message": fault.message} for fault in self.faults],
        }


# Input


class Refused(FairleadError):
    """The request cannot be carried out; nothing was changed."""

    http_status = 422


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
    http_status = 413


class PayloadTooDeep(Refused):
    code = "payload_too_deep"


class SecretsRequired(Refused):
    """An edited or copied document still has masked secrets; the user must enter them again."""

    code = "secrets_required"


class EncryptionKeyMissing(FairleadError):
    """The database encrypts secrets, and this process lacks the master key that it needs."""

    code = "encryption_key_missing"
    http_status = 503


class EncryptionKeyUnavailable(FairleadError):
    """A key cannot be had now: the KMS does not answer, or a wrapped key was changed."""

    code = "encryption_key_unavailable"
    http_status = 503


# What needs the key waits until a process has it: nothing is wrong with the job, the trigger or the run.
KEY_ERRORS = (EncryptionKeyMissing, EncryptionKeyUnavailable)


class SealBroken(FairleadError):
    """A sealed value was changed, or moved to another tenant, field or job. The message never has the value."""

    code = "seal_broken"


class TenantUnknown(Refused):
    code = "tenant_unknown"
    http_status = 404


class TenantExists(Refused):
    code = "tenant_exists"
    http_status = 409


class TenantMoved(Refused):
    """The tenant lives in another cell than the one that was asked."""

    code = "tenant_moved"
    http_status = 409


class TenantMoving(FairleadError):
    """The tenant is being moved to another cell; its writes are accepted there after `retry_after` seconds or so."""

    code = "tenant_moving"
    http_status = 503
    retry_after = 2


class WrongCell(Refused):
    """A transaction of another cell than the tenant's."""

    code = "wrong_cell"


class CellUnknown(Refused):
    code = "cell_unknown"
    http_status = 404


class CellUnreachable(FairleadError):
    """The database of a cell cannot be reached; the tenants of other cells are not affected."""

    code = "cell_unreachable"
    http_status = 503
    retry_after = 5


class CellExists(Refused):
    code = "cell_exists"
    http_status = 409


class CellInUse(Refused):
    code = "cell_in_use"
    http_status = 409


class CellInvalid(Refused):
    code = "cell_invalid"


class MoveRefused(Refused):
    """The tenant cannot be moved, or the move cannot be taken back."""

    code = "move_refused"
    http_status = 409


class MoveBlocked(Refused):
    """Transactions that have read or written the tenant's rows stay open."""

    code = "move_blocked"
    http_status = 409


class CopyDiffers(Refused):
    """The rows of a tenant are not the same in both cells."""

    code = "copy_differs"
    http_status = 409


class HostUnknown(Refused):
    code = "host_unknown"
    http_status = 404


class HostExists(Refused):
    code = "host_exists"
    http_status = 409


class HostInUse(Refused):
    code = "host_in_use"
    http_status = 409


class HostRequired(Refused):
    code = "host_required"


class ResourceUnknown(Refused):
    code = "resource_unknown"
    http_status = 404


class ResourceExists(Refused):
    code = "resource_exists"
    http_status = 409


class ResourceElsewhere(Refused):
    """The resource is on a different host than the request names."""

    code = "resource_elsewhere"


class EnrolmentRefused(Refused):
    code = "enrolment_refused"
    http_status = 401


class AgentSuperseded(Refused):
    """Another agent was started for the host."""

    code = "agent_superseded"
    http_status = 409


class DefinitionUnknown(Refused):
    code = "definition_unknown"


class DefinitionExists(Refused):
    code = "definition_exists"
    http_status = 409


class DefinitionInactive(Refused):
    code = "definition_inactive"


class DefinitionInvalid(Refused):
    code = "definition_invalid"


class SchemaTooCostly(DefinitionInvalid):
    """Checking a payload against this schema could take too long, even for a small payload."""

    code = "schema_too_costly"


class DefinitionUnsettled(Refused):
    """The definition changed repeatedly while the payload was checked against it."""

    code = "definition_unsettled"
    http_status = 409


class TemplateInvalid(Refused):
    code = "template_invalid"


class TemplateFailed(Refused):
    """A template could not be filled with the given values."""

    code = "template_failed"


class FilterInvalid(Refused):
    code = "filter_invalid"


class SignatureInvalid(Refused):
    code = "signature_invalid"


class JobUnknown(Refused):
    code = "job_unknown"
    http_status = 404


class JobIdTaken(Refused):
    code = "job_id_taken"
    http_status = 409


class JobNotCancelable(Refused):
    code = "job_not_cancelable"
    http_status = 409


class JobNotSignalable(Refused):
    """The job has ended: no function can receive the signal."""

    code = "job_not_signalable"
    http_status = 409


class JobNotRetryable(Refused):
    code = "job_not_retryable"
    http_status = 409


class StepUnknown(Refused):
    """The job has recorded no such step, or several of this name."""

    code = "step_unknown"


class JobNotReplayable(Refused):
    """The job has not ended."""

    code = "job_not_replayable"
    http_status = 409


class JobNotEditable(Refused):
    """The job does not wait, or this part of it cannot be changed."""

    code = "job_not_editable"
    http_status = 409


class FilterOnSecret(Refused):
    """The filter compares a field of the payload that its definition marks as secret."""

    code = "filter_on_secret"
    http_status = 422


class KeyReserved(Refused):
    """The dedupe key or run key is reserved for the system."""

    code = "key_reserved"


class TriggerUnknown(Refused):
    code = "trigger_unknown"
    http_status = 404


class TriggerCircle(Refused):
    """A trigger did not fire, because the chain of triggers that led to it is too long."""

    code = "circle"


class TriggerInvalid(Refused):
    code = "trigger_invalid"


class TriggerFormInvalid(Refused):
    """The trigger has neither an event nor a schedule, or both."""

    code = "trigger_form_invalid"


class EventUnknown(Refused):
    code = "event_unknown"
    http_status = 404


class ErrorGroupUnknown(Refused):
    code = "error_group_unknown"
    http_status = 404


class EventInvalid(Refused):
    code = "event_invalid"


class MessageInvalid(Refused):
    """A broker's message that can never become an event."""

    code = "message_invalid"


class SourceUnknown(Refused):
    """No process has run a source of this name."""

    code = "source_unknown"
    http_status = 404


class EventReserved(Refused):
    """The event's name is reserved for the system."""

    code = "event_reserved"


class HookUnknown(Refused):
    """No hook, or no tenant, has this name: the error does not say which."""

    code = "hook_unknown"
    http_status = 404


class HookExists(Refused):
    code = "hook_exists"
    http_status = 409


class HookInvalid(Refused):
    code = "hook_invalid"


class HookDisabled(Refused):
    """The hook takes no deliveries now; the sender may try again later."""

    code = "hook_disabled"
    http_status = 409


class WebhookUnverified(Refused):
    """A delivery's signature is missing, wrong or too old: the error does not say which."""

    code = "webhook_unverified"
    http_status = 401


class WorkflowUnknown(Refused):
    code = "workflow_unknown"
    http_status = 404


class WorkflowInvalid(Refused):
    code = "workflow_invalid"


class WorkflowRunUnknown(Refused):
    code = "workflow_run_unknown"
    http_status = 404


class WorkflowRunOver(Refused):
    """The run has ended, and the request needs a running one."""

    code = "workflow_run_over"
    http_status = 409


class WorkflowTooDeep(Refused):
    code = "workflow_too_deep"
    http_status = 409


class WorkflowRunNotRetryable(Refused):
    code = "workflow_run_not_retryable"
    http_status = 409


class WorkflowRunFailed(FairleadError):
    """The run whose output was requested ended without one."""

    code = "workflow_run_failed"


class AlreadyRegistered(Refused):
    code = "already_registered"
    http_status = 409


class RegistrationUnknown(Refused):
    code = "registration_unknown"


class JobFailed(FairleadError):
    """The awaited job ended without a result. `status` is failed, dead_letter or canceled."""

    code = "job_failed"
    job_id: UUID
    status: str
    last_error: str | None


class ResultTimeout(FairleadError):
    """The awaited job did not end in time."""

    code = "result_timeout"


class LeaseLost(FairleadError):
    """The caller has lost the lease: another worker may own the job, and nothing was changed."""

    code = "lease_lost"
    http_status = 409


class EngineUnavailable(FairleadError):
    """A delivery engine or a source of messages cannot be reached; it is tried again."""

    code = "engine_unavailable"


class ClaimSettled(Refused):
    """The id of this claim was used before, and the jobs of that claim have ended."""

    code = "claim_settled"
    http_status = 409


class Forbidden(Refused):
    code = "forbidden"
    http_status = 403


class Unauthenticated(Refused):
    """The request has no valid token or session, or the password is wrong."""

    code = "unauthenticated"
    http_status = 401


class AddressNotAllowed(Refused):
    """An allow-list of the token or of the tenant does not admit the client's address."""

    code = "address_not_allowed"
    http_status = 403


class AddressListExcludesYou(Refused):
    """A new allow-list would lock out the admin who sets it."""

    code = "address_list_excludes_you"
    http_status = 409


class TokenEnded(Refused):
    """The token is revoked, expired or already replaced: there is nothing to rotate."""

    code = "token_ended"
    http_status = 409


class TooManyTokens(Refused):
    """The user has as many personal tokens as one may have."""

    code = "too_many_tokens"
    http_status = 409


class TokenUnknown(Refused):
    code = "token_unknown"
    http_status = 404


class UserUnknown(Refused):
    code = "user_unknown"
    http_status = 404


class UserExists(Refused):
    code = "user_exists"
    http_status = 409


class SessionUnknown(Refused):
    code = "session_unknown"
    http_status = 404


class IdentityUnknown(Refused):
    code = "identity_unknown"
    http_status = 404


class OnlySignIn(Refused):
    """The user could not sign in any more without the identity that is to be unlinked."""

    code = "only_sign_in"
    http_status = 409


class UserRequired(Refused):
    """Only a user who has signed in has an account; the request came with a token."""

    code = "user_required"


class PasswordWrong(Refused):
    """The old password is wrong."""

    code = "password_wrong"


class PasswordNotSet(Refused):
    """The account has no password."""

    code = "password_not_set"


class SecondFactorRequired(Refused):
    """The password is right, and the account has a second factor: a code is missing, wrong, or was used before."""

    code = "second_factor_required"
    http_status = 401


class SecondFactorSetupRequired(Refused):
    """The user's role needs a second factor, and the user has none: the session can only set one up."""

    code = "second_factor_setup_required"
    http_status = 403


class SecondFactorWrong(Refused):
    """The code is wrong, or was used before."""

    code = "second_factor_wrong"


class SecondFactorExists(Refused):
    """The account has a second factor already."""

    code = "second_factor_exists"
    http_status = 409


class SecondFactorMissing(Refused):
    """The account has no second factor, or its set-up has not begun or took too long."""

    code = "second_factor_missing"
    http_status = 409


class EmailNotConfigured(Refused):
    """No worker sends mails: invitations and resets of passwords cannot be sent."""

    code = "email_not_configured"


class PublicUrlMissing(Refused):
    """The setting public_url is not set: a link in a mail would have to trust the Host header of a request."""

    code = "public_url_missing"


class AccountLinkInvalid(Refused):
    """The link was used, replaced or withdrawn, has expired, or its user was changed or disabled."""

    code = "account_link_invalid"


class InvitationAccepted(Refused):
    """The user has a password, or has signed in: there is nothing to invite to, or to withdraw."""

    code = "invitation_accepted"
    http_status = 409


class WorkerUnknown(Refused):
    """There is no such worker, or it has stopped."""

    code = "worker_unknown"
    http_status = 404


class NotFound(Refused):
    """There is no route at this path."""

    code = "not_found"
    http_status = 404


class MethodNotAllowed(Refused):
    code = "method_not_allowed"
    http_status = 405


class BodyTooLarge(Refused):
    code = "body_too_large"
    http_status = 413


class BodyNotJson(Refused):
    code = "body_not_json"


class ContentTypeUnsupported(Refused):
    """The Content-Type is missing or not JSON."""

    code = "content_type_unsupported"
    http_status = 415


class IdempotencyClash(Refused):
    """The Idempotency-Key was used before, with another body."""

    code = "idempotency_clash"
    http_status = 409


class RequestTooSlow(Refused):
    """The header or the body of a request did not arrive in time."""

    code = "request_too_slow"
    http_status = 408


class SearchTooSlow(Refused):
    """A statement of a search took too long."""

    code = "search_too_slow"


class HeaderTooLarge(Refused):
    code = "header_too_large"
    http_status = 431


class ServerFull(FairleadError):
    """The limit of connections, of the server or of one address, is reached, or that of the memory for large bodies."""

    code = "server_full"
    http_status = 503
    retry_after = 1


class TooManyRequests(Refused):
    code = "too_many_requests"
    http_status = 429
    retry_after: int | None = None


class QueueFull(Refused):
    """The tenant has reached its limit of queued jobs."""

    code = "queue_full"
    http_status = 429


class QuotaExceeded(Refused):
    """The tenant has reached a quota; the fault names it."""

    code = "quota_exceeded"
    http_status = 409


class SignInRefused(Refused):
    """A sign-in with an identity provider was refused: it is invalid, or the person has no access here."""

    code = "sign_in_refused"
    http_status = 403


class ProviderFailed(FairleadError):
    """An identity provider cannot be reached, or its answer is not valid."""

    code = "identity_provider_failed"
    http_status = 502


class CrossSite(Refused):
    """A page of another site tried to act with this user's cookie."""

    code = "cross_site"
    http_status = 403


class InternalError(FairleadError):
    """An unexpected error; the server's log has the details."""

    code = "internal_error"


class ConnectionNotSupported(Refused):
    code = "connection_not_supported"


class WrongDatabase(Refused):
    """A transaction of another database than the job's."""

    code = "wrong_database"


class SignalInvalid(Refused):
    """A signal that cannot be sent like this."""

    code = "signal_invalid"


class ApprovalInvalid(Refused):
    """An approval that cannot be asked for or answered like this."""

    code = "approval_invalid"


class ApprovalUnknown(Refused):
    code = "approval_unknown"
    http_status = 404


class ApprovalClosed(Refused):
    """The approval has been answered, its time is over, or its job has ended."""

    code = "approval_closed"
    http_status = 409


class DurableUnavailable(Refused):
    """The function is not durable, or runs where it cannot be."""

    code = "durable_unavailable"


class TransactionUnavailable(Refused):
    """The handler runs where it cannot end its job in a transaction of its own."""

    code = "transaction_unavailable"


class DedupeClash(Refused):
    """Under REPEATABLE READ or SERIALIZABLE another transaction enqueued the same dedupe key first."""

    code = "dedupe_clash"
    http_status = 409


class CronInvalid(Refused):
    """Not a cron expression, or one that never runs."""

    code = "cron_invalid"


class TimezoneUnknown(Refused):
    code = "timezone_unknown"


class ScheduleInvalid(Refused):
    """The interval, the start, the end or the jitter is invalid."""

    code = "schedule_invalid"


class BackfillTooLarge(Refused):
    """A range of a schedule has more instants than one backfill may fire."""

    code = "backfill_too_large"


class CommandInvalid(Refused):
    """A command of the allowlist in fairlead.toml is invalid."""

    code = "command_invalid"


class CommandRefused(Refused):
    """The payload cannot fill the slots of the command; nothing was run."""

    code = "command_refused"


class SettingInvalid(Refused):
    code = "setting_invalid"


# Environment


class DatabaseUnreachable(FairleadError):
    code = "database_unreachable"
    http_status = 503
    retry_after = 1


class DatabaseRefused(FairleadError):
    """PostgreSQL is reachable, but lacks what Fairlead needs: version, rights, encoding or disk space."""

    code = "database_refused"


class SchemaOutdated(FairleadError):
    code = "schema_outdated"
    http_status = 503


class ProcessOutdated(FairleadError):
    """A later version has migrated the database, and this one cannot work with it."""

    code = "process_outdated"
    http_status = 503


class MigrationFailed(FairleadError):
    code = "migration_failed"


class EmbeddedUnavailable(FairleadError):
    """There are no PostgreSQL binaries, or none that match the data folder."""

    code = "embedded_unavailable"


class EmbeddedFailed(FairleadError):
    """The embedded PostgreSQL did not start or stop."""

    code = "embedded_failed"


class DiskNotMounted(FairleadError):
    """`fairlead chaos` may not mount a file system for its PostgreSQL, or not change its limit."""

    code = "disk_not_mounted"


class ChaosFailed(FairleadError):
    """A run of `fairlead chaos` could not start or go on, so it says nothing about Fairlead."""

    code = "chaos_failed"


class NotOpen(FairleadError):
    code = "not_open"


class AlreadyOpen(FairleadError):
    """It is open already: a second user would lose it when the first one closes it."""

    code = "already_open"


class WrongLoop(FairleadError):
    """It is used on another event loop than the one it was opened on."""

    code = "wrong_loop"


class DatabaseBusy(FairleadError):
    """A statement reached a timeout, the home cell did not answer in time, or others used all connections of the server."""

    code = "database_busy"
    http_status = 503
    retry_after = 1


class TransactionIdle(FairleadError):
    """A transaction was idle for too long, and PostgreSQL rolled it back."""

    code = "transaction_idle"
    http_status = 503


class PortTaken(FairleadError):
    code = "port_taken"


class ExtraMissing(FairleadError):
    """The command needs an optional package that is not installed."""

    code = "extra_missing"


# Exports of the audit log


class AuditKeyInvalid(Refused):
    """The key that signs or verifies an exported audit log is missing or cannot be used."""

    code = "audit_key_invalid"


class AuditExportInvalid(Refused):
    """An exported audit log was changed, is incomplete, or has a wrong signature. The message names the first wrong line."""

    code = "audit_export_invalid"


# MCP


class ToolUnknown(Refused):
    """The MCP server has no tool with this name."""

    code = "tool_unknown"
    http_status = 404


class WritesDisabled(Refused):
    """The MCP server only reads, and the tool changes something."""

    code = "writes_disabled"
    http_status = 403


class AnswerTooLarge(Refused):
    """The answer of an MCP tool is larger than a tool may return."""

    code = "answer_too_large"


class ServerUnreachable(FairleadError):
    """The server of an agent or worker does not respond, or is temporarily unavailable."""

    code = "server_unreachable"


class ServerNotWaitedFor(ServerUnreachable):
    """A proxy in front of the server timed out."""

    code = "server_not_waited_for"


class ServerBusy(ServerUnreachable):
    """The token has made too many requests; the server accepts more after `retry_after` seconds."""

    code = "server_busy"

    def __init__(self, message: str, faults: Sequence[Fault] = (), *, retry_after: float = 1.0) -> None:
        super().__init__(message, faults)
        self.retry_after = retry_after


class ServerRefused(FairleadError):
    """The server of an agent or worker sent an unexpected response."""

    code = "server_refused"
