// Adds jobs as an application does, or tells what a queue has. One argument, JSON: connection, queue, and either
// add: [[name, data, opts], …] with pause (whether to pause first) and every (a job scheduler's milliseconds), or counts: true.
import { createPostgresBackend, FlowProducer, Queue, setDefaultBackendFactory } from 'bullmq';
import { Redis } from 'ioredis';

const { connection: url, queue: name, add = [], pause = false, every, flow, counts = false } = JSON.parse(process.argv[2]);
const onPostgres = url.startsWith('postgresql');
if (onPostgres) setDefaultBackendFactory(createPostgresBackend);
const connection = onPostgres ? { connectionString: url, schema: 'bullmq', migrate: true } : new Redis(url, { maxRetriesPerRequest: null });
const queue = new Queue(name, { connection });
if (pause) await queue.pause();
await queue.addBulk(add.map(([name, data, opts]) => ({ name, data, opts })));
if (every) await queue.upsertJobScheduler('nightly', { every }, { name: 'nightly', data: {} });
if (flow) {
  const producer = new FlowProducer({ connection: onPostgres ? connection : new Redis(url, { maxRetriesPerRequest: null }) });
  await producer.add({ name: 'parent', queueName: name, data: {}, children: [{ name: 'child', queueName: name, data: {} }] });
}
if (counts) process.stdout.write(JSON.stringify({ ...(await queue.getJobCounts()), isPaused: await queue.isPaused() }));
process.exit(0);
