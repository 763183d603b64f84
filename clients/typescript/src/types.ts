import type { components, operations } from "./openapi.js";

type Schemas = components["schemas"];

/** A job as the server shows it. */
export type JobRecord = Schemas["Job"];
export type JobStatus = Schemas["JobStatus"];
/** A chunk of a job's log. */
export type LogChunk = Schemas["Chunk"];
export type LogPage = Schemas["LogPage"];
export type JobPage = Schemas["JobPage"];
export type JobAttempt = Schemas["Attempt"];
/** A step or a wait of a durable function. */
export type JobStep = Schemas["JobStep"];
/** What a durable function asks people for. */
export type Approval = Schemas["Approval"];
export type ApprovalPage = Schemas["Listing_Approval"];
export type ApprovalQuery = NonNullable<operations["list_approvals_api_v1_approvals_get"]["parameters"]["query"]>;
export type SignalId = Schemas["SignalIdView"];
/** Filters of jobs, and the page. */
export type JobQuery = NonNullable<operations["list_jobs_api_v1_jobs_get"]["parameters"]["query"]>;
/** Options of a job: every field of `POST /jobs` except the definition and the payload. */
export type JobOptions = Omit<Schemas["JobBody"], "definition_key" | "payload">;
/** A job of `enqueueMany`. */
export type NewJob = { definition: string; payload?: Payload } & JobOptions;
/** A JSON object. */
export type Payload = Record<string, unknown>;

export type JobAnswer = Schemas["JobAnswer"];
export type BulkAnswer = Schemas["BulkAnswer"];
export type EventId = Schemas["EventIdView"];
/** A workflow to publish. */
export type WorkflowDocument = Schemas["WorkflowBody"];
export type Workflow = Schemas["PublishedWorkflow"];
export type WorkflowPage = Schemas["Listing_WorkflowSummary"];
export type StartOptions = Omit<Schemas["StartBody"], "input">;
export type StartAnswer = Schemas["StartAnswer"];
export type RunRecord = Schemas["Run"];
export type RunDetails = Schemas["RunAnswer"];
export type RunPage = Schemas["Listing_Run"];
export type RunQuery = NonNullable<operations["runs_api_v1_workflows_runs_get"]["parameters"]["query"]>;

export type ClaimedJob = Schemas["ClaimedView"];
export type ClaimRequest = Schemas["ClaimBody"];
export type ClaimAnswer =
  operations["claim_api_v1_worker_jobs_claim_post"]["responses"][200]["content"]["application/json"];
export type RenewedLease = Schemas["RenewedView"];
export type FailRequest = Omit<Schemas["FailBody"], "attempt_no" | "lease_token">;
export type CompleteRequest = Omit<Schemas["CompleteBody"], "attempt_no" | "lease_token">;
export type ReleaseRequest = Omit<Schemas["ReleaseBody"], "attempt_no" | "lease_token">;
export type NewChunk = Schemas["ChunkBody"];
export type AppendedLog = Schemas["AppendedView"];

/** Options that every request takes. */
export interface CallOptions {
  /** The tenant to act in, for a token of all tenants: its slug or id. */
  tenant?: string;
  signal?: AbortSignal;
}

/** Options of a request that creates something: with the same key it is created once, however often it is sent. */
export interface CreateOptions extends CallOptions {
  /** By default a new random key for each call, which makes the repetitions of this call safe. */
  idempotencyKey?: string;
}
