import { randomUUID } from "node:crypto";
import { JobFailed, ResultTimeout, WorkflowRunFailed } from "./errors.js";
import { pause } from "./pause.js";
import type { Transport } from "./transport.js";
import type {
  CallOptions,
  CreateOptions,
  JobAttempt,
  JobRecord,
  JobStep,
  LogChunk,
  LogPage,
  Payload,
  RunDetails,
  RunRecord,
  SignalId,
} from "./types.js";

const FIRST_LOOK = 20;
const LONGEST_LOOK = 500;
const ENDED = new Set(["succeeded", "failed", "dead_letter", "canceled"]);

/** How long to wait for a result: without `timeout` until there is one. */
export interface ResultOptions {
  /** Seconds. */
  timeout?: number;
  signal?: AbortSignal;
}

/** Which part of a log to read. */
export interface LogOptions {
  attemptNo?: number;
  /** Go on until the log is complete; otherwise the chunks that are there. */
  follow?: boolean;
  /** Leave out colours and other escape sequences. */
  stripAnsi?: boolean;
  signal?: AbortSignal;
}

/** A job: enqueued by this client, or found by its id. */
export class JobHandle<Output = unknown> {
  readonly #transport: Transport;
  readonly #scope: CallOptions;

  constructor(
    transport: Transport,
    readonly id: string,
    /** Whether it is an active job that had the same dedupe key. */
    readonly deduplicated = false,
    scope: CallOptions = {},
  ) {
    this.#transport = transport;
    this.#scope = scope.tenant === undefined ? {} : { tenant: scope.tenant };
  }

  /** The current state of the job. */
  read(options: { signal?: AbortSignal } = {}): Promise<JobRecord> {
    return this.#request("GET", "", { signal: options.signal });
  }

  /** The job's output once it succeeded. Throws JobFailed if it ended otherwise, ResultTimeout if it takes longer. */
  async result(options: ResultOptions = {}): Promise<Output> {
    const job = await pollUntil(() => this.read(options), options);
    if (job.status === "succeeded") return job.output as Output;
    if (ENDED.has(job.status)) throw new JobFailed(this.id, job.status, job.last_error);
    throw new ResultTimeout(`Job ${this.id}`, job.status, options.timeout ?? 0);
  }

  /** Cancel the job: at once if it is queued, at its worker's next heartbeat if it is running. */
  cancel(): Promise<JobRecord> {
    return this.#request("POST", "/cancel", { repeatable: true });
  }

  /**
   * Queue a failed, dead-lettered or canceled job again, with a fresh budget, and perhaps with a new payload. A durable function goes
   * on after its recorded steps; with `fromStep`, a step's name or place, that step and all that came after it run again.
   */
  retry(payload?: Payload, options: { fromStep?: string } = {}): Promise<JobRecord> {
    const body = { payload, from_step: options.fromStep };
    return this.#request("POST", "/retry", payload === undefined && options.fromStep === undefined ? {} : { body });
  }

  /**
   * Enqueue this ended job again as a new job with the same payload. A durable function goes on after copies of the records before
   * `fromStep`, a step's name or place; without it, it runs from the start.
   */
  async replay(options: { fromStep?: string } & CreateOptions = {}): Promise<JobHandle<Output>> {
    const { fromStep, idempotencyKey = randomUUID(), ...call } = options;
    const made: JobRecord = await this.#request("POST", "/replay", {
      ...call,
      body: { from_step: fromStep },
      idempotencyKey,
      repeatable: true,
    });
    return new JobHandle<Output>(this.#transport, made.id, false, this.#scope);
  }

  /** The job's attempts, the first one first. */
  async attempts(): Promise<JobAttempt[]> {
    const found: JobAttempt[] = [];
    let cursor: string | null | undefined;
    do {
      const page: { items: JobAttempt[]; next_cursor: string | null } = await this.#request("GET", "/attempts", {
        query: { cursor },
      });
      found.push(...page.items);
      cursor = page.next_cursor;
    } while (cursor);
    return found;
  }

  /** The recorded steps and waits of a durable function. */
  async steps(): Promise<JobStep[]> {
    const found: JobStep[] = [];
    let cursor: string | null | undefined;
    do {
      const page: { items: JobStep[]; next_cursor: string | null } = await this.#request("GET", "/steps", {
        query: { cursor },
      });
      found.push(...page.items);
      cursor = page.next_cursor;
    } while (cursor);
    return found;
  }

  /** Send a signal to a durable function: it ends the first wait for its name, or is kept for the next one. */
  signal(name: string, data: unknown = null, options: CreateOptions = {}): Promise<SignalId> {
    const { idempotencyKey = randomUUID(), ...call } = options;
    return this.#request("POST", `/signals/${encodeURIComponent(name)}`, {
      ...call,
      body: { data },
      idempotencyKey,
      repeatable: true,
    });
  }

  /** The chunks of the job's log, in their order. */
  async *logs(options: LogOptions = {}): AsyncGenerator<LogChunk, void, undefined> {
    const { attemptNo, follow = false, stripAnsi, signal } = options;
    let cursor: string | null | undefined;
    for (;;) {
      const query = { attempt_no: attemptNo, strip_ansi: stripAnsi, follow, cursor };
      const page: LogPage = await this.#request("GET", "/logs", { query, signal, timeoutSeconds: 60 });
      yield* page.items;
      if (page.complete || (!follow && page.items.length === 0)) return;
      cursor = page.next_cursor ?? cursor;
      if (page.items.length === 0) await pause(FIRST_LOOK, signal);
    }
  }

  #request<T>(method: string, path: string, options: Parameters<Transport["request"]>[2]): Promise<T> {
    return this.#transport.request<T>(method, `/jobs/${encodeURIComponent(this.id)}${path}`, {
      ...this.#scope,
      ...options,
    });
  }
}

/** A run of a workflow. */
export class RunHandle<Output = unknown> {
  readonly #transport: Transport;
  readonly #scope: CallOptions;

  constructor(
    transport: Transport,
    readonly id: string,
    /** Whether it is a run that had the same key. */
    readonly deduplicated = false,
    scope: CallOptions = {},
  ) {
    this.#transport = transport;
    this.#scope = scope.tenant === undefined ? {} : { tenant: scope.tenant };
  }

  /** The run, up to 1000 of its steps from the `first` one, and how many steps are in each state. */
  read(options: { first?: number; signal?: AbortSignal } = {}): Promise<RunDetails> {
    return this.#request("GET", "", { query: { first: options.first }, signal: options.signal });
  }

  /** The run's output once it succeeded. Throws WorkflowRunFailed if it ended otherwise, ResultTimeout if it takes longer. */
  async result(options: ResultOptions = {}): Promise<Output> {
    const signal = options.signal === undefined ? {} : { signal: options.signal };
    const run = await pollUntil(async () => (await this.read(signal)).run, options);
    if (run.status === "succeeded") return run.output as Output;
    if (ENDED.has(run.status)) throw new WorkflowRunFailed(this.id, run.status, textOf(run.error));
    throw new ResultTimeout(`Run ${this.id}`, run.status, options.timeout ?? 0);
  }

  /** Cancel the run: waiting steps at once, running steps at their next heartbeat; no further step starts. */
  cancel(): Promise<RunRecord> {
    return this.#request("POST", "/cancel", { repeatable: true });
  }

  /** Retry a failed or canceled run from the steps that did not succeed. */
  retry(): Promise<RunRecord> {
    return this.#request("POST", "/retry", {});
  }

  #request<T>(method: string, path: string, options: Parameters<Transport["request"]>[2]): Promise<T> {
    return this.#transport.request<T>(method, `/workflows/runs/${encodeURIComponent(this.id)}${path}`, {
      ...this.#scope,
      ...options,
    });
  }
}

/** Look, less and less often, until the status is final or the time is over; the last look is never before that. */
async function pollUntil<T extends { status: string }>(look: () => Promise<T>, options: ResultOptions): Promise<T> {
  const deadline = performance.now() + (options.timeout ?? Number.POSITIVE_INFINITY) * 1000;
  let wait = FIRST_LOOK;
  for (;;) {
    const seen = await look();
    const left = deadline - performance.now();
    if (ENDED.has(seen.status) || left <= 0) return seen;
    options.signal?.throwIfAborted();
    await pause(Math.min(wait, left), options.signal);
    options.signal?.throwIfAborted();
    wait = Math.min(wait * 1.5, LONGEST_LOOK);
  }
}

/** A run's error as text: the step that failed, and its message. */
function textOf(error: unknown): string | null {
  if (error === null || error === undefined) return null;
  const { step, message } = error as { step?: string; message?: string };
  return [step, message].filter(Boolean).join(": ") || JSON.stringify(error);
}
