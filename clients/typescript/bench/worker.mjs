// The worker of `fairlead bench http`: serves the definitions of src/fairlead/bench/app.py that the workload uses.
import { Fairlead } from "../dist/esm/index.js";

const { FAIRLEAD_URL, FAIRLEAD_TOKEN, WORKER_CONCURRENCY } = process.env;

await new Fairlead({ url: FAIRLEAD_URL, token: FAIRLEAD_TOKEN })
  .worker({ concurrency: Number(WORKER_CONCURRENCY), drainSeconds: 5 })
  .handle("noop", () => undefined)
  .handle("stamp", () => Date.now() / 1000)
  .start();
