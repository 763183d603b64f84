// What the tests share: the server that pytest started, its tokens, and a way to it on which answers can be lost.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { Fairlead } from "../../dist/esm/index.js";

export const { FAIRLEAD_URL: url } = process.env;
/** How long a test waits for something that is to happen, also on a busy machine. */
export const SECONDS = 100;
export const tokens = JSON.parse(process.env.FAIRLEAD_TOKENS);

export const application = new Fairlead({ url, token: tokens.application });
export const operator = new Fairlead({ url, token: tokens.operator });
export const admin = new Fairlead({ url, token: tokens.super_admin });

/** A new definition, with the key that it has. */
export async function define(fields = {}) {
  const key = `ts.${randomUUID()}`;
  await admin.request("POST", "/admin/jobs/definitions", { body: { key, ...fields } });
  return key;
}

/** A worker that is stopped when the test ends. */
export function startWorker(t, handlers, { through = url, ...options } = {}) {
  const worker = new Fairlead({ url: through, token: tokens.worker }).worker({
    stopSignals: [],
    graceSeconds: 0.5,
    drainSeconds: 0, // at the end of a test, nothing that it left is waited for
    onError: () => undefined,
    ...options,
  });
  for (const [key, handler] of Object.entries(handlers)) worker.handle(key, handler);
  const ended = worker.start();
  ended.catch(() => undefined);
  t.after(() => worker.stop().catch(() => undefined));
  return worker;
}

/** Polls until `look` answers something true. */
export async function until(look, what, seconds = SECONDS) {
  const deadline = Date.now() + seconds * 1000;
  while (Date.now() < deadline) {
    const found = await look();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`waited ${seconds} s for ${what}`);
}

/** The job once it has this status. */
export function reaches(job, status) {
  return until(async () => {
    const seen = await job.read();
    return seen.status === status && seen;
  }, `job ${job.id} to be ${status}`);
}

/** A promise, and the function that resolves it. */
export function gate() {
  let open;
  const opened = new Promise((resolve) => {
    open = resolve;
  });
  return { open, opened };
}

/**
 * Forwards requests to the server. `decide` gets each request (`{ path, body }`) and returns what happens to it:
 * nothing (forwarded), "lose" (carried out, but its answer is lost), "hold" (carried out, but never answered),
 * "refuse" (not carried out, the connection ends), or a status to answer with.
 */
export async function faultyWay(t, decide) {
  const seen = [];
  // it closes no idle connection, on which a request could be on its way and be taken for lost
  const server = createServer({ keepAliveTimeout: 0 }, async (request, response) => {
    try {
      const parts = [];
      for await (const part of request) parts.push(part);
      const body = Buffer.concat(parts).toString();
      const path = request.url.replace("/api/v1", "");
      const entry = { path, body: body ? JSON.parse(body) : undefined };
      const fate = decide(entry);
      seen.push({ ...entry, fate });
      if (fate === "refuse") return request.socket.destroy();
      if (typeof fate === "number") {
        response.writeHead(fate, { "Content-Type": "text/html" });
        return response.end("<h1>Unavailable</h1>");
      }
      const { authorization, "idempotency-key": key, "x-tenant": tenant } = request.headers;
      const headers = { authorization, "Content-Type": "application/json", Connection: "close" };
      if (key) headers["Idempotency-Key"] = key;
      if (tenant) headers["X-Tenant"] = tenant;
      const aborted = new AbortController();
      response.on("close", () => aborted.abort());
      const answer = await fetch(new URL(request.url, url), {
        method: request.method,
        headers,
        body: body || null,
        signal: aborted.signal,
      });
      const text = await answer.text();
      if (fate === "lose") return request.socket.destroy();
      if (fate === "hold") return undefined;
      response.writeHead(answer.status, { "Content-Type": answer.headers.get("content-type") });
      response.end(text);
    } catch {
      request.socket.destroy(); // the client went away, or the server did
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, seen };
}
