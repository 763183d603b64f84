import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, it } from "node:test";
import {
  AccessDenied,
  Conflict,
  ConnectionFailed,
  Fairlead,
  FairleadError,
  InvalidRequest,
  JobFailed,
  NotFound,
  ResultTimeout,
  WorkflowRunFailed,
} from "../dist/esm/index.js";
import { SECONDS, admin, application, define, faultyWay, operator, reaches, startWorker, tokens, until, url } from "./lib/world.mjs";

describe("a client", { concurrency: true }, () => {
  it("enqueues a job with its options, and reads it", async () => {
    const key = await define();
    const job = await application.enqueue(key, { image: "a.png" }, { priority: 3, correlation_id: "c-1", delay_seconds: 60 });
    const seen = await job.read();
    assert.equal(seen.status, "queued");
    assert.deepEqual(seen.payload, { image: "a.png" });
    assert.equal(seen.priority, 3);
    assert.equal(seen.correlation_id, "c-1");
    assert.ok(Date.parse(seen.scheduled_for) > Date.now() + 30_000);
    assert.equal(job.deduplicated, false);
  });

  it("gets the active job of a dedupe key", async () => {
    const key = await define();
    const first = await application.enqueue(key, {}, { dedupe_key: key });
    const second = await application.enqueue(key, {}, { dedupe_key: key });
    assert.deepEqual([second.id, second.deduplicated], [first.id, true]);
  });

  it("lists the steps of a function, and sends it signals", async () => {
    const job = await application.enqueue(await define());
    assert.deepEqual(await operator.job(job.id).steps(), []);
    const sent = await operator.job(job.id).signal("go on", { n: 1 });
    assert.match(sent.id, /^[0-9a-f-]{36}$/);
    await assert.rejects(application.job(job.id).signal("go on"), AccessDenied);
    await operator.job(job.id).cancel();
    await assert.rejects(operator.job(job.id).signal("go on"), (error) => error.code === "job_not_signalable");
  });

  it("lists approvals, and says which one cannot be answered", async () => {
    assert.deepEqual((await operator.approvals.list({ status: "any", job_id: randomUUID() })).items, []);
    const unknown = (error) => error.code === "approval_unknown";
    await assert.rejects(operator.approvals.read(randomUUID()), unknown);
    await assert.rejects(operator.approvals.approve(randomUUID(), { n: 1 }, { comment: "fine" }), unknown);
    await assert.rejects(operator.approvals.reject(randomUUID()), unknown);
  });

  it("enqueues many jobs in their order, all or none", async () => {
    const arg_schema = { type: "object", properties: { n: { type: "integer" } } };
    const key = await define({ arg_schema });
    const correlation_id = randomUUID();
    const jobs = [0, 1, 2].map((n) => ({ definition: key, payload: { n }, correlation_id }));
    const made = await application.enqueueMany(jobs);
    const payloads = await Promise.all(made.map(async (job) => (await job.read()).payload.n));
    assert.deepEqual(payloads, [0, 1, 2]);

    const refused = application.enqueueMany([...jobs, { definition: key, payload: { n: "x" }, correlation_id }]);
    await assert.rejects(refused, (error) => {
      assert.ok(error instanceof InvalidRequest);
      assert.equal(error.code, "payload_invalid");
      assert.equal(error.status, 422);
      assert.match(error.errors[0].path, /^\[3\]/);
      assert.equal(error.message, error.detail);
      return true;
    });
    assert.equal((await application.listJobs({ correlation_id })).items.length, 3);
    assert.deepEqual(await application.enqueueMany([]), []);
  });

  it("creates one job, event and run although the first answers are lost", async (t) => {
    const key = await define();
    const correlation_id = randomUUID();
    const lost = new Set();
    const way = await faultyWay(t, ({ path }) => {
      if (lost.has(path)) return undefined;
      lost.add(path);
      return "lose";
    });
    await operator.request("GET", "/jobs");
    const fl = new Fairlead({ url: way.url, token: tokens.super_admin, tenant: "acme" });
    await fl.workflows.publish({ key: `${key}.flow`, steps: [{ name: "a", definition: key }] });
    const job = await fl.enqueue(key, {}, { correlation_id });
    await fl.enqueueMany([{ definition: key, correlation_id }]);
    await fl.emit("test.lost", { n: 1 }, { correlation_id });
    const run = await fl.workflows.start(`${key}.flow`, {}, { correlation_id });

    const jobs = (await operator.listJobs({ correlation_id, definition_key: key })).items.filter((one) => !one.workflow_run_id);
    assert.equal(jobs.length, 2);
    assert.ok(jobs.some((one) => one.id === job.id));
    const events = await operator.request("GET", "/events", { query: { correlation_id } });
    assert.equal(events.items.length, 1);
    const runs = await operator.workflows.runs({ key: `${key}.flow` });
    assert.deepEqual(runs.items.map((one) => one.id), [run.id]);
    assert.equal(way.seen.filter((one) => one.fate === "lose").length, 5);
    await run.cancel();
  });

  it("repeats a request while the server is unavailable, but not a retry whose answer was lost", async (t) => {
    const key = await define();
    let left = 2;
    const way = await faultyWay(t, ({ path }) => (path.endsWith("/retry") ? "lose" : left-- > 0 ? 503 : undefined));
    const fl = new Fairlead({ url: `${way.url}/api/v1/`, token: tokens.operator });
    const job = await fl.enqueue(key);
    assert.deepEqual(way.seen.map((one) => one.fate), [503, 503, undefined]);
    await job.cancel();
    await assert.rejects(job.retry(), ConnectionFailed);
    assert.equal(way.seen.filter((one) => one.path.endsWith("/retry")).length, 1);
    assert.equal((await job.read()).status, "queued");
  });

  it("gives up when the server cannot be reached for retrySeconds", async () => {
    const fl = new Fairlead({ url: "http://127.0.0.1:9", token: "t", retrySeconds: 0 });
    await assert.rejects(fl.listJobs(), (error) => {
      assert.ok(error instanceof ConnectionFailed && error instanceof FairleadError);
      assert.deepEqual([error.code, error.status], ["connection_failed", 0]);
      assert.doesNotMatch(error.message, /Bearer/);
      return true;
    });
  });

  it("gives up on an answer that takes longer than timeoutSeconds", async (t) => {
    const way = await faultyWay(t, () => undefined);
    const fl = new Fairlead({ url: way.url, token: tokens.operator, timeoutSeconds: 0.2, retrySeconds: 0 });
    const job = await operator.enqueue(await define(), {}, { delay_seconds: 60 });
    const query = { follow: true, wait: 10 };
    await assert.rejects(fl.request("GET", `/jobs/${job.id}/logs`, { query }), /no answer within 0.2 s/);
  });

  it("throws typed errors with the server's code", async () => {
    const stranger = new Fairlead({ url, token: "not-a-token" });
    await assert.rejects(stranger.listJobs(), (error) => error instanceof AccessDenied && error.code === "unauthenticated");
    const forbidden = (error) => error instanceof AccessDenied && error.status === 403 && error.code === "forbidden";
    const job = await application.enqueue(await define());
    await assert.rejects(application.job(job.id).cancel(), forbidden);
    await assert.rejects(operator.job(randomUUID()).read(), (error) => error instanceof NotFound && error.code === "job_unknown");
    await assert.rejects(operator.job(job.id).retry(), (error) => error instanceof Conflict && error.code === "job_not_retryable");
    await assert.rejects(application.enqueue("ts.no-such-definition"), { code: "definition_unknown" });
    assert.throws(() => new Fairlead({ url, token: "" }), /token is required/);
    for (const token of ["fl_secret\nX-Evil: 1", "fl_secret\0", "fl_secret…"]) {
      assert.throws(() => new Fairlead({ url, token }), (error) => /token must be/.test(error.message) && !/fl_secret/.test(error.message));
    }
    assert.throws(() => new Fairlead({ url: "ftp://example.com", token: "t" }), /must begin with http/);
    assert.throws(() => new Fairlead({ url: "http://me:secret@example.com", token: "t" }), /must not contain a user/);
  });

  it("leads to no other route with an id of dots", async () => {
    for (const id of [".", ".."]) {
      await assert.rejects(operator.job(id).cancel(), /must not be/);
      await assert.rejects(operator.workflows.start(id), /must not be/);
    }
    await assert.rejects(operator.job("../tokens").read(), (error) => error.code === "invalid_input" || error.status === 404);
  });

  it("says so if the address is not a Fairlead server's", async (t) => {
    const way = await faultyWay(t, () => 200);
    await assert.rejects(new Fairlead({ url: way.url, token: "t" }).listJobs(), { code: "response_invalid" });
  });

  it("acts in the tenant that it names, with a token of all tenants", async () => {
    const key = await define();
    const mine = await admin.enqueue(key, {}, { tenant: "umbrella" });
    assert.equal((await mine.read()).tenant, "umbrella");
    const fl = new Fairlead({ url, token: tokens.super_admin, tenant: "acme" });
    assert.equal((await (await fl.enqueue(key)).read()).tenant, "acme");
    await assert.rejects(operator.job(mine.id).read(), NotFound);
    await assert.rejects(admin.enqueue(key), /X-Tenant/);
  });

  it("cancels and retries jobs, and waits for their results", async (t) => {
    const key = await define({ max_attempts: 1 });
    const job = await operator.enqueue(key, { ok: true });
    await assert.rejects(job.result({ timeout: 0.05 }), (error) => error instanceof ResultTimeout && /still queued/.test(error.message));
    assert.equal((await job.cancel()).status, "canceled");
    await assert.rejects(job.result(), (error) => error instanceof JobFailed && error.jobStatus === "canceled");
    assert.equal((await job.retry({ ok: false })).status, "queued");
    startWorker(t, {
      [key]: ({ payload }) => {
        if (!payload.ok) throw new Error("not this time");
        return { fine: true };
      },
    });
    await assert.rejects(job.result(), (error) => error instanceof JobFailed && /not this time/.test(error.lastError));
    await job.retry({ ok: true });
    assert.deepEqual(await job.result({ timeout: SECONDS }), { fine: true });
    const attempts = await job.attempts();
    assert.deepEqual(attempts.map((one) => one.status), ["failed", "succeeded"]);
    const gone = new AbortController();
    const waiting = (await operator.enqueue(key, {}, { delay_seconds: 60 })).result({ signal: gone.signal });
    gone.abort();
    await assert.rejects(waiting);
  });

  it("emits an event once for an idempotency key", async () => {
    const idempotencyKey = randomUUID();
    const first = await application.emit("test.happened", { n: 1 }, { idempotencyKey });
    const second = await application.emit("test.happened", { n: 1 }, { idempotencyKey });
    assert.equal(first.id, second.id);
    await assert.rejects(application.emit("test.happened", { n: 2 }, { idempotencyKey }), FairleadError);
  });

  it("runs workflows to their outputs", async (t) => {
    const key = await define({ max_attempts: 1 });
    const workflows = new Fairlead({ url, token: tokens.super_admin, tenant: "acme" }).workflows;
    const published = await workflows.publish({
      key: `${key}.flow`,
      steps: [
        { name: "a", definition: key, payload: { n: "{{ input.n }}" } },
        { name: "b", definition: key, payload: { n: "{{ steps.a.output.n }}" }, after: ["a"] },
      ],
    });
    assert.equal((await workflows.read(`${key}.flow`)).version, published.version);
    startWorker(t, {
      [key]: ({ payload }) => {
        if (payload.n > 100) throw new Error("too many");
        return { n: payload.n + 1 };
      },
    });
    const run = await workflows.start(`${key}.flow`, { n: 1 }, { key: "once" });
    assert.deepEqual(await run.result({ timeout: SECONDS }), { b: { n: 3 } });
    const again = await workflows.start(`${key}.flow`, { n: 5 }, { key: "once" });
    assert.deepEqual([again.id, again.deduplicated], [run.id, true]);
    const failing = await workflows.start(`${key}.flow`, { n: 101 });
    await assert.rejects(failing.result({ timeout: SECONDS }), (error) => error instanceof WorkflowRunFailed && /a: .*too many/.test(error.message));
    assert.equal((await failing.retry()).status, "running");
    assert.equal((await failing.read()).steps.length, 2);
  });

  it("reads a log to its end while the job writes it", async (t) => {
    const key = await define();
    startWorker(t, {
      [key]: async (job) => {
        job.log("one");
        await until(async () => (await operator.request("GET", `/jobs/${job.id}/logs`)).items.length > 0, "the first line");
        job.log("two");
      },
    });
    const job = await operator.enqueue(key);
    await reaches(job, "running").catch(() => undefined);
    const texts = [];
    for await (const chunk of job.logs({ follow: true })) texts.push(chunk.text);
    assert.equal(texts.join(""), "one\ntwo\n");
    const all = [];
    for await (const chunk of job.logs()) all.push(chunk.text);
    assert.deepEqual(all, texts);
  });
});
