// A BullMQ worker as teams have them: it knows nothing of Fairlead, except where `listens` is set.
//
// Its one argument is JSON: connection (a URL), queues, concurrency, file (it appends a line when a job begins and
// when it ends), lockDuration and stalledInterval in milliseconds, listens (to the event that cancels a job).
import { appendFileSync, existsSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import { createPostgresBackend, QueueEvents, setDefaultBackendFactory, UnrecoverableError, Worker } from 'bullmq';
import { Redis } from 'ioredis';

const { connection: url, queues, concurrency = 10, file, lockDuration = 30000, stalledInterval = 30000, listens = false } =
  JSON.parse(process.argv[2]);

const onPostgres = url.startsWith('postgresql');
if (onPostgres) setDefaultBackendFactory(createPostgresBackend);
const connect = () =>
  onPostgres ? { connectionString: url, schema: 'bullmq', migrate: true } : new Redis(url, { maxRetriesPerRequest: null, retryStrategy: () => 100 });

const note = (what, job, queue) =>
  appendFileSync(file, JSON.stringify({ what, id: job.id, queue, pid: process.pid, at: Date.now(), name: job.name, data: job.data, started: job.attemptsStarted, ids: job.opts.fairlead }) + '\n');

const DOES = {
  async echo(data) {
    if (data.ms) await wait(data.ms);
    return { echo: data.value ?? null };
  },
  async sleep(data, job, signal) {
    await wait(data.ms, undefined, { signal });
    return 'slept';
  },
  async waitForFile(data) {
    while (!existsSync(data.path)) await wait(20);
    return 'it is there';
  },
  async progress(data, job) {
    await job.updateProgress(25);
    await job.log('a line of its log');
    await job.updateProgress({ percent: 75, message: 'nearly' });
    if (data.path) await DOES.waitForFile(data);
    await wait(data.ms ?? 0);
    return 'done';
  },
  async fail(data) {
    throw new TypeError(data.message ?? 'it broke');
  },
  async failFirst(data, job) {
    if (job.opts.fairlead.attempt_no === 1) throw new RangeError('not the first time');
    return job.opts.fairlead.attempt_no;
  },
  async failForGood() {
    throw new UnrecoverableError('never again');
  },
  async hangFirst(data, job) {
    if (job.attemptsStarted === 1) await wait(600000);
    return job.attemptsStarted;
  },
};

const processor = queue => async (job, token, signal) => {
  note('begin', job, queue);
  try {
    return await (DOES[job.data?.do] ?? DOES.echo)(job.data ?? {}, job, signal);
  } finally {
    note('end', job, queue);
  }
};

const workers = queues.map(
  queue => new Worker(queue, processor(queue), { connection: connect(), concurrency, lockDuration, stalledInterval, drainDelay: 1 }),
);
for (const worker of workers) worker.on('error', () => {});
if (listens) {
  for (const worker of workers) {
    const events = new QueueEvents(worker.name, { connection: connect() });
    events.on('fairlead:cancel', ({ jobId }) => worker.cancelJob(jobId, 'canceled by Fairlead'));
    events.on('error', () => {});
    await events.waitUntilReady();
  }
}
await Promise.all(workers.map(worker => worker.waitUntilReady()));
process.stdout.write('ready\n');
