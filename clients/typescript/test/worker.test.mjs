import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { AccessDenied, Fairlead, Fatal, LeaseLost, Snooze, Stopped } from "../dist/esm/index.js";
import { SECONDS, admin, define, faultyWay, gate, operator, reaches, startWorker, tokens, until, url } from "./lib/world.mjs";

/** The log of a job as one text. */
async function logOf(job) {
  const texts = [];
  for await (const chunk of job.logs()) texts.push(chunk.text);
  return texts.join("");
}

describe("a worker", { concurrency: true }, () => {
  it("runs jobs and reports output, progress and log", async (t) => {
    const key = await define();
    const seen = [];
    startWorker(t, {
      [key]: async (job) => {
        const { id, payload, tenant, attemptNo, maxAttempts, correlationId, definition } = job;
        seen.push({ id, payload, tenant, attemptNo, maxAttempts, correlationId, definition });
        job.log("one");
        await job.progress(40, "nearly half");
        job.log("two\n", "stderr");
        job.log(`three ${"\u{1f600}".repeat(40_000)} \ud800`);
        return { shown: payload.n };
      },
    });
    const job = await operator.enqueue(key, { n: 7 }, { correlation_id: "c", max_attempts: 4 });
    assert.deepEqual(await job.result({ timeout: SECONDS }), { shown: 7 });
    const expected = { id: job.id, payload: { n: 7 }, tenant: "acme", attemptNo: 1, maxAttempts: 4, correlationId: "c", definition: key };
    assert.deepEqual(seen, [expected]);
    assert.deepEqual((await job.read()).progress, { percent: 40, message: "nearly half" });
    assert.equal(await logOf(job), `one\ntwo\nthree ${"\u{1f600}".repeat(40_000)} \ufffd\n`);
  });

  it("retries an error, but not a Fatal, and charges no attempt for a Snooze", async (t) => {
    const backoff = { base_seconds: 0.1, jitter: 0 };
    const key = await define({ max_attempts: 2, backoff });
    const calls = {};
    startWorker(t, {
      [key]: ({ payload, attemptNo, release }) => {
        calls[payload.how] = (calls[payload.how] ?? 0) + 1;
        if (payload.how === "fatal") throw new Fatal("no such customer");
        if (payload.how === "string") throw "just a text";
        if (payload.how === "snooze" && calls.snooze === 1) throw new Snooze(0.05);
        if (payload.how === "release" && calls.release === 1) release(0.05);
        if (payload.how === "error") throw new TypeError(`attempt ${attemptNo} broke`);
        return calls[payload.how];
      },
    });
    const [error, fatal, snooze, release, text] = await operator.enqueueMany(
      ["error", "fatal", "snooze", "release", "string"].map((how) => ({ definition: key, payload: { how } })),
    );
    const dead = await reaches(error, "dead_letter");
    assert.match(dead.last_error, /TypeError: attempt 2 broke/);
    assert.match((await error.attempts())[0].error_text, /TypeError: attempt 1 broke/);
    assert.match((await reaches(fatal, "failed")).last_error, /Fatal: no such customer/);
    assert.match((await reaches(text, "dead_letter")).last_error, /just a text/);
    assert.deepEqual(await Promise.all([snooze.result(), release.result()]), [2, 2]);
    assert.deepEqual(calls, { error: 2, fatal: 1, snooze: 2, release: 2, string: 2 });
  });

  it("fails an attempt whose output cannot be stored, without another one", async (t) => {
    const key = await define({ max_attempts: 3 });
    startWorker(t, { [key]: ({ payload }) => (payload.big ? "x".repeat(1_100_000) : { n: 1n }) });
    const [big, strange] = await operator.enqueueMany([true, false].map((big) => ({ definition: key, payload: { big } })));
    assert.match((await reaches(big, "failed")).last_error, /refused the output/);
    assert.match((await reaches(strange, "failed")).last_error, /The output is not JSON/);
  });

  it("aborts the signal of a canceled job, and the job is canceled", async (t) => {
    const key = await define();
    const began = gate();
    const reasons = [];
    startWorker(t, {
      [key]: async (job) => {
        began.open();
        await sleep(60_000, undefined, { signal: job.signal }).catch(() => reasons.push(job.signal.reason));
        await assert.rejects(job.progress(1), Stopped);
        return "not what counts";
      },
    });
    const job = await operator.enqueue(key);
    await began.opened;
    await job.cancel();
    await reaches(job, "canceled");
    assert.deepEqual([reasons[0].reason, reasons[0] instanceof Stopped], ["canceled", true]);
  });

  it("ends an attempt that reaches its timeout, also if its handler ignores the signal", async (t) => {
    const key = await define({ timeout_seconds: 1, max_attempts: 1 });
    const held = gate();
    t.after(held.open);
    startWorker(t, { [key]: () => held.opened }, { drainSeconds: 0 });
    const job = await operator.enqueue(key);
    await assert.rejects(job.result({ timeout: SECONDS }), /Timeout: the attempt took longer than 1 s/);
    assert.equal((await job.attempts())[0].status, "timeout");
  });

  it("renews its lease while a handler works", async (t) => {
    const key = await define();
    const renewed = gate();
    startWorker(t, { [key]: () => renewed.opened });
    const job = await operator.enqueue(key);
    const leaseEnd = async () => Date.parse((await job.read()).lease_expires_at);
    const first = await until(leaseEnd, "the lease");
    await until(async () => (await leaseEnd()) > first, "its renewal");
    renewed.open();
    await job.result({ timeout: SECONDS });
    assert.equal((await job.read()).attempt_count, 1);
  });

  it("gets the jobs of a lost claim, and repeats a lost report", async (t) => {
    const key = await define();
    const lost = new Set();
    const way = await faultyWay(t, ({ path, body }) => {
      const what = path.split("/").at(-1);
      if (lost.has(what) || (what === "claim" && lost.size === 0 && body.limit < 1)) return undefined;
      lost.add(what);
      return "lose";
    });
    const job = await operator.enqueue(key);
    let runs = 0;
    startWorker(
      t,
      {
        [key]: async (job) => {
          runs += 1;
          job.log("line");
          await job.progress(5);
          return "done";
        },
      },
      { through: way.url },
    );
    assert.equal(await job.result({ timeout: SECONDS }), "done");
    assert.equal(runs, 1);
    // on a busy machine the lease of the lost claim may be over before the claim is repeated
    const ended = (await job.attempts()).map(({ status }) => status).filter((status) => !/lost|released/.test(status));
    assert.deepEqual(ended, ["succeeded"]);
    for (const what of ["claim", "complete", "logs", "progress"]) assert.ok(lost.has(what), what);
    assert.equal(await logOf(job), "line\n");
    const claims = way.seen.filter(({ path }) => path.endsWith("/claim")).map(({ body }) => body.claim_id);
    assert.equal(claims[0], claims[1]);
  });

  it("rides out an outage with running jobs", async (t) => {
    const key = await define();
    let isDown = false;
    const way = await faultyWay(t, () => (isDown ? (way.seen.length % 2 ? 502 : "refuse") : undefined));
    const errors = [];
    const [began, go] = [gate(), gate()];
    startWorker(
      t,
      {
        [key]: async ({ payload }) => {
          if (!payload.first) return "second";
          began.open();
          await go.opened;
          return "first";
        },
      },
      { through: way.url, onError: (error) => errors.push(error), waitSeconds: 1 },
    );
    const first = await operator.enqueue(key, { first: true });
    await began.opened;
    isDown = true;
    const second = await operator.enqueue(key);
    go.open();
    const failed = (what) => way.seen.filter(({ path, fate }) => fate && path.endsWith(what)).length;
    await until(() => failed("/claim") >= 2 && failed("/complete") >= 2, "the outage to be felt");
    isDown = false;
    assert.deepEqual(await Promise.all([first.result({ timeout: SECONDS }), second.result({ timeout: SECONDS })]), ["first", "second"]);
    assert.equal((await first.read()).attempt_count, 1);
    assert.equal(errors.length, 1);
  });

  it("stops a handler whose lease is lost, and reports nothing for it", async (t) => {
    const key = await define({ max_attempts: 5 });
    let isCut = false;
    const way = await faultyWay(t, ({ path }) => (isCut && !path.endsWith("/claim") ? "refuse" : undefined));
    const [began, over] = [gate(), gate()];
    const outcomes = [];
    startWorker(
      t,
      {
        [key]: async (job) => {
          began.open();
          await sleep(60_000, undefined, { signal: job.signal }).catch(() => undefined);
          outcomes.push(job.signal.reason.reason);
          await job.progress(1).catch((error) => outcomes.push(error instanceof Stopped));
          over.open();
          return "from the lost attempt";
        },
      },
      { through: way.url, concurrency: 1 },
    );
    const job = await operator.enqueue(key);
    await began.opened;
    isCut = true;
    await over.opened;
    assert.deepEqual(outcomes, ["lease_lost", true]);
    isCut = false;
    await until(async () => (await job.attempts()).length >= 2, "another attempt");
    const reports = way.seen.filter(({ path, body }) => /complete|fail|release/.test(path) && body.attempt_no === 1);
    assert.deepEqual(reports, []);
  });

  it("keeps to its concurrency and claims several jobs at once", async (t) => {
    const key = await define();
    const way = await faultyWay(t, () => undefined);
    const go = gate();
    let [now, most, runs] = [0, 0, 0];
    const jobs = await operator.enqueueMany(Array.from({ length: 12 }, () => ({ definition: key })));
    startWorker(
      t,
      {
        [key]: async () => {
          now += 1;
          runs += 1;
          most = Math.max(most, now);
          await go.opened;
          now -= 1;
        },
      },
      { concurrency: 4, through: way.url },
    );
    await until(() => now === 4, "four jobs to run");
    go.open();
    await Promise.all(jobs.map((job) => job.result({ timeout: SECONDS })));
    assert.deepEqual([most, runs], [4, 12]);
    assert.equal(way.seen[0].body.limit, 4);
  });

  it("lets running jobs end when it is stopped, and releases the rest", async (t) => {
    const key = await define();
    const go = gate();
    const began = [];
    const worker = startWorker(
      t,
      {
        [key]: async (job) => {
          began.push(job.payload.n);
          if (job.payload.n === 1) return void (await go.opened);
          await new Promise((resolve) => job.signal.addEventListener("abort", resolve));
          throw job.signal.reason;
        },
      },
      { drainSeconds: SECONDS, graceSeconds: SECONDS },
    );
    const [first, second] = await operator.enqueueMany([1, 2].map((n) => ({ definition: key, payload: { n } })));
    await until(() => began.length === 2, "both to run");
    const stopped = worker.stop();
    const late = await operator.enqueue(key, { n: 1 });
    go.open();
    await first.result({ timeout: SECONDS });
    void worker.stop();
    await stopped;
    const { status, failure_count, lost_count } = await second.read();
    assert.deepEqual([status, failure_count, lost_count], ["queued", 0, 0]);
    assert.equal((await late.read()).status, "queued");
  });

  it("releases the jobs of a claim that its stop has cut off", async (t) => {
    const key = await define();
    const [enqueued, claims] = [gate(), []];
    const way = await faultyWay(t, ({ path, body }) => {
      if (!path.endsWith("/claim")) return undefined;
      claims.push(body.claim_id);
      if (claims.length !== 2) return undefined;
      void operator.enqueue(key).then(enqueued.open);
      return "hold";
    });
    const worker = startWorker(t, { [key]: () => assert.fail("it must not run") }, { through: way.url });
    const job = await enqueued.opened;
    await reaches(job, "running");
    await worker.stop();
    assert.deepEqual([claims.length, claims[2]], [3, claims[1]]);
    const { status, failure_count, lost_count } = await job.read();
    assert.deepEqual([status, failure_count, lost_count], ["queued", 0, 0]);
  });

  it("ends with the error if the server refuses it", async () => {
    const worker = new Fairlead({ url, token: tokens.application }).worker({ stopSignals: [] }).handle("ts.any", () => 1);
    await assert.rejects(worker.start(), (error) => error instanceof AccessDenied && error.code === "forbidden");
    const unknown = new Fairlead({ url, token: tokens.worker }).worker({ stopSignals: [] }).handle("ts.unknown", () => 1);
    await assert.rejects(unknown.start(), { code: "definition_unknown" });
  });

  it("refuses options and handlers that cannot work", () => {
    assert.throws(() => admin.worker({ concurrency: 0 }), /concurrency must be/);
    assert.throws(() => admin.worker().start(), /no handlers/);
    assert.throws(() => admin.worker().handle("a", () => 1).handle("a", () => 1), /already/);
    assert.throws(() => new Snooze(-1), /seconds to wait/);
    assert.equal(new LeaseLost({ code: "lease_lost", detail: "" }).name, "LeaseLost");
  });
});
