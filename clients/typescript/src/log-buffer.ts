import type { LogStream } from "./job.js";
import { after } from "./pause.js";
import type { AppendedLog, NewChunk } from "./types.js";

/** Milliseconds in which lines are collected. */
const COLLECT = 200;
const LONGEST_CHUNK = 65_536;
/** Characters of one request. */
const LONGEST_BATCH = 4 * LONGEST_CHUNK;
/** The server keeps 1 MiB of an attempt; a little more lets it mark that the rest is missing. */
const LONGEST_LOG = 1_048_576 + LONGEST_CHUNK;

type Send = (chunks: NewChunk[]) => Promise<AppendedLog>;

/** Collects the lines of an attempt and sends them as numbered chunks, one request at a time. */
export class LogBuffer {
  readonly #send: Send;
  readonly #pending: { stream: LogStream; text: string }[] = [];
  #seq = 0;
  #collected = 0;
  #isFull = false;
  #cancelTimer: (() => void) | undefined;
  #sending: Promise<void> | undefined;

  constructor(send: Send) {
    this.#send = send;
  }

  /** Add a line. */
  add(text: string, stream: LogStream): void {
    if (this.#isFull || this.#collected > LONGEST_LOG) return;
    const line = (text.endsWith("\n") ? text : `${text}\n`).toWellFormed();
    this.#collected += line.length;
    const last = this.#pending.at(-1);
    if (last?.stream === stream && last.text.length + line.length <= LONGEST_CHUNK) last.text += line;
    else for (const part of split(line)) this.#pending.push({ stream, text: part });
    // a failed flush shows in the flush at the end of the attempt, which the attempt awaits
    this.#cancelTimer ??= after(COLLECT, () => void this.flush().catch(() => undefined));
  }

  /** Send what was collected. */
  async flush(): Promise<void> {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    if (this.#sending === undefined && this.#pending.length === 0) return;
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined;
    });
    await this.#sending;
  }

  async #sendAll(): Promise<void> {
    while (this.#pending.length > 0 && !this.#isFull) {
      const kept = await this.#send(this.#takeBatch());
      this.#isFull = kept.truncated;
    }
  }

  #takeBatch(): NewChunk[] {
    const chunks: NewChunk[] = [];
    let size = 0;
    for (let next = this.#pending[0]; next && size + next.text.length <= LONGEST_BATCH; next = this.#pending[0]) {
      chunks.push({ seq: this.#seq++, stream: next.stream, text: next.text });
      size += next.text.length;
      this.#pending.shift();
    }
    return chunks;
  }
}

/** Parts of a line that fit into a chunk; no character is cut in two. */
function split(line: string): string[] {
  const parts: string[] = [];
  let start = 0;
  while (start < line.length) {
    let end = Math.min(start + LONGEST_CHUNK, line.length);
    if (end < line.length && isHighSurrogate(line.charCodeAt(end - 1))) end -= 1;
    parts.push(line.slice(start, end));
    start = end;
  }
  return parts;
}

function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}
