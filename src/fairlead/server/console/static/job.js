// One job: its log (the end of it first, followed while it runs), and forms with times in the browser's zone.
"use strict";
(() => {
  const html = document.documentElement, one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  // The log. `chunks` is the shown part: a window of at most MOST characters.

  const MOST = 1_500_000, AT_ONCE = 200, DROPPED = /^… .*(dropped|not kept).* …$/;

  function viewer(box) {
    const lines = one("[data-lines]", box), picker = one("[data-attempt]", box), find = one("[data-find]", box);
    const stick = one("[data-stick]", box), found = one("[data-found]", box), following = one("[data-following]", box);
    const earlierButton = one("[data-earlier]", box), laterButton = one("[data-later]", box);
    let chunks = [], size = 0, earlier = null, later = "0.-1", cut = false, asking = null, here = -1, open = null, moving = false;

    const over = () => !["queued", "running"].includes(one("#job").dataset.status);
    const cursor = (chunk) => `${chunk.attempt_no}.${chunk.seq}`;

    async function ask(url, values, signal) {
      const address = new URL(url, location.href);
      if (picker.value) values[address.pathname.endsWith("/logs") ? "attempt_no" : "attempt"] = picker.value;
      for (const [name, value] of Object.entries(values)) address.searchParams.set(name, value);
      const headers = html.dataset.tenant ? { "X-Tenant": html.dataset.tenant } : {};
      const answer = await fetch(address, { signal, headers });
      if (!answer.ok) throw new Error(answer.status);
      return answer.json();
    }
    const onward = (values, signal) => ask(box.dataset.follow, { cursor: later, strip_ansi: "true", limit: AT_ONCE, ...values }, signal);

    // Rendering

    function fill(line) {
      const text = line.said, wanted = find.value.toLowerCase();
      line.classList.toggle("dropped", DROPPED.test(text));
      if (!wanted) { line.textContent = text; return; }
      const parts = [], low = text.toLowerCase();
      let at = 0, next;
      // lowercase text can be longer than the original: the positions would not match
      while (low.length === text.length && (next = low.indexOf(wanted, at)) >= 0) {
        const mark = document.createElement("mark");
        mark.textContent = text.slice(next, next + wanted.length);
        parts.push(text.slice(at, next), mark);
        at = next + wanted.length;
      }
      line.replaceChildren(...parts, text.slice(at));
    }
    function write(chunk, into) {
      if (open?.attempt !== chunk.attempt_no) {
        const heading = document.createElement("h3");
        heading.textContent = `Attempt ${chunk.attempt_no}`;
        into.append(heading);
        open = { attempt: chunk.attempt_no, line: null };
      }
      const parts = chunk.text.replaceAll("\r\n", "\n").split("\n");
      parts.forEach((part, index) => {
        if (index === 0 && open.line?.stream === chunk.stream) open.line.said += part;
        else if (index === parts.length - 1 && part === "") { open.line = null; return; }
        else {
          open.line = document.createElement("div");
          open.line.className = `line ${chunk.stream}`;
          open.line.stream = chunk.stream;
          open.line.title = `${chunk.stream}, ${new Date(chunk.at).toLocaleString()}`;
          open.line.said = part;
          into.append(open.line);
        }
        fill(open.line);
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
      count();
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
          if (page.items.length) { add(page.items); count(); }
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

    // Search

    const marks = () => all("mark", lines).filter((mark) => mark.offsetParent);
    function count() {
      const number = marks().length;
      // new lines change the number, not the place
      if (find.value && here >= 0 && here < number) found.textContent = `${here + 1} of ${number.toLocaleString()}`;
      else found.textContent = find.value ? `${number.toLocaleString()} found` : "";
    }
    function step(by) {
      const there = marks();
      if (!there.length) return;
      here = (here + by + there.length) % there.length;
      there.forEach((mark, index) => mark.classList.toggle("here", index === here));
      stick.checked = false;
      there[here].scrollIntoView({ block: "nearest" });
      found.textContent = `${here + 1} of ${there.length.toLocaleString()}`;
    }
    find.addEventListener("input", () => { here = -1; all(".line", lines).forEach(fill); count(); });
    find.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { event.preventDefault(); step(event.shiftKey ? -1 : 1); }
    });

    // Options

    box.addEventListener("change", (event) => {
      const stream = event.target.dataset.stream;
      if (stream) { lines.classList.toggle(`no-${stream}`, !event.target.checked); here = -1; count(); }
      else if (event.target.matches("[data-wrap]")) lines.classList.toggle("wrap", event.target.checked);
      else if (event.target === stick && stick.checked) bottom();
      else if (event.target === picker) start();
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

  // Forms

  const local = (at) => new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
  for (const field of all("[data-zoned]")) {
    const shown = one("input[type=datetime-local]", field), sent = one("input[type=hidden]", field);
    one("[data-zone]", field).textContent = ` (${Intl.DateTimeFormat().resolvedOptions().timeZone})`;
    const at = new Date(sent.value);
    if (sent.value && !isNaN(at)) shown.value = local(at);
    shown.addEventListener("change", () => { sent.value = shown.value ? new Date(shown.value).toISOString() : ""; });
  }
  for (const choice of all("[data-submits]")) choice.addEventListener("change", () => choice.form.requestSubmit());
  one("[data-enqueue] [aria-invalid=true]")?.focus();
})();
