/** The longest delay that a timer of Node accepts, in milliseconds. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** Call the function after some milliseconds; returns a function that prevents this. */
export function after(milliseconds: number, call: () => void): () => void {
  const timer = setTimeout(call, Math.min(Math.max(milliseconds, 0), LONGEST_TIMER));
  return () => clearTimeout(timer);
}

/** Wait some milliseconds, or until the signal aborts. */
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = () => {
      cancel();
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const cancel = after(milliseconds, end);
    signal?.addEventListener("abort", end, { once: true });
  });
}

/** Pauses between repetitions in milliseconds: they double up to a maximum, each at random within its upper half. */
export class Backoff {
  #next: number;

  constructor(
    private readonly first = 100,
    private readonly longest = 5000,
  ) {
    this.#next = first;
  }

  /** The next pause; at least as long as the server asks for. */
  next(retryAfterSeconds = 0): number {
    const step = this.#next;
    this.#next = Math.min(step * 2, this.longest);
    return Math.max(step * (0.5 + Math.random() / 2), retryAfterSeconds * 1000);
  }

  reset(): void {
    this.#next = this.first;
  }
}
