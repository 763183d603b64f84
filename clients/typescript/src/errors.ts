import type { KnownCode } from "./codes.js";

/** A code of the server, or of a newer server, or of this client. */
export type ErrorCode = KnownCode | "connection_failed" | "response_invalid" | (string & {});

/** One fault in the request, and its path. */
export interface Fault {
  readonly path: string;
  readonly message: string;
}

/** What an error tells beside its code. */
export interface ErrorDetails {
  readonly code: ErrorCode;
  readonly detail: string;
  /** The HTTP status, or 0 if the error is not an HTTP response. */
  readonly status?: number;
  readonly errors?: readonly Fault[];
  /** How many seconds the server asks to wait before the request is repeated. */
  readonly retryAfter?: number | undefined;
  readonly cause?: unknown;
}

/** The root of all errors of this package. Programs use the stable `code`; `detail` tells a person what to do. */
export class FairleadError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly detail: string;
  readonly errors: readonly Fault[];
  readonly retryAfter: number | undefined;

  constructor(details: ErrorDetails) {
    super(details.detail, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = details.code;
    this.status = details.status ?? 0;
    this.detail = details.detail;
    this.errors = details.errors ?? [];
    this.retryAfter = details.retryAfter;
  }
}

/** The server could not be reached, or its answer did not arrive. The request may have been carried out. */
export class ConnectionFailed extends FairleadError {
  constructor(detail: string, cause?: unknown) {
    super({ code: "connection_failed", detail, cause });
  }
}

/** 401 or 403: the token is not valid, or its role lacks the permission. */
export class AccessDenied extends FairleadError {}

/** 404: there is no such job, run or definition, or it is another tenant's. */
export class NotFound extends FairleadError {}

/** 409: the state of the job, run or key does not allow the request. */
export class Conflict extends FairleadError {}

/** 409 `lease_lost`: the attempt belongs to another worker now, or has ended. */
export class LeaseLost extends Conflict {}

/** 413 or 422: the request is not valid; `errors` names its faults. */
export class InvalidRequest extends FairleadError {}

/** 429: a limit is reached. */
export class LimitReached extends FairleadError {}

/** A status of 500 or above. */
export class ServerFailed extends FairleadError {}

/** The job ended without an output. */
export class JobFailed extends FairleadError {
  constructor(
    readonly jobId: string,
    readonly jobStatus: string,
    readonly lastError: string | null,
  ) {
    super({ code: "job_failed", detail: `Job ${jobId} is ${jobStatus}: ${lastError ?? "no error was recorded"}` });
  }
}

/** The run of a workflow ended without an output. */
export class WorkflowRunFailed extends FairleadError {
  constructor(
    readonly runId: string,
    readonly runStatus: string,
    readonly lastError: string | null,
  ) {
    super({
      code: "workflow_run_failed",
      detail: `Run ${runId} is ${runStatus}: ${lastError ?? "no error was recorded"}`,
    });
  }
}

/** The job or run did not end in time. It goes on. */
export class ResultTimeout extends FairleadError {
  constructor(what: string, status: string, seconds: number) {
    super({ code: "result_timeout", detail: `${what} is still ${status} after ${seconds} s.` });
  }
}

/** Thrown by a handler: the job fails without further attempts. */
export class Fatal extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "Fatal";
  }
}

/** Thrown by a handler: the job runs again after some seconds, and no attempt is charged. */
export class Snooze extends Error {
  constructor(readonly seconds: number) {
    if (!Number.isFinite(seconds) || seconds < 0) {
      throw new RangeError(`Snooze takes the seconds to wait, 0 or more, not ${seconds}.`);
    }
    super(`run again in ${seconds} s`);
    this.name = "Snooze";
  }
}

/** The error class for an HTTP status and code. */
export function errorOf(details: ErrorDetails & { status: number }): FairleadError {
  return new (classOf(details.status, details.code))(details);
}

function classOf(status: number, code: ErrorCode): new (details: ErrorDetails) => FairleadError {
  if (code === "lease_lost") return LeaseLost;
  if (status === 401 || status === 403) return AccessDenied;
  if (status === 404) return NotFound;
  if (status === 409) return Conflict;
  if (status === 413 || status === 422) return InvalidRequest;
  if (status === 429) return LimitReached;
  return status >= 500 ? ServerFailed : FairleadError;
}
