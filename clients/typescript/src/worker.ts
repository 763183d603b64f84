import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { Attempt } from "./attempt.js";
import { FairleadError } from "./errors.js";
import type { Handler } from "./job.js";
import { Lease, isPassing } from "./lease.js";
import { Backoff, pause } from "./pause.js";
import { RequestLimit } from "./request-limit.js";
import type { Transport } from "./transport.js";
import type { ClaimAnswer, ClaimRequest, ClaimedJob, Payload } from "./types.js";

const MOST_JOBS = 1000;
const MOST_SLOTS = 10_000;
const MOST_REQUESTS = 16;
/** How much longer than its wait a claim may take. */
const ANSWER_SECONDS = 15;
/** How long the last reports may take once the worker has to stop. */
const LAST_REPORT_SECONDS = 5;

export interface WorkerOptions {
  /** How many slots the worker has; by default 10. A job takes one, unless its definition says otherwise. */
  concurrency?: number;
  /** The worker's labels, such as `{ gpu: "true" }`, which definitions may require or prefer. */
  labels?: Readonly<Record<string, string>>;
  /** The worker's name, different in each process; by default made of the host's name, the process id and a random part. */
  workerId?: string;
  /** Your program's version, for the list of workers. */
  version?: string;
  /** How long running jobs may go on after `stop`, before they are released; by default 30. */
  drainSeconds?: number;
  /** How long a handler may take to return after its signal aborted, before the attempt ends without it; by default 5. */
  graceSeconds?: number;
  /** How long one claim waits for a job, 0 to 30; by default 25. */
  waitSeconds?: number;
  /** Signals that stop the worker; by default SIGTERM and SIGINT. A second one ends the drain. */
  stopSignals?: readonly NodeJS.Signals[];
  /** Told about outages, lost leases and refused reports; by default they are printed on stderr. */
  onError?: (error: unknown, jobId?: string) => void;
}

/** Claims jobs over HTTP and runs them with its handlers, several at a time. */
export class Worker {
  readonly id: string;
  /** Resolves once the server has answered the first claim. */
  readonly ready: Promise<void>;
  readonly #transport: Transport;
  readonly #options: Required<Omit<WorkerOptions, "workerId" | "version">> & { version: string | undefined };
  readonly #handlers = new Map<string, Handler>();
  readonly #attempts = new Map<Attempt, Promise<void>>();
  readonly #limit = new RequestLimit(MOST_REQUESTS);
  readonly #stopping = new AbortController();
  readonly #drained = new AbortController();
  #busy = 0;
  #claimId: string = randomUUID();
  #isClaimOpen = false;
  /** Whether the last claim failed: an outage is told once. */
  #isOut = false;
  #setReady: () => void = () => undefined;
  #wake: () => void = () => undefined;
  #running: Promise<void> | undefined;

  constructor(transport: Transport, options: WorkerOptions) {
    this.#transport = transport;
    this.id = options.workerId ?? `${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`;
    this.ready = new Promise((resolve) => {
      this.#setReady = resolve;
    });
    this.#options = {
      concurrency: options.concurrency ?? 10,
      labels: options.labels ?? {},
      version: options.version,
      drainSeconds: options.drainSeconds ?? 30,
      graceSeconds: options.graceSeconds ?? 5,
      waitSeconds: options.waitSeconds ?? 25,
      stopSignals: options.stopSignals ?? ["SIGTERM", "SIGINT"],
      onError: options.onError ?? printError,
    };
    if (!Number.isInteger(this.#options.concurrency) || this.#options.concurrency < 1) {
      throw new RangeError(`concurrency must be an integer of 1 or more, not ${this.#options.concurrency}.`);
    }
  }

  /** Run jobs of this definition with this handler. */
  handle<P = Payload, Output = unknown>(definition: string, handler: Handler<P, Output>): this {
    if (this.#running) throw new Error("The worker has started: add handlers before.");
    if (this.#handlers.has(definition)) throw new Error(`There is a handler for ${definition} already.`);
    this.#handlers.set(definition, handler as Handler);
    return this;
  }

  /** Claim and run jobs until the worker is stopped. Rejects if the server refuses it, for instance its token. */
  start(): Promise<void> {
    if (this.#handlers.size === 0) throw new Error("The worker has no handlers: add one with handle().");
    this.#running ??= this.#run();
    return this.#running;
  }

  /** Claim nothing more, let running jobs end for `drainSeconds`, release the rest. Called again, it releases them now. */
  async stop(): Promise<void> {
    if (this.#stopping.signal.aborted) this.#drained.abort();
    this.#stopping.abort();
    this.#wake();
    await this.#running;
  }

  async #run(): Promise<void> {
    const onSignal = () => void this.stop().catch(() => undefined); // start() rejects with the same error
    for (const name of this.#options.stopSignals) process.on(name, onSignal);
    try {
      await this.#claimUntilStopped();
    } catch (error) {
      this.#drained.abort();
      throw error;
    } finally {
      this.#stopping.abort();
      await this.#drain();
      for (const name of this.#options.stopSignals) process.off(name, onSignal);
    }
  }

  async #claimUntilStopped(): Promise<void> {
    const backoff = new Backoff();
    let wait = 0; // the first answer shows at once that the server accepts this worker
    while (!this.#stopping.signal.aborted) {
      const limit = this.#room();
      if (limit <= 0) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
        continue;
      }
      const asked = performance.now();
      try {
        const claimed = await this.#claim(limit, wait);
        this.#setReady();
        this.#isOut = false;
        const isEmptyEarly = claimed.length === 0 && performance.now() - asked < wait * 100;
        if (isEmptyEarly) await pause(backoff.next(), this.#stopping.signal);
        else backoff.reset();
        wait = this.#options.waitSeconds;
        for (const job of claimed) this.#begin(job);
      } catch (error) {
        if (!this.#stopping.signal.aborted) await this.#waitAfter(error, backoff);
      }
    }
    await this.#releaseUnanswered();
  }

  /** For how many slots to claim jobs now. Handlers count, and reports that are not answered yet: no more of them than handlers. */
  #room(): number {
    const { concurrency } = this.#options;
    return Math.min(concurrency - this.#busy, 2 * concurrency - this.#attempts.size, MOST_JOBS);
  }

  async #claim(limit: number, wait: number, signal: AbortSignal | undefined = this.#stopping.signal): Promise<ClaimedJob[]> {
    const body: ClaimRequest = {
      definitions: [...this.#handlers.keys()],
      worker_id: this.id,
      claim_id: this.#claimId,
      limit,
      slots: Math.min(this.#options.concurrency, MOST_SLOTS),
      labels: this.#options.labels,
      wait,
      ...(this.#options.version === undefined ? {} : { version: this.#options.version }),
    };
    this.#isClaimOpen = true;
    const timeoutSeconds = wait + ANSWER_SECONDS;
    const answer = await this.#transport.send<ClaimAnswer>("POST", "/worker/jobs/claim", { body, signal, timeoutSeconds });
    this.#isClaimOpen = false;
    if (answer.items.length > 0) this.#claimId = randomUUID();
    return answer.items;
  }

  /** Wait after a failed claim. The next one repeats its id, so that jobs of a lost answer arrive with it. */
  async #waitAfter(error: unknown, backoff: Backoff): Promise<void> {
    if (error instanceof FairleadError && error.code === "claim_settled") {
      this.#claimId = randomUUID();
      return;
    }
    if (!isPassing(error)) throw error;
    if (!this.#isOut) this.#options.onError(error);
    this.#isOut = true;
    await pause(backoff.next((error as FairleadError).retryAfter), this.#stopping.signal);
  }

  /** Ask for the answer of a claim that `stop` aborted, and release its jobs: their leases would otherwise have to end. */
  async #releaseUnanswered(): Promise<void> {
    if (!this.#isClaimOpen) return;
    try {
      const signal = AbortSignal.timeout(LAST_REPORT_SECONDS * 1000);
      const claimed = await this.#claim(1, 0, signal);
      await Promise.all(claimed.map((job) => this.#leaseOf(job).report("release", {})));
    } catch (error) {
      this.#options.onError(error);
    }
  }

  #leaseOf(job: ClaimedJob): Lease {
    return new Lease(this.#transport, this.#limit, job);
  }

  #begin(job: ClaimedJob): void {
    const attempt = new Attempt(job, this.#leaseOf(job), this.#options);
    const handler = this.#handlers.get(job.definition_key) as Handler;
    const slots = Math.min(job.slots, this.#options.concurrency);
    this.#busy += slots;
    const done = attempt.run(handler, () => {
      this.#busy -= slots;
      this.#wake();
    });
    this.#attempts.set(
      attempt,
      done.finally(() => {
        this.#attempts.delete(attempt);
        this.#wake();
      }),
    );
  }

  async #drain(): Promise<void> {
    await this.#untilIdle(this.#options.drainSeconds, this.#drained.signal);
    for (const attempt of this.#attempts.keys()) attempt.stop("stopping");
    await this.#untilIdle(this.#options.graceSeconds + LAST_REPORT_SECONDS);
    for (const attempt of this.#attempts.keys()) attempt.giveUp();
  }

  /** Wait until no attempt is left, for some seconds at most. */
  async #untilIdle(seconds: number, signal?: AbortSignal): Promise<void> {
    if (this.#attempts.size === 0) return;
    const isIdle = new AbortController();
    void Promise.allSettled(this.#attempts.values()).then(() => isIdle.abort());
    const end = () => isIdle.abort();
    signal?.addEventListener("abort", end, { once: true });
    if (signal?.aborted) end();
    await pause(seconds * 1000, isIdle.signal);
    signal?.removeEventListener("abort", end);
  }
}

function printError(error: unknown, jobId?: string): void {
  const text = error instanceof FairleadError ? `${error.code}: ${error.detail}` : String(error);
  console.error(`fairlead worker: ${jobId === undefined ? "" : `job ${jobId}: `}${text}`);
}
