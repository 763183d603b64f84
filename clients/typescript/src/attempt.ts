import { FairleadError, Fatal, LeaseLost, Snooze } from "./errors.js";
import { type Handler, type Job, type LogStream, type StopReason, Stopped } from "./job.js";
import { type Lease, isPassing } from "./lease.js";
import { LogBuffer } from "./log-buffer.js";
import { Backoff, after } from "./pause.js";
import type { ClaimedJob, CompleteRequest, FailRequest, Payload, ReleaseRequest } from "./types.js";

const LONGEST_TEXT = 1_048_576;
const LONGEST_TYPE = 1000;

/** How a handler ended. */
type Ending = { returned: unknown } | { thrown: unknown };

/** What the worker tells the server about an attempt. */
type Report =
  | { what: "complete"; body: CompleteRequest }
  | { what: "fail"; body: FailRequest }
  | { what: "release"; body: ReleaseRequest };

export interface AttemptOptions {
  /** How long a handler may take to stop after its signal aborted. */
  graceSeconds: number;
  onError: (error: unknown, jobId: string) => void;
}

/** Runs one attempt under its lease: renews it, stops the handler in time, and reports how it ended. */
export class Attempt implements Job {
  readonly id: string;
  readonly definition: string;
  readonly payload: Payload;
  readonly tenant: string;
  readonly tenantId: string;
  readonly attemptNo: number;
  readonly maxAttempts: number;
  readonly timeoutSeconds: number;
  readonly correlationId: string | null;
  readonly parentId: string | null;
  readonly #lease: Lease;
  readonly #options: AttemptOptions;
  readonly #controller = new AbortController();
  readonly #log: LogBuffer;
  #stopReason: StopReason | undefined;
  #endGrace: () => void = () => undefined;
  readonly #graceOver = new Promise<undefined>((resolve) => {
    this.#endGrace = () => resolve(undefined);
  });
  readonly #timers = new Map<"renew" | "timeout" | "grace", () => void>();
  #progress: { percent: number; message: string } | undefined;
  #sendingProgress: Promise<void> | undefined;

  constructor(claimed: ClaimedJob, lease: Lease, options: AttemptOptions) {
    this.id = claimed.job_id;
    this.definition = claimed.definition_key;
    this.payload = claimed.payload as Payload;
    this.tenant = claimed.tenant;
    this.tenantId = claimed.tenant_id;
    this.attemptNo = claimed.attempt_no;
    this.maxAttempts = claimed.max_attempts;
    this.timeoutSeconds = claimed.timeout_seconds;
    this.correlationId = claimed.correlation_id;
    this.parentId = claimed.parent_id;
    this.#lease = lease;
    this.#options = options;
    this.#log = new LogBuffer((chunks) => lease.report("logs", { chunks }));
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  progress(percent: number, message = ""): Promise<void> {
    if (this.signal.aborted) return Promise.reject(this.signal.reason);
    this.#progress = { percent, message: message.toWellFormed() };
    this.#sendingProgress ??= this.#sendProgress().finally(() => {
      this.#sendingProgress = undefined;
    });
    return this.#sendingProgress;
  }

  log(text: string, stream: LogStream = "log"): void {
    if (this.#stopReason !== "lease_lost") this.#log.add(String(text), stream);
  }

  release(delaySeconds = 0): never {
    throw new Snooze(delaySeconds);
  }

  /** Abort the handler's signal. It then has `graceSeconds` to return, before the attempt ends without it. */
  stop(reason: StopReason): void {
    if (reason === "lease_lost") {
      this.#stopReason = reason;
      this.#cancel("renew");
    }
    if (this.signal.aborted) return;
    this.#stopReason = reason;
    this.#controller.abort(new Stopped(reason));
    this.#schedule("grace", this.#options.graceSeconds * 1000, this.#endGrace);
  }

  /** Report nothing any more. */
  giveUp(): void {
    this.stop("lease_lost");
    this.#lease.giveUp();
  }

  /** Run the handler and report how it ended; `onReturn` is called when the handler has really returned. */
  async run(handler: Handler, onReturn: () => void): Promise<void> {
    this.#schedule("renew", this.#lease.renewAfter, () => void this.#renew(new Backoff(200, 2000)));
    this.#schedule("timeout", this.timeoutSeconds * 1000, () => this.stop("timed_out"));
    const handled = callHandler(handler, this).finally(onReturn);
    const ending = await Promise.race([handled, this.#graceOver]);
    this.#cancel("timeout");
    this.#cancel("grace");
    try {
      if (this.#stopReason !== "lease_lost") await this.#reportEnd(this.#decide(ending));
    } catch (error) {
      if (!this.signal.aborted || this.#stopReason !== "lease_lost") this.#options.onError(error, this.id);
    } finally {
      this.#cancel("renew");
      this.#lease.giveUp();
    }
  }

  /** What to report. An ended handler's result counts also while the worker stops; after a cancel or a timeout it does not. */
  #decide(ending: Ending | undefined): Report {
    if (this.#stopReason === "canceled") return { what: "release", body: {} };
    if (this.#stopReason === "timed_out") return timedOut(this.timeoutSeconds);
    if (ending === undefined) return { what: "release", body: {} };
    if ("returned" in ending) return completed(ending.returned);
    if (this.#stopReason === "stopping" && !(ending.thrown instanceof Snooze)) return { what: "release", body: {} };
    return thrown(ending.thrown);
  }

  /** Send the rest of the log, then the report. A refused output fails the attempt. */
  async #reportEnd(report: Report): Promise<void> {
    await this.#sendingProgress?.catch(() => undefined); // the handler was given this error
    await this.#log.flush().catch((error) => this.#noteLogError(error));
    this.#cancel("renew");
    try {
      await this.#lease.report(report.what, report.body);
    } catch (error) {
      if (report.what !== "complete" || !isRefusal(error)) throw error;
      const message = `The server refused the output: ${error.detail}`;
      await this.#lease.report("fail", { error: { type: error.code, message }, retryable: false } satisfies FailRequest);
    }
  }

  #noteLogError(error: unknown): void {
    if (error instanceof LeaseLost) throw error;
    this.#options.onError(error, this.id);
  }

  async #renew(backoff: Backoff): Promise<void> {
    try {
      const renewed = await this.#lease.renew();
      backoff.reset();
      if (renewed.cancel_requested) this.stop("canceled");
      this.#scheduleRenewal(this.#lease.renewAfter, backoff);
    } catch (error) {
      if (!isPassing(error) || this.#lease.isOver) return this.stop("lease_lost");
      this.#scheduleRenewal(Math.min(backoff.next(), this.#lease.renewAfter), backoff);
    }
  }

  #scheduleRenewal(milliseconds: number, backoff: Backoff): void {
    // not after the last report began, which cancels this timer
    if (this.#timers.has("renew")) this.#schedule("renew", milliseconds, () => void this.#renew(backoff));
  }

  async #sendProgress(): Promise<void> {
    while (this.#progress) {
      const body = this.#progress;
      this.#progress = undefined;
      try {
        await this.#lease.report("progress", body);
      } catch (error) {
        if (error instanceof LeaseLost) this.stop("lease_lost");
        throw error;
      }
    }
  }

  #schedule(name: "renew" | "timeout" | "grace", milliseconds: number, call: () => void): void {
    this.#timers.get(name)?.();
    this.#timers.set(name, after(milliseconds, call));
  }

  #cancel(name: "renew" | "timeout" | "grace"): void {
    this.#timers.get(name)?.();
    this.#timers.delete(name);
  }
}

/** Call a handler, also one that throws at once. */
async function callHandler(handler: Handler, job: Job): Promise<Ending> {
  try {
    return { returned: await handler(job) };
  } catch (error) {
    return { thrown: error };
  }
}

function isRefusal(error: unknown): error is FairleadError {
  return error instanceof FairleadError && (error.status === 400 || error.status === 413 || error.status === 422);
}

function completed(output: unknown): Report {
  try {
    JSON.stringify(output);
    return { what: "complete", body: { output: output ?? null } };
  } catch (error) {
    const message = `The output is not JSON: ${describe(error).message}`;
    return { what: "fail", body: { error: { type: "OutputInvalid", message }, retryable: false } };
  }
}

function timedOut(seconds: number): Report {
  const message = `the attempt took longer than ${seconds} s`;
  return { what: "fail", body: { error: { type: "Timeout", message }, timed_out: true } };
}

function thrown(error: unknown): Report {
  if (error instanceof Snooze) return { what: "release", body: { delay_seconds: error.seconds } };
  return { what: "fail", body: { error: describe(error), retryable: !(error instanceof Fatal) } };
}

/** An error of a handler for the server: whatever was thrown. */
function describe(error: unknown): FailRequest["error"] {
  if (!(error instanceof Error)) return { type: "Thrown", message: cut(textOf(error), LONGEST_TEXT) };
  return {
    type: cut(error.name || error.constructor.name || "Error", LONGEST_TYPE),
    message: cut(error.message, LONGEST_TEXT),
    traceback: cut(error.stack ?? "", LONGEST_TEXT),
  };
}

function textOf(thrown: unknown): string {
  try {
    return typeof thrown === "object" ? (JSON.stringify(thrown) ?? String(thrown)) : String(thrown);
  } catch {
    return "an object that is not JSON";
  }
}

function cut(text: string, length: number): string {
  return text.slice(0, length).toWellFormed();
}
