export { type AnswerOptions, Approvals } from "./approvals.js";
export { Fairlead, type EventOptions, type FairleadOptions } from "./client.js";
export type { KnownCode } from "./codes.js";
export {
  AccessDenied,
  Conflict,
  ConnectionFailed,
  type ErrorCode,
  FairleadError,
  Fatal,
  type Fault,
  InvalidRequest,
  JobFailed,
  LeaseLost,
  LimitReached,
  NotFound,
  ResultTimeout,
  ServerFailed,
  Snooze,
  WorkflowRunFailed,
} from "./errors.js";
export { JobHandle, type LogOptions, type ResultOptions, RunHandle } from "./handles.js";
export { type Handler, type Job, type LogStream, type StopReason, Stopped } from "./job.js";
export type { components, operations, paths } from "./openapi.js";
export type { RequestOptions } from "./transport.js";
export type {
  Approval,
  ApprovalPage,
  ApprovalQuery,
  CallOptions,
  CreateOptions,
  JobAttempt,
  JobOptions,
  JobPage,
  JobQuery,
  JobRecord,
  JobStatus,
  JobStep,
  LogChunk,
  NewJob,
  Payload,
  RunDetails,
  RunRecord,
  SignalId,
  StartOptions,
  Workflow,
  WorkflowDocument,
} from "./types.js";
export { Worker, type WorkerOptions } from "./worker.js";
export { Workflows } from "./workflows.js";
