import type { Query, Transport } from "./transport.js";
import type { Approval, ApprovalPage, ApprovalQuery, CallOptions, Payload } from "./types.js";

/** The answer to an approval. */
export interface AnswerOptions extends CallOptions {
  comment?: string;
}

/** Approvals: what durable functions ask people for. */
export class Approvals {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** A page of approvals, newest first: the open ones, or those of another status. */
  list(query: ApprovalQuery = {}, options: CallOptions = {}): Promise<ApprovalPage> {
    return this.#transport.request("GET", "/approvals", { ...options, query: query as Query });
  }

  /** An approval with its form, and the answer if there is one. */
  read(id: string, options: CallOptions = {}): Promise<Approval> {
    return this.#transport.request("GET", `/approvals/${encodeURIComponent(id)}`, options);
  }

  /** Approve, with the values of the form: the function goes on. */
  approve(id: string, values: Payload | null = null, options: AnswerOptions = {}): Promise<Approval> {
    return this.#answer(id, "approve", values, options);
  }

  /** Reject: the function goes on, and gets the answer. */
  reject(id: string, values: Payload | null = null, options: AnswerOptions = {}): Promise<Approval> {
    return this.#answer(id, "reject", values, options);
  }

  #answer(id: string, how: string, values: Payload | null, options: AnswerOptions): Promise<Approval> {
    const { comment = null, ...call } = options;
    return this.#transport.request("POST", `/approvals/${encodeURIComponent(id)}/${how}`, {
      ...call,
      body: { values, comment },
    });
  }
}
