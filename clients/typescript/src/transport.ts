import { ConnectionFailed, FairleadError, errorOf } from "./errors.js";
import { Backoff, after, pause } from "./pause.js";

const PREFIX = "/api/v1";

/** Statuses of servers and proxies that did not carry the request out, or will give the same answer to a repetition. */
const REPEATABLE = new Set([502, 503, 504]);

export type Query = Record<string, string | number | boolean | readonly string[] | null | undefined>;

export interface RequestOptions {
  body?: unknown;
  query?: Query | undefined;
  /** The tenant to act in, for a token of all tenants: its slug or id. */
  tenant?: string | undefined;
  idempotencyKey?: string | undefined;
  signal?: AbortSignal | undefined;
  timeoutSeconds?: number | undefined;
  /** Whether a repetition changes nothing, so that a lost answer may be repaired with one. */
  repeatable?: boolean;
}

export interface TransportOptions {
  url: string;
  token: string;
  tenant?: string | undefined;
  timeoutSeconds: number;
  retrySeconds: number;
}

/** Sends requests to one server, and reads its answers and problems. */
export class Transport {
  readonly #base: string;
  readonly #token: string;
  readonly #options: TransportOptions;

  constructor(options: TransportOptions) {
    this.#base = baseOf(options.url);
    this.#token = options.token;
    this.#options = options;
  }

  /** Send a request; if it is repeatable, send it again while the server cannot be reached or is unavailable. */
  async request<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
    const deadline = performance.now() + this.#options.retrySeconds * 1000;
    const backoff = new Backoff();
    for (;;) {
      try {
        return await this.send<T>(method, path, options);
      } catch (error) {
        const wait = backoff.next(error instanceof FairleadError ? error.retryAfter : undefined);
        const isOver = options.signal?.aborted || performance.now() + wait > deadline;
        if (isOver || !mayRepeat(error, options.repeatable ?? method === "GET")) throw error;
        await pause(wait, options.signal);
      }
    }
  }

  /** Send a request once. */
  async send<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
    const seconds = options.timeoutSeconds ?? this.#options.timeoutSeconds;
    const address = this.#address(path, options.query);
    const body = options.body === undefined ? null : JSON.stringify(options.body);
    const controller = new AbortController();
    const abort = () => controller.abort();
    if (options.signal?.aborted) abort();
    options.signal?.addEventListener("abort", abort, { once: true });
    const cancel = after(seconds * 1000, abort);
    try {
      const response = await fetch(address, {
        method,
        headers: this.#headers(options),
        body,
        redirect: "error",
        signal: controller.signal,
      });
      return readAnswer<T>(response, await response.text());
    } catch (error) {
      if (error instanceof FairleadError) throw error;
      if (options.signal?.aborted) throw new ConnectionFailed("The request was aborted.", error);
      const why = controller.signal.aborted ? `no answer within ${seconds} s` : reasonOf(error);
      throw new ConnectionFailed(`${method} ${this.#base}${path} failed: ${why}`, error);
    } finally {
      cancel();
      options.signal?.removeEventListener("abort", abort);
    }
  }

  #address(path: string, query: Query | undefined): string {
    // an id such as .. would lead to another route
    if (/(^|\/)\.\.?(\/|$)/.test(path)) throw new TypeError(`${path} is no path: an id, key or name must not be . or ..`);
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(query ?? {})) {
      if (value === undefined || value === null) continue;
      for (const one of Array.isArray(value) ? value : [value]) parameters.append(name, String(one));
    }
    const text = parameters.toString();
    return this.#base + path + (text && `?${text}`);
  }

  #headers(options: RequestOptions): Record<string, string> {
    const headers: Record<string, string> = { Authorization: `Bearer ${this.#token}` };
    if (options.body !== undefined) headers["Content-Type"] = "application/json";
    if (options.idempotencyKey !== undefined) headers["Idempotency-Key"] = options.idempotencyKey;
    const tenant = options.tenant ?? this.#options.tenant;
    if (tenant !== undefined) headers["X-Tenant"] = tenant;
    return headers;
  }
}

/** The address of the API: a server's own address is completed. */
function baseOf(url: string): string {
  const address = new URL(url);
  if (address.protocol !== "http:" && address.protocol !== "https:") {
    throw new TypeError(`url must begin with http:// or https://, not ${address.protocol}`);
  }
  if (address.username || address.password) throw new TypeError("url must not contain a user or a password: give token.");
  const path = address.pathname.replace(/\/+$/, "");
  return address.origin + (path.endsWith(PREFIX) ? path : path + PREFIX);
}

function mayRepeat(error: unknown, isRepeatable: boolean): boolean {
  if (error instanceof ConnectionFailed) return isRepeatable || wasNeverSent(error);
  return error instanceof FairleadError && isRepeatable && REPEATABLE.has(error.status);
}

/** Nothing listened at the address: the request cannot have been carried out. */
function wasNeverSent(error: ConnectionFailed): boolean {
  const code = codeOf(error.cause);
  return code === "ECONNREFUSED" || code === "ENOTFOUND" || code === "EAI_AGAIN";
}

/** The system's code of a failed fetch, which is in the cause of its error. */
function codeOf(error: unknown): string | undefined {
  const cause = (error as { cause?: { code?: string } } | undefined)?.cause;
  return cause?.code ?? (error as { code?: string } | undefined)?.code;
}

function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  if (!(cause instanceof Error)) return String(cause);
  return cause.message || codeOf(error) || cause.name;
}

function readAnswer<T>(response: Response, text: string): T {
  let document: unknown;
  try {
    document = text === "" ? undefined : JSON.parse(text);
  } catch (error) {
    if (response.ok) throw invalidAnswer(response.status, error);
  }
  if (response.ok) return document as T;
  const problem = (document ?? {}) as { code?: string; detail?: string; errors?: { path: string; message: string }[] };
  throw errorOf({
    status: response.status,
    code: problem.code ?? `http_${response.status}`,
    detail: problem.detail ?? `The server answered with status ${response.status}.`,
    errors: problem.errors ?? [],
    retryAfter: readSeconds(response.headers.get("Retry-After")),
  });
}

function invalidAnswer(status: number, cause: unknown): FairleadError {
  const detail = "The answer is not JSON. Does url lead to a Fairlead server?";
  return new FairleadError({ code: "response_invalid", status, detail, cause });
}

function readSeconds(header: string | null): number | undefined {
  const seconds = Number(header ?? Number.NaN);
  return Number.isFinite(seconds) && seconds >= 0 ? seconds : undefined;
}
