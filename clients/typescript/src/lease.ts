import { ConnectionFailed, FairleadError, LeaseLost } from "./errors.js";
import { Backoff, pause } from "./pause.js";
import type { RequestLimit } from "./request-limit.js";
import type { Transport } from "./transport.js";
import type { ClaimedJob, RenewedLease } from "./types.js";

const LONGEST_REQUEST_SECONDS = 15;
const LONGEST_PAUSE = 2000;

/** Whether a request may succeed when it is repeated: no answer, or one of a server that is in trouble. */
export function isPassing(error: unknown): boolean {
  if (error instanceof ConnectionFailed) return true;
  return error instanceof FairleadError && (error.status >= 500 || error.status === 429 || error.status === 408);
}

/** The lease of one attempt: every report names it, so that a worker that lost it changes nothing. */
export class Lease {
  readonly #transport: Transport;
  readonly #limit: RequestLimit;
  readonly #path: string;
  readonly #names: { attempt_no: number; lease_token: string };
  readonly #given = new AbortController();
  #seconds: number;
  #until: number;

  constructor(transport: Transport, limit: RequestLimit, claimed: ClaimedJob) {
    this.#transport = transport;
    this.#limit = limit;
    this.#path = `/worker/jobs/${claimed.job_id}`;
    this.#names = { attempt_no: claimed.attempt_no, lease_token: claimed.lease_token };
    this.#seconds = claimed.lease_seconds;
    this.#until = performance.now() + claimed.lease_seconds * 1000;
  }

  /** Milliseconds after which to renew it. */
  get renewAfter(): number {
    return (this.#seconds * 1000) / 3;
  }

  /** Whether it has ended by this worker's clock. */
  get isOver(): boolean {
    return performance.now() >= this.#until;
  }

  /** Send no more reports: a request that waits or is repeated fails. */
  giveUp(): void {
    this.#given.abort();
  }

  /** Renew the lease; counted from before the request. */
  async renew(): Promise<RenewedLease> {
    const asked = performance.now();
    const renewed = await this.#send<RenewedLease>("heartbeat", {});
    this.#seconds = renewed.lease_seconds;
    this.#until = Math.max(this.#until, asked + renewed.lease_seconds * 1000);
    return renewed;
  }

  /** Send a report, again and again until it is answered or the lease has ended. */
  async report<T>(what: string, body: object): Promise<T> {
    const backoff = new Backoff(100, LONGEST_PAUSE);
    for (;;) {
      try {
        return await this.#send<T>(what, body);
      } catch (error) {
        if (!isPassing(error) || this.#given.signal.aborted) throw error;
        const wait = backoff.next(error instanceof FairleadError ? error.retryAfter : undefined);
        if (performance.now() + wait >= this.#until) throw error;
        await pause(wait, this.#given.signal);
      }
    }
  }

  #send<T>(what: string, body: object): Promise<T> {
    return this.#limit.run(() => {
      const left = (this.#until - performance.now()) / 1000;
      if (left <= 0) {
        throw new LeaseLost({ code: "lease_lost", detail: "The lease ended before the server could be reached." });
      }
      return this.#transport.send<T>("POST", `${this.#path}/${what}`, {
        body: { ...this.#names, ...body },
        timeoutSeconds: Math.min(left, LONGEST_REQUEST_SECONDS),
        signal: this.#given.signal,
      });
    });
  }
}
