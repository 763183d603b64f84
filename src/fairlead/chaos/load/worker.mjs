// The worker in TypeScript of a chaos run: it records its attempts and ends them as their payloads say.
// node worker.mjs <URL of the client's module>, with FAIRLEAD_URL, FAIRLEAD_TOKEN and FAIRLEAD_CHAOS_HISTORY set.
import { closeSync, openSync, writeSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const { Fairlead, Snooze } = await import(process.argv[2]);
const { FAIRLEAD_URL, FAIRLEAD_TOKEN, FAIRLEAD_CHAOS_HISTORY, WORKER_CONCURRENCY } = process.env;
const SNOOZE_SECONDS = 0.2;
const REPORTED_SECONDS = 0.2;

const file = openSync(join(FAIRLEAD_CHAOS_HISTORY, `typescript-${process.pid}.history`), "a", 0o644);

/** Append a record as Python's HistoryWriter does. The clock is CLOCK_MONOTONIC, as that of time.monotonic(). */
function record(type, job, fields) {
  const at = Number(process.hrtime.bigint()) / 1e9;
  writeSync(file, `${JSON.stringify({ type, at, job_id: job.id, attempt_no: job.attemptNo, ...fields })}\n`);
}

async function attempt(job) {
  const { seconds = 0, fail = 0, snooze = 0 } = job.payload;
  if (seconds >= REPORTED_SECONDS) {
    job.log(`attempt ${job.attemptNo}`);
    await job.progress(50, `attempt ${job.attemptNo}`);
  }
  await sleep(seconds * 1000, undefined, { signal: job.signal });
  if (job.attemptNo <= snooze) job.release(SNOOZE_SECONDS);
  if (job.attemptNo <= snooze + fail) throw new Error(`attempt ${job.attemptNo} fails as planned`);
  return { attempt: job.attemptNo };
}

function outcomeOf(error, job) {
  if (error instanceof Snooze) return "snoozed";
  return job.signal.aborted ? "canceled" : "failed";
}

async function handle(job) {
  record("start", job, { definition: job.definition, pid: process.pid });
  try {
    const output = await attempt(job);
    record("end", job, { outcome: "succeeded" });
    return output;
  } catch (error) {
    record("end", job, { outcome: outcomeOf(error, job) });
    throw job.signal.aborted ? job.signal.reason : error;
  }
}

const worker = new Fairlead({ url: FAIRLEAD_URL, token: FAIRLEAD_TOKEN })
  .worker({ concurrency: Number(WORKER_CONCURRENCY ?? 10), drainSeconds: 2, graceSeconds: 1 })
  .handle("chaos.typescript", handle);

worker.ready.then(() => console.log("ready"));
await worker.start();
closeSync(file);
process.exit(0);
