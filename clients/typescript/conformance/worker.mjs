// The worker of the conformance suite: serves definitions that show what a worker over HTTP has to do.
import { existsSync, watch, writeFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Fairlead, Fatal } from "../dist/esm/index.js";

const { FAIRLEAD_URL, FAIRLEAD_TOKEN, WORKER_CONCURRENCY, WORKER_DRAIN_SECONDS } = process.env;

/** Wait until the file exists, or the signal aborts. */
async function untilExists(path, signal) {
  const watcher = watch(dirname(path), { signal, persistent: true });
  const seen = new Promise((resolve) => {
    watcher.on("change", (_, name) => name === basename(path) && existsSync(path) && resolve());
    watcher.on("close", resolve);
    watcher.on("error", resolve);
    if (existsSync(path) || signal.aborted) resolve();
  });
  await seen;
  watcher.close();
}

const worker = new Fairlead({ url: FAIRLEAD_URL, token: FAIRLEAD_TOKEN })
  .worker({
    concurrency: Number(WORKER_CONCURRENCY ?? 4),
    drainSeconds: Number(WORKER_DRAIN_SECONDS ?? 30),
    graceSeconds: 1,
  })
  .handle("conformance.echo", (job) => job.payload)
  .handle("conformance.fail", (job) => {
    throw new Error(job.payload.message);
  })
  .handle("conformance.fatal", (job) => {
    throw new Fatal(job.payload.message ?? "this cannot work");
  })
  .handle("conformance.report", async (job) => {
    job.log("one");
    await job.progress(10);
    job.log("two");
    await job.progress(50, "half");
    if (job.payload.path) await untilExists(job.payload.path, job.signal);
    return { done: true };
  })
  .handle("conformance.hold", async (job) => {
    const { path } = job.payload;
    writeFileSync(`${path}.began`, "");
    await untilExists(path, job.signal);
    if (job.signal.aborted) {
      writeFileSync(`${path}.stopped`, "");
      throw job.signal.reason;
    }
    return { held: true };
  })
  .handle("conformance.sleep", async (job) => {
    await sleep(job.payload.seconds * 1000);
  })
  .handle("conformance.snooze", (job) => {
    const { path, seconds } = job.payload;
    if (existsSync(path)) return { again: true };
    writeFileSync(path, "");
    return job.release(seconds);
  });

worker.ready.then(() => console.log("ready"));
await worker.start();
process.exit(0); // also if a handler that ignores its signal still runs
