// The log of a job: the end of it first, followed while it runs, coloured, and searched on the server.
"use strict";
(() => {
  const html = document.documentElement, one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  // Colours. The same sequences as in model/ansi.py: those that set a basic colour, bold or underline are shown, all others are removed.

  const SEQUENCE = /(?:\x1b\[|\x9b)([0-?]*)[ -/]*([@-~])|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x9c|\x1b\\)?|\x1b[ -/]*[0-~]|[\x1b\x80-\x9f]/g;
  const PLAIN = { colour: null, bold: false, underline: false };

  function restyle(style, parameters) {
    if (!/^[0-9;:]*$/.test(parameters)) return style;
    const codes = parameters.split(/[;:]/).map(Number), next = { ...style };
    for (let at = 0; at < codes.length; at++) {
      const code = codes[at];
      if (code === 0) Object.assign(next, PLAIN);
      else if (code === 1 || code === 22) next.bold = code === 1;
      else if (code === 4 || code === 24) next.underline = code === 4;
      else if (code >= 30 && code <= 37) next.colour = code - 30;
      else if (code >= 90 && code <= 97) next.colour = code - 82;
      else if (code === 39) next.colour = null;
      else if (code === 38 || code === 48) {
        const basic = codes[at + 1] === 5 && codes[at + 2] < 16 ? codes[at + 2] : null;
        if (code === 38) next.colour = basic;
        at += codes[at + 1] === 2 ? 4 : 2;
      }
    }
    return next;
  }
  // The plain text, the styles in it ({ at, style }, in order), and the style at the end
  function readAnsi(said, style) {
    const runs = [{ at: 0, style }];
    let text = "", from = 0;
    for (const sequence of said.matchAll(SEQUENCE)) {
      text += said.slice(from, sequence.index);
      from = sequence.index + sequence[0].length;
      if (sequence[2] === "m") {
        style = restyle(style, sequence[1]);
        runs.push({ at: text.length, style });
      }
    }
    return { text: text + said.slice(from), runs, style };
  }
  // The nodes for a part of a text
  function paint(text, runs, from, to) {
    const nodes = [];
    runs.forEach(({ at, style }, index) => {
      const begin = Math.max(from, at), end = Math.min(to, runs[index + 1]?.at ?? to);
      if (begin >= end) return;
      const names = [style.colour === null ? "" : `ansi-${style.colour}`, style.bold ? "ansi-bold" : "", style.underline ? "ansi-underline" : ""].filter(Boolean);
      if (!names.length) { nodes.push(text.slice(begin, end)); return; }
      const span = document.createElement("span");
      span.className = names.join(" ");
      span.textContent = text.slice(begin, end);
      nodes.push(span);
    });
    return nodes;
  }

  // The log. `chunks` is the shown part: a window of at most MOST characters.

  const MOST = 1_500_000, AT_ONCE = 200, MOST_MATCHES = 10_000, DROPPED = /^… .*(dropped|not kept).* …$/;

  function viewer(box) {
    const lines = one("[data-lines]", box), picker = one("[data-attempt]", box), find = one("[data-find]", box);
    const stick = one("[data-stick]", box), found = one("[data-found]", box), following = one("[data-following]", box);
    const earlierButton = one("[data-earlier]", box), laterButton = one("[data-later]", box);
    const stepButtons = all("[data-step]", box);
    let chunks = [], size = 0, earlier = null, later = "0.-1", cut = false, asking = null, loading = null, open = null, moving = false;

    const over = () => !["queued", "running"].includes(one("#job").dataset.status);
    const cursor = (chunk) => `${chunk.attempt_no}.${chunk.seq}`;

    async function ask(url, values, signal) {
      const address = new URL(url, location.href);
      if (picker.value) values[address.pathname.endsWith("/logs") ? "attempt_no" : "attempt"] = picker.value;
      for (const [name, value] of Object.entries(values)) for (const item of [value].flat()) address.searchParams.append(name, item);
      const headers = html.dataset.tenant ? { "X-Tenant": html.dataset.tenant } : {};
      const answer = await fetch(address, { signal, headers });
      if (!answer.ok) throw new Error(answer.status);
      return answer.json();
    }
    const onward = (values, signal) => ask(box.dataset.follow, { cursor: later, limit: AT_ONCE, ...values }, signal);

    // Rendering

    // The text of a line: coloured, with the matches of the search. Returns the style at its end.
    function fill(line) {
      const { text, runs, style } = readAnsi(line.said, line.inherited), wanted = find.value.toLowerCase(), low = text.toLowerCase();
      const parts = [];
      let at = 0, next;
      line.classList.toggle("dropped", DROPPED.test(text));
      // lowercase text can be longer than the original: the positions would not match
      while (wanted && low.length === text.length && (next = low.indexOf(wanted, at)) >= 0) {
        const mark = document.createElement("mark");
        mark.append(...paint(text, runs, next, next + wanted.length));
        parts.push(...paint(text, runs, at, next), mark);
        at = next + wanted.length;
      }
      line.replaceChildren(...parts, ...paint(text, runs, at, text.length));
      return style;
    }
    function write(chunk, into) {
      if (open?.attempt !== chunk.attempt_no) {
        const heading = document.createElement("h3");
        heading.textContent = `Attempt ${chunk.attempt_no}`;
        into.append(heading);
        open = { attempt: chunk.attempt_no, line: null, styles: {} };
      }
      const parts = chunk.text.replaceAll("\r\n", "\n").split("\n");
      parts.forEach((part, index) => {
        if (index === 0 && open.line?.stream === chunk.stream) open.line.said += part;
        else if (index === parts.length - 1 && part === "") { open.line = null; return; }
        else {
          open.line = document.createElement("div");
          open.line.className = `line ${chunk.stream}`;
          open.line.stream = chunk.stream;
          open.line.title = `${chunk.stream}, ${fairlead.exact(new Date(chunk.at))}`;
          open.line.said = part;
          open.line.from = cursor(chunk);
          open.line.inherited = open.styles[chunk.stream] || PLAIN;
          into.append(open.line);
        }
        open.styles[chunk.stream] = fill(open.line);
        if (index < parts.length - 1) open.line = null;
      });
    }
    function show(fresh) {
      const into = document.createDocumentFragment();
      for (const chunk of fresh) write(chunk, into);
      one("[data-log-state]", box)?.remove();
      lines.append(into);
    }
    function showAll() {
      open = null;
      lines.replaceChildren();
      show(chunks);
    }
    function showState() {
      earlierButton.hidden = !earlier;
      laterButton.hidden = !cut;
      following.textContent = over() ? "" : cut ? "Not following: there is more below." : "Following: what it writes appears here.";
      if (!chunks.length) {
        const said = document.createElement("p");
        said.className = "quiet";
        said.dataset.logState = "";
        said.textContent = over() ? "It wrote nothing." : "Nothing yet.";
        lines.replaceChildren(said);
      }
    }
    function bottom() {
      const end = lines.scrollHeight - lines.clientHeight;
      if (end - lines.scrollTop > 1) { moving = true; lines.scrollTop = end; }
    }

    // Reading

    function add(fresh) {
      chunks.push(...fresh);
      size += fresh.reduce((sum, chunk) => sum + chunk.text.length, 0);
      if (fresh.length) later = cursor(fresh.at(-1));
      show(fresh);
      if (size > MOST * 1.25) {
        let gone = 0;
        while (size > MOST) size -= chunks[gone++].text.length;
        chunks = chunks.slice(gone);
        earlier = cursor(chunks[0]);
        showAll();
      }
      if (stick.checked) bottom();
    }
    async function start() {
      loading?.abort();
      asking?.abort();
      asking = new AbortController();
      const mine = asking.signal;
      one("[data-download]", box).href = picker.value ? `${box.dataset.text}${box.dataset.text.includes("?") ? "&" : "?"}attempt=${picker.value}` : box.dataset.text;
      try {
        const page = await ask(box.dataset.look, {}, mine);
        chunks = []; size = 0; cut = false; earlier = page.earlier; later = page.later;
        lines.replaceChildren();
        open = null;
        add(page.items);
        showState();
      } catch (error) {
        if (mine.aborted) return;
        following.textContent = "The log could not be read.";
        setTimeout(() => { if (!mine.aborted) start(); }, 3000);
        return;
      }
      follow(mine);
    }
    async function follow(mine) {
      let pause = 1000;
      while (!mine.aborted && !cut) {
        try {
          const page = await onward({ follow: "true", wait: 25 }, mine);
          if (mine.aborted) return;
          pause = 1000;
          // do not scroll a user who reads further up: newer output waits below the window
          if (page.items.length && !stick.checked && size > MOST) { cut = true; asking = null; showState(); return; }
          if (page.items.length) { add(page.items); searchSoon(1000); }
          if (page.complete) { asking = null; showState(); return; }
        } catch {
          if (mine.aborted) return;
          following.textContent = "Cannot reach the server: trying again.";
          await new Promise((done) => setTimeout(done, pause));
          pause = Math.min(30000, pause * 2);
        }
      }
    }
    function pressed(button, act) {
      button.addEventListener("click", async () => {
        button.disabled = true; // avoid loading the same page twice
        try { await act(); } catch { following.textContent = "The log could not be read: try again."; }
        button.disabled = false;
      });
    }
    pressed(earlierButton, async () => {
      const page = await ask(box.dataset.look, { before: earlier });
      const from = lines.scrollHeight - lines.scrollTop;
      stick.checked = false;
      chunks = [...page.items, ...chunks];
      earlier = page.earlier;
      size += page.items.reduce((sum, chunk) => sum + chunk.text.length, 0);
      while (size > MOST * 1.25) { size -= chunks.pop().text.length; cut = true; }
      if (cut) { asking?.abort(); asking = null; }
      later = cursor(chunks.at(-1));
      showAll();
      showState();
      lines.scrollTop = lines.scrollHeight - from;
    });
    pressed(laterButton, async () => {
      const page = await onward({});
      add(page.items);
      cut = page.items.length > 0 && !page.complete;
      showState();
      if (!cut) resume();
    });
    function resume() {
      asking?.abort();
      asking = new AbortController();
      follow(asking.signal);
    }

    // Search: the server searches all of the log, and the part around a match is loaded where it is not shown.

    // `results`: the chunks in which matching lines begin, with the number of matches; `here`: the match that is shown
    let results = [], total = 0, more = false, here = -1, searching = null, pending = null, due = 0;

    function showFound() {
      const number = `${total.toLocaleString()}${more ? "+" : ""}`;
      found.textContent = !find.value ? "" : pending && !total ? "Searching…" : here >= 0 ? `${here + 1} of ${number}` : `${number} found`;
      for (const button of stepButtons) button.disabled = !total;
    }
    async function search() {
      searching?.abort();
      const { signal } = (searching = new AbortController()), wanted = find.value;
      let fresh = [], number = 0, next = null;
      if (wanted) {
        const streams = all("[data-stream]", box).filter((field) => field.checked).map((field) => field.dataset.stream);
        do {
          const page = await ask(box.dataset.findIn, { q: wanted, stream: streams.length ? streams : ["none"], ...(next ? { cursor: next } : {}) }, signal);
          for (const { attempt_no, seq, count } of page.items) { fresh.push({ at: `${attempt_no}.${seq}`, count }); number += count; }
          next = page.next_cursor;
        } while (next && fresh.length < MOST_MATCHES);
      }
      [results, total, more] = [fresh, number, Boolean(next)];
      if (here >= total) here = -1;
    }
    function searchNow() {
      clearTimeout(due);
      due = 0;
      const mine = pending = search().catch((error) => {
        if (error.name !== "AbortError") following.textContent = "The log could not be searched: try again.";
      }).finally(() => { if (pending === mine) { pending = null; showFound(); } });
      showFound();
      return mine;
    }
    function searchSoon(pause) {
      if (find.value && !due) due = setTimeout(searchNow, pause);
    }
    function restart() {
      here = -1;
      [results, total, more] = [[], 0, false];
      all(".line", lines).forEach(fill);
      clearTimeout(due);
      due = 0;
      if (find.value) searchSoon(150);
      else searching?.abort();
      showFound();
    }
    // The chunk of a match, and which of its matches it is
    function locate(index) {
      for (const { at, count } of results) {
        if (index < count) return { at, index };
        index -= count;
      }
    }
    function markOf({ at, index }) {
      return all(".line", lines).filter((line) => line.from === at && line.offsetParent).flatMap((line) => all("mark", line))[index];
    }
    // The first match in the shown part, or of all
    function firstShown() {
      const shown = new Set(chunks.map(cursor));
      let before = 0;
      for (const { at, count } of results) {
        if (shown.has(at)) return before;
        before += count;
      }
      return 0;
    }
    async function load(around) {
      loading = new AbortController();
      const page = await ask(box.dataset.look, { around }, loading.signal);
      asking?.abort();
      asking = null;
      chunks = page.items; earlier = page.earlier; later = page.later; cut = page.more;
      size = chunks.reduce((sum, chunk) => sum + chunk.text.length, 0);
      showAll();
      showState();
      if (!cut && !over()) resume();
    }
    async function step(by) {
      if (due) searchNow();
      await pending;
      if (!total) return;
      loading?.abort();  // of the step before, which is not shown any more
      here = here < 0 ? firstShown() : (here + by + total) % total;
      stick.checked = false;
      const place = locate(here);
      if (!markOf(place)) await load(place.at);
      const mark = markOf(place);
      all("mark.here", lines).forEach((one) => one.classList.remove("here"));
      mark?.classList.add("here");
      mark?.scrollIntoView({ block: "nearest" });
      showFound();
    }
    find.addEventListener("input", restart);
    find.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { event.preventDefault(); pressStep(event.shiftKey ? -1 : 1); }
    });
    const pressStep = (by) => step(by).catch((error) => { if (error.name !== "AbortError") following.textContent = "The log could not be read: try again."; });
    for (const button of stepButtons) button.addEventListener("click", () => pressStep(Number(button.dataset.step)));

    // Options

    box.addEventListener("change", (event) => {
      const stream = event.target.dataset.stream;
      if (stream) { lines.classList.toggle(`no-${stream}`, !event.target.checked); restart(); }
      else if (event.target.matches("[data-wrap]")) lines.classList.toggle("wrap", event.target.checked);
      else if (event.target === stick && stick.checked) bottom();
      else if (event.target === picker) { start(); restart(); }
    });
    lines.addEventListener("scroll", () => {
      const atEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 24;
      if (moving) moving = false;
      else if (lines.scrollHeight > lines.clientHeight) stick.checked = atEnd && !cut;
    });
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[data-show-attempt]");
      if (!button) return;
      picker.value = button.dataset.showAttempt;
      start();
      restart();
      box.scrollIntoView({ block: "start" });
      lines.focus({ preventScroll: true });
    });
    document.addEventListener("fairlead:refreshed", () => {
      const last = Number(one("#job").dataset.attempts);
      for (let number = Number(picker.options[1]?.value || 0) + 1; number <= last; number++) picker.add(new Option(`Attempt ${number}`, number), picker.options[1]);
      const past = picker.value && Number(picker.value) < last;
      if (!asking && !over() && !cut && !past) resume();
      showState();
    });
    start();
  }
  if (one("[data-log]")) viewer(one("[data-log]"));
})();
