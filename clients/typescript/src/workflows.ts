import { randomUUID } from "node:crypto";
import { RunHandle } from "./handles.js";
import type { Query, Transport } from "./transport.js";
import type {
  CallOptions,
  CreateOptions,
  RunPage,
  RunQuery,
  StartAnswer,
  StartOptions,
  Workflow,
  WorkflowDocument,
  WorkflowPage,
} from "./types.js";

/** Workflows: publish, start and list them, and find their runs. */
export class Workflows {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Start a run of the newest version, or of `version`. With `key`, the tenant has one run with it. */
  async start<Output = unknown>(
    workflow: string,
    input: unknown = {},
    options: StartOptions & CreateOptions = {},
  ): Promise<RunHandle<Output>> {
    const { tenant, signal, idempotencyKey = randomUUID(), ...fields } = options;
    const made = await this.#transport.request<StartAnswer>("POST", `/workflows/${encodeURIComponent(workflow)}/runs`, {
      body: { ...fields, input },
      tenant,
      signal,
      idempotencyKey,
      repeatable: true,
    });
    return new RunHandle<Output>(this.#transport, made.id, made.deduplicated, options);
  }

  /** Publish a workflow; if nothing changed, its newest version is returned. */
  publish(document: WorkflowDocument, options: CreateOptions = {}): Promise<Workflow> {
    const { idempotencyKey = randomUUID(), ...call } = options;
    return this.#transport.request("POST", "/workflows", { ...call, body: document, idempotencyKey, repeatable: true });
  }

  /** A workflow: its newest version, or `version`. */
  read(workflow: string, options: CallOptions & { version?: number } = {}): Promise<Workflow> {
    const { version, ...call } = options;
    return this.#transport.request("GET", `/workflows/${encodeURIComponent(workflow)}`, { ...call, query: { version } });
  }

  /** A page of the workflows that the tenant can start. */
  list(query: { limit?: number; cursor?: string } = {}, options: CallOptions = {}): Promise<WorkflowPage> {
    return this.#transport.request("GET", "/workflows", { ...options, query });
  }

  /** A page of runs, newest first. */
  runs(query: RunQuery = {}, options: CallOptions = {}): Promise<RunPage> {
    return this.#transport.request("GET", "/workflows/runs", { ...options, query: query as Query });
  }

  /** The run with this id; it is not read yet. */
  run<Output = unknown>(id: string, options: { tenant?: string } = {}): RunHandle<Output> {
    return new RunHandle<Output>(this.#transport, id, false, options);
  }
}
