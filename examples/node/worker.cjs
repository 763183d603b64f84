// A BullMQ worker as it was before Fairlead. Used by ../bullmq_bridge.py.
const { Worker } = require('bullmq');
const Redis = require('ioredis');

const worker = new Worker(
  'org-example',
  async job => {
    if (job.data.image === 'broken.png') throw new Error('not an image');
    await job.updateProgress(50);
    return { image: job.data.image, width: job.data.width, attempt: job.opts.fairlead.attempt_no };
  },
  { connection: new Redis(process.env.REDIS_URL, { maxRetriesPerRequest: null }) },
);
worker.waitUntilReady().then(() => console.log('the worker is ready'));
