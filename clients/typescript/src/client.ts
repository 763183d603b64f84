import { randomUUID } from "node:crypto";
import { Approvals } from "./approvals.js";
import { JobHandle } from "./handles.js";
import { type Query, type RequestOptions, Transport } from "./transport.js";
import type {
  BulkAnswer,
  CallOptions,
  CreateOptions,
  EventId,
  JobAnswer,
  JobOptions,
  JobPage,
  JobQuery,
  NewJob,
  Payload,
} from "./types.js";
import { Worker, type WorkerOptions } from "./worker.js";
import { Workflows } from "./workflows.js";

export interface FairleadOptions {
  /** The server: `https://jobs.example.com`, with or without `/api/v1`. */
  url: string;
  /** A token: `fairlead tokens create`. */
  token: string;
  /** The tenant to act in, for a token of all tenants: its slug or id. */
  tenant?: string;
  /** How long one request may take; by default 30 s. */
  timeoutSeconds?: number;
  /** How long a request is repeated while the server cannot be reached; by default 30 s, 0 for never. */
  retrySeconds?: number;
}

/** Fields of `POST /events` beside the name and the data. */
export interface EventOptions extends CreateOptions {
  correlation_id?: string;
  occurred_at?: string;
  /** The job that emits the event. */
  caused_by?: string;
}

/** A Fairlead server: enqueue jobs, emit events, start workflows, run workers. */
export class Fairlead {
  readonly workflows: Workflows;
  /** What durable functions ask people for. */
  readonly approvals: Approvals;
  readonly #transport: Transport;

  constructor(options: FairleadOptions) {
    if (!options.url) throw new TypeError("url is required: the address of the Fairlead server.");
    if (!options.token) throw new TypeError("token is required: create one with `fairlead tokens create`.");
    const token = options.token.trim();
    // the error of fetch would quote the token
    if (!/^[!-~]+$/.test(token)) throw new TypeError("token must be a single word of ASCII characters, without line feeds.");
    this.#transport = new Transport({
      url: options.url,
      token,
      tenant: options.tenant,
      timeoutSeconds: options.timeoutSeconds ?? 30,
      retrySeconds: options.retrySeconds ?? 30,
    });
    this.workflows = new Workflows(this.#transport);
    this.approvals = new Approvals(this.#transport);
  }

  /** Enqueue a job. A job of the same dedupe key that is still active is returned instead. */
  async enqueue<Output = unknown>(
    definition: string,
    payload: Payload = {},
    options: JobOptions & CreateOptions = {},
  ): Promise<JobHandle<Output>> {
    const { tenant, signal, idempotencyKey = randomUUID(), ...fields } = options;
    const made = await this.#transport.request<JobAnswer>("POST", "/jobs", {
      body: { ...fields, definition_key: definition, payload },
      tenant,
      signal,
      idempotencyKey,
      repeatable: true,
    });
    return new JobHandle<Output>(this.#transport, made.id, made.deduplicated, options);
  }

  /** Enqueue up to 10,000 jobs, all or none; returned in their order. */
  async enqueueMany(jobs: readonly NewJob[], options: CreateOptions = {}): Promise<JobHandle[]> {
    if (jobs.length === 0) return [];
    const { idempotencyKey = randomUUID(), ...call } = options;
    const made = await this.#transport.request<BulkAnswer>("POST", "/jobs/bulk", {
      ...call,
      body: { jobs: jobs.map(({ definition, ...fields }) => ({ ...fields, definition_key: definition })) },
      idempotencyKey,
      repeatable: true,
    });
    return made.items.map((one) => new JobHandle(this.#transport, one.id, one.deduplicated, options));
  }

  /** The job with this id; it is not read yet. */
  job<Output = unknown>(id: string, options: { tenant?: string } = {}): JobHandle<Output> {
    return new JobHandle<Output>(this.#transport, id, false, options);
  }

  /** A page of jobs, newest first. */
  listJobs(query: JobQuery = {}, options: CallOptions = {}): Promise<JobPage> {
    return this.#transport.request("GET", "/jobs", { ...options, query: query as Query });
  }

  /** Emit an event; its triggers enqueue their jobs later. */
  emit(name: string, data: Payload = {}, options: EventOptions = {}): Promise<EventId> {
    const { tenant, signal, idempotencyKey = randomUUID(), ...fields } = options;
    return this.#transport.request("POST", "/events", {
      body: { ...fields, name, data },
      tenant,
      signal,
      idempotencyKey,
      repeatable: true,
    });
  }

  /** A worker for jobs of this server: give it handlers, then start it. It needs a token of the role `worker`. */
  worker(options: WorkerOptions = {}): Worker {
    return new Worker(this.#transport, options);
  }

  /** Any other request to the API; `path` is below `/api/v1`, such as `/hosts`. */
  request<T = unknown>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
    return this.#transport.request<T>(method, path, options);
  }
}
