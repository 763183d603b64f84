import type { Payload } from "./types.js";

export type LogStream = "log" | "stdout" | "stderr";

/** Why an attempt has to stop before its handler returned. */
export type StopReason = "canceled" | "timed_out" | "lease_lost" | "stopping";

const WORDS: Record<StopReason, string> = {
  canceled: "the job was canceled",
  timed_out: "the attempt reached its timeout",
  lease_lost: "the lease is lost: another worker may run the job",
  stopping: "the worker stops",
};

/** The reason of `job.signal` once it aborts. */
export class Stopped extends Error {
  constructor(readonly reason: StopReason) {
    super(WORDS[reason]);
    this.name = "Stopped";
  }
}

/** One attempt of a job, as its handler sees it. */
export interface Job<P = Payload> {
  readonly id: string;
  /** The key of its definition. */
  readonly definition: string;
  readonly payload: P;
  /** The slug of its tenant. */
  readonly tenant: string;
  readonly tenantId: string;
  /** 1 for the first attempt. */
  readonly attemptNo: number;
  readonly maxAttempts: number;
  readonly timeoutSeconds: number;
  readonly correlationId: string | null;
  readonly parentId: string | null;
  /** Aborts when the handler has to stop: cancel, timeout, lost lease, end of the worker. Its reason is a `Stopped`. */
  readonly signal: AbortSignal;
  /** Report the progress, 0 to 100. If a report is under way, only the newest one follows it. */
  progress(percent: number, message?: string): Promise<void>;
  /** Append a line to the attempt's log. Lines are sent together, and before the result. */
  log(text: string, stream?: LogStream): void;
  /** End this attempt now: the job runs again after the delay, and no attempt is charged. Throws a `Snooze`. */
  release(delaySeconds?: number): never;
}

/** Does the work of a job. What it returns is the job's output. */
export type Handler<P = Payload, Output = unknown> = (job: Job<P>) => Output | Promise<Output>;
