// A worker and a client in one program: see ../typescript.py. Your own program imports from "fairlead".
import { Fairlead, Fatal, JobFailed } from "../../clients/typescript/dist/esm/index.js";

const { FAIRLEAD_URL: url, APPLICATION_TOKEN, WORKER_TOKEN } = process.env;
const app = new Fairlead({ url, token: APPLICATION_TOKEN });

const worker = new Fairlead({ url, token: WORKER_TOKEN })
  .worker({ concurrency: 20 })
  .handle("example.resize", async (job) => {
    if (!job.payload.image) throw new Fatal("there is no image");
    job.log(`resizing ${job.payload.image}`);
    await job.progress(50, "half");
    return { resized: job.payload.image, tenant: job.tenant };
  });
const stopped = worker.start();

const job = await app.enqueue("example.resize", { image: "cat.png" });
console.log(await job.result({ timeout: 60 }));
for await (const chunk of job.logs()) console.log(`log: ${chunk.text.trimEnd()}`);

const jobs = ["a", "b", "c"].map((name) => ({ definition: "example.resize", payload: { image: `${name}.png` } }));
const made = await app.enqueueMany(jobs);
const results = await Promise.all(made.map((one) => one.result()));
console.log(results.map((one) => one.resized).join(", "));

try {
  await (await app.enqueue("example.resize", {})).result();
} catch (error) {
  if (!(error instanceof JobFailed)) throw error;
  console.log(`${error.jobStatus}: ${error.lastError}`);
}
try {
  await app.enqueue("example.rezise");
} catch (error) {
  console.log(`refused with ${error.code}`);
}
await worker.stop();
await stopped;
